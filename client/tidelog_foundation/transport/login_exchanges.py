"""The logins in progress on a gRPC listener. Each is a sequence of calls, one for each of the client's tokens.

A login lasts ``LOGIN_TIMEOUT_S`` at most and has a bounded token in memory. The calls of one login follow each other;
an id that nobody can guess connects them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.sasl import SaslServer
from tidelog_foundation.sasl.logins import Login, Logins
from tidelog_foundation.transport.session_messages import AuthenticateRequest

T = TypeVar("T")
LOGIN_TIMEOUT_S: Final = 10.0
_ID_BYTES: Final = 16


class Exchange:
    """A login in progress, from :meth:`Exchanges.begin` to :meth:`Exchanges.end`."""

    def __init__(self, host: str, first: AuthenticateRequest, displaced: Callable[[Exchange], None]) -> None:
        """``displaced`` is called when the login loses its place to that of another host."""
        self.id = secrets.token_bytes(_ID_BYTES)
        self.host = host
        self.first = first
        """The first request, which has the mechanism."""
        self.server: SaslServer | None = None
        """The mechanism's side of the login, None before the first token."""
        self.tokens = 0
        """The complete tokens of the client so far."""
        self.login = Login(host, partial(displaced, self))
        self.deadline = asyncio.get_running_loop().time() + LOGIN_TIMEOUT_S
        self._token = bytearray()
        self._timeout: asyncio.Timeout | None = None

    def add(self, part: bytes, limit: int) -> None:
        """Add a part of the client's token.

        Raises:
            TidelogError: INVALID_REQUEST: The token has more than ``limit`` bytes.
        """
        if len(self._token) + len(part) > limit:
            size = len(self._token) + len(part)
            text = f"a token of {size} bytes or more is above the {limit} of sasl.server.max.receive.size"
            raise error_for(ErrorCode.INVALID_REQUEST, text)
        self._token += part

    def take_token(self) -> bytes:
        """Return the complete token, and begin the next one."""
        self.tokens += 1
        token = bytes(self._token)
        self._token.clear()
        return token

    async def wait(self, work: Awaitable[T]) -> T:
        """Return the result of ``work``.

        Raises:
            TidelogError: REQUEST_TIMED_OUT.
        """
        try:
            async with asyncio.timeout_at(self.deadline) as self._timeout:
                return await work
        except TimeoutError:
            raise _is_over() from None
        finally:
            self._timeout = None

    def abort(self) -> None:
        """Let the login time out now."""
        self.deadline = 0.0
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self.deadline)


class Exchanges:
    """The logins in progress, limited in number. An abandoned one ends with its time."""

    def __init__(self, limit: int) -> None:
        self._logins = Logins(limit)
        self._waiting: dict[bytes, tuple[Exchange, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._logins)

    def begin(self, host: str, first: AuthenticateRequest) -> Exchange:
        """Return a new login.

        Raises:
            TidelogError: REQUEST_TIMED_OUT: Too many are in progress. Servers try again after this error.
        """
        exchange = Exchange(host, first, self._displace)
        if not self._logins.begin(exchange.login):
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "too many logins are in progress, most of them from this host")
        return exchange

    def resume(self, exchange_id: bytes) -> Exchange:
        """Return the login that the client's next token continues.

        Raises:
            TidelogError: REQUEST_TIMED_OUT: It has ended.
        """
        found = self._waiting.pop(exchange_id, None)
        if found is None:
            raise _is_over()
        exchange, timer = found
        timer.cancel()
        return exchange

    def keep(self, exchange: Exchange) -> None:
        """Wait for the client's next token."""
        timer = asyncio.get_running_loop().call_at(exchange.deadline, self.end, exchange)
        self._waiting[exchange.id] = exchange, timer

    def end(self, exchange: Exchange) -> None:
        """Remove a login."""
        self._logins.end(exchange.login)
        self._forget(exchange)

    def _displace(self, exchange: Exchange) -> None:
        exchange.abort()
        self._forget(exchange)

    def _forget(self, exchange: Exchange) -> None:
        """Stop waiting for the client's next token."""
        found = self._waiting.pop(exchange.id, None)
        if found is not None:
            found[1].cancel()


def _is_over() -> TidelogError:
    text = f"the login did not end within {LOGIN_TIMEOUT_S:g} s, or made room for those of other hosts"
    return error_for(ErrorCode.REQUEST_TIMED_OUT, text)
