"""A gRPC channel that logs in with SASL: it begins a session on first use and names it in every call.

A unary call whose session has ended logs in again and is repeated once, which is safe, since the server refuses such a
call before its request. A stream is opened with the current session, so that its owner calls :func:`log_in` first. A
session with a limited lifetime is prolonged when 85 to 95 % of it are over, as Kafka's clients do (KIP-368), if it is
in use; streams continue then.

A failed login is the error of all calls that wait for it, as a gRPC error with the status of AuthenticationService.
After a refused one, calls fail with the same error until the back-off is over.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import field, replace
from typing import Any, Final

import grpc
import grpc.aio

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.sasl import AuthenticationFailed, SaslClient, SaslLogin
from tidelog_foundation.transport.channel_layer import ChannelLayer
from tidelog_foundation.transport.login_backoff import LoginBackoff
from tidelog_foundation.transport.session_messages import (
    AUTHENTICATE,
    RESPONSES,
    SERVICE,
    AuthenticateRequest,
    AuthenticateResponse,
    authorization,
    metadata_of,
    requests_of,
)
from tidelog_foundation.transport.status import ERROR_CODE_KEY, trailing_value

logger = logging.getLogger(__name__)
_METHOD: Final = f"/{SERVICE.full_name}/{AUTHENTICATE}"
_LOGIN_TIMEOUT_S: Final = 10.0
_RENEWAL: Final = (0.85, 0.95)
_RENEWAL_RETRY_S: Final = 1.0
SERVER_BACKOFF_S: Final = 1.0
CLIENT_BACKOFF_S: Final = 10.0
"""The longest waits after refused logins. A node's login may succeed as soon as a controller has read the users."""
_REFUSALS: Final = frozenset(
    str(row.code)
    for row in (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    )
)


async def log_in(channel: grpc.aio.Channel) -> None:
    """Wait until the channel has a session, before a stream is opened. A channel without SASL needs none.

    Raises:
        AioRpcError: The login failed.
    """
    if isinstance(channel, SessionChannel):
        await channel.log_in()


class SessionChannel(ChannelLayer):
    """A channel with a session, on one event loop. It owns the channel that it wraps."""

    def __init__(
        self, channel: grpc.aio.Channel, login: SaslLogin, host: str, max_backoff_s: float = SERVER_BACKOFF_S
    ) -> None:
        """``host`` is the server's name, which some mechanisms need.

        ``max_backoff_s`` is the longest wait after refused logins.
        """
        super().__init__(channel)
        self._session = _ClientSession(channel, login, host, LoginBackoff(max_backoff_s, random.random))

    async def log_in(self) -> None:
        """See :func:`log_in`."""
        await self._session.ready(_LOGIN_TIMEOUT_S)

    def forget_refusal(self) -> None:
        """Let the next call log in at once, because the credentials have been replaced."""
        self._session.forget_refusal()

    async def close(self, grace: float | None = None) -> None:
        """End the work on the session, and close the channel."""
        await self._session.close()
        await self._channel.close(grace)

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that calls a unary method with the session."""
        return _repeating(self._session, self._channel.unary_unary(*arguments, **options))

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that opens a stream of requests with the session."""
        return _streaming(self._session, self._channel.stream_unary(*arguments, **options))

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that opens a stream of responses with the session."""
        return _streaming(self._session, self._channel.unary_stream(*arguments, **options))

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that opens streams in both directions with the session."""
        return _streaming(self._session, self._channel.stream_stream(*arguments, **options))


@dataclass(frozen=True, slots=True)
class _Token:
    """A session of the server. ``metadata`` names it."""

    token: str = field(repr=False)
    metadata: tuple[tuple[str, str], ...] = field(repr=False)


class _ClientSession:
    """The session of one channel: at most one login is in progress, and all calls wait for it."""

    def __init__(self, channel: grpc.aio.Channel, login: SaslLogin, host: str, backoff: LoginBackoff) -> None:
        self.current: _Token | None = None
        self.streams = 0
        self.is_used = False
        self._authenticate: Any = channel.unary_unary(_METHOD, None, RESPONSES.message_type.FromString)
        self._login = login
        self._host = host
        self._backoff = backoff
        self._refusal: grpc.aio.AioRpcError | None = None
        self._pending: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def ready(self, timeout_s: float | None) -> _Token:
        """Return the session, after a login if there is none.

        Raises:
            AioRpcError: The login failed, did not end in time, or was refused a moment ago.
        """
        self.is_used = True
        while self.current is None:
            if self._pending is None and self._refusal is not None and self._backoff.remaining_s(time.monotonic()):
                raise _copy(self._refusal)
            if self._pending is None:
                self._pending = self._start(self._log_in(), "log-in")
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(self._pending)
            except TimeoutError:
                raise _timed_out() from None
        return self.current

    def forget_refusal(self) -> None:
        """Let the next call log in at once."""
        self._refusal = None
        self._backoff.reset()

    def drop(self, token: _Token | None) -> None:
        """Forget a session that the server does not know any more."""
        if self.current is token:
            self.current = None

    def examine(self, call: Any, token: _Token | None) -> None:
        """Forget the session if the server ended a stream because of it."""
        self.streams -= 1

        async def check() -> None:
            if await call.code() is grpc.StatusCode.UNAUTHENTICATED:
                self.drop(token)

        self._start(check(), "examine-stream")

    async def close(self) -> None:
        """End all work."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _log_in(self) -> None:
        try:
            await self._exchange(None)
        except grpc.aio.AioRpcError as error:
            if trailing_value(error, ERROR_CODE_KEY) in _REFUSALS:
                self._refusal = error
                self._backoff.refused(time.monotonic())
            raise
        else:
            self.forget_refusal()
        finally:
            self._pending = None

    async def _exchange(self, prolonged: _Token | None) -> None:
        """Log in and take the session."""
        try:
            client = await asyncio.to_thread(self._login.client, self._host)
        except TidelogError as error:
            raise _error_of(error) from error
        token = prolonged.token if prolonged is not None else ""
        request = AuthenticateRequest(self._login.mechanism, client.first(), token)
        try:
            async with asyncio.timeout(_LOGIN_TIMEOUT_S):
                while True:
                    response = await self._send(request)
                    auth_bytes = await _evaluated(client, response)
                    if response.session_token:
                        self._take(response)
                        return
                    request = AuthenticateRequest(auth_bytes=auth_bytes or b"", exchange_id=response.exchange_id)
        except TimeoutError:
            raise _timed_out() from None
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            text = "the listener has no authentication with SASL: use another security.protocol"
            raise _error_of(error_for(ErrorCode.ILLEGAL_SASL_STATE, text)) from None
        except AuthenticationFailed as failure:
            text = f"the server failed the authentication with {self._login.mechanism}: {failure.reason}"
            raise _error_of(error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, text)) from None

    async def _send(self, first: AuthenticateRequest) -> AuthenticateResponse:
        """Send the parts of a token, and return the server's answer to all of it.

        Raises:
            AioRpcError: The login failed.
        """
        exchange_id = first.exchange_id
        response = AuthenticateResponse()
        for part in requests_of(first):
            request = replace(part, exchange_id=exchange_id)
            response = RESPONSES.from_message(await self._authenticate(b"", metadata=(metadata_of(request),)))
            exchange_id = response.exchange_id
        return response

    def _take(self, response: AuthenticateResponse) -> None:
        known = self.current
        if known is None or known.token != response.session_token:
            self.current = _Token(response.session_token, (authorization(response.session_token),))
        if response.session_lifetime_ms:
            assert self.current is not None
            self._start(self._prolong(self.current, response.session_lifetime_ms / 1000), "prolong-session")

    async def _prolong(self, token: _Token, lifetime_s: float) -> None:
        """Prolong a session before its end if it is in use, and forget it otherwise."""
        ends_s = time.monotonic() + lifetime_s
        await asyncio.sleep(lifetime_s * random.uniform(*_RENEWAL))
        while self.current is token:
            if not (self.is_used or self.streams):
                self.drop(token)
                return
            try:
                self.is_used = False
                await self._exchange(token)
            except grpc.aio.AioRpcError as error:
                self.is_used = True
                is_refused = error.code() is grpc.StatusCode.UNAUTHENTICATED
                level = logging.WARNING if is_refused else logging.DEBUG
                logger.log(level, "The login at %s could not be repeated: %s", self._host, error.details())
                if time.monotonic() + _RENEWAL_RETRY_S < ends_s:
                    await asyncio.sleep(_RENEWAL_RETRY_S)
                    continue
                self.drop(token)
            return

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Those that wait for the login have the error too; there may be none any more.
            task.exception()


def _repeating(session: _ClientSession, method: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(
        request: Any,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        metadata: Iterable[tuple[str, str]] | None = None,
        **options: Any,
    ) -> Any:
        began = time.monotonic()
        token = session.current or await session.ready(timeout)
        session.is_used = True
        try:
            return await method(
                request, timeout=_left(timeout, began), metadata=(*(metadata or ()), *token.metadata), **options
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise
        session.drop(token)
        token = await session.ready(_left(timeout, began))
        return await method(
            request, timeout=_left(timeout, began), metadata=(*(metadata or ()), *token.metadata), **options
        )

    return call


def _streaming(session: _ClientSession, method: Any) -> Callable[..., Any]:
    def call(*arguments: Any, metadata: Iterable[tuple[str, str]] | None = None, **options: Any) -> Any:
        token = session.current
        own = token.metadata if token is not None else ()
        opened = method(*arguments, metadata=(*(metadata or ()), *own), **options)
        session.streams += 1
        opened.add_done_callback(lambda ended: session.examine(ended, token))
        return opened

    return call


async def _evaluated(client: SaslClient, response: AuthenticateResponse) -> bytes | None:
    """Return the client's answer to a token of the server.

    Raises:
        AuthenticationFailed: The token is invalid, or the login ended too early.
    """
    is_last = bool(response.session_token)
    if is_last and client.is_complete and not response.auth_bytes:
        return None
    answer = await asyncio.to_thread(client.evaluate, response.auth_bytes)
    if is_last and not client.is_complete:
        raise AuthenticationFailed("it reports success before it has proved its identity")
    return answer


def _copy(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return the error without the traceback of its first use."""
    return grpc.aio.AioRpcError(error.code(), error.initial_metadata(), error.trailing_metadata(), error.details())


def _left(timeout_s: float | None, began_s: float) -> float | None:
    return None if timeout_s is None else max(timeout_s - (time.monotonic() - began_s), 0.001)


def _timed_out() -> grpc.aio.AioRpcError:
    return _rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "the login did not end in time")


def _error_of(error: TidelogError) -> grpc.aio.AioRpcError:
    return _rpc_error(grpc.StatusCode[error.code.grpc_status], error.message, ((ERROR_CODE_KEY, str(error.code.code)),))


def _rpc_error(status: grpc.StatusCode, text: str, trailing: tuple[tuple[str, str], ...] = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), text)
