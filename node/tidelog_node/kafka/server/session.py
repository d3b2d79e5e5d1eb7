"""The SASL session of a connection after its authentication: expiry and re-authentication (KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog_foundation.sasl import Deferred
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.served import Body, CloseConnection
from tidelog_node.kafka.server.authentication import Authentication, Failure, Outcome, Reply, Session
from tidelog_node.kafka.server.logins import ListenerSasl, Logins, now

_LEAST_INTERVAL_MS: Final = 1_000
"""The time between two re-authentications, as in Kafka's KafkaChannel."""


class ClientSession:
    """The session of one connection. The connection passes each request's API key to :meth:`takes`."""

    def __init__(self, session: Session, sasl: ListenerSasl, logins: Logins, listener: str, host: str) -> None:
        self.current = session
        self._sasl = sasl
        self._logins = logins
        self._listener = listener
        self._host = host
        self._exchange: Authentication | None = None
        self._begun_ms: int | None = None

    @property
    def has_token(self) -> bool:
        """True if the last login was with a delegation token.

        As in Kafka, a re-authentication may go from a password to a token of the same principal, and back.
        """
        return self.current.is_token

    def takes(self, api_key: int) -> bool:
        """Return whether a request is for :meth:`begin`: it begins a re-authentication, or one is in progress.

        Raises:
            CloseConnection: The session has expired.
        """
        if self._exchange is not None:
            return True
        expires_ms = self.current.expires_ms
        if expires_ms is None:
            return False
        now_ms = now().monotonic_ms
        if api_key == ApiKey.SASL_HANDSHAKE and not self._is_too_soon(now_ms):
            self._begun_ms = now_ms
            self._exchange = self._logins.begin(self._sasl, self._listener, self._host, self.current)
            return True
        if now_ms > expires_ms:
            self._logins.counts.count_expired(self._listener)
            raise CloseConnection(f"the session of {self.current.principal} has expired")
        return False

    def begin(self, frame: bytes, end: Callable[[], None]) -> Body | Awaitable[Body]:
        """Process a frame of a re-authentication, and return the response.

        ``end`` makes the connection close when the response is sent.

        Raises:
            CloseConnection: The connection is closed without a response. The awaitable may raise it too.
        """
        assert self._exchange is not None, "takes() is called first"
        outcome = self._exchange.receive(frame, now())
        return self._body(outcome) if isinstance(outcome, Reply) else self._finish(outcome, end)

    async def _finish(self, outcome: Outcome, end: Callable[[], None]) -> Body:
        exchange = self._exchange
        assert exchange is not None, "it ends with its last reply"
        if isinstance(outcome, Deferred):
            outcome = exchange.resolve(await self._logins.run(outcome), now())
        if isinstance(outcome, Reply):
            return self._body(outcome)
        assert isinstance(outcome, Failure), "the outcome of deferred work is not deferred again"
        self._logins.failed(self._listener, self._host, exchange.mechanism, outcome.reason, self.current)
        if outcome.is_delayed:
            await asyncio.sleep(self._sasl.failure_delay_s)
        if outcome.reply is None or outcome.reply.body is None:
            raise CloseConnection("the re-authentication has failed")
        end()
        return [outcome.reply.body]

    def _body(self, reply: Reply) -> Body:
        assert self._exchange is not None, "it ends with its last reply"
        if reply.header is None:
            raise CloseConnection("a re-authentication needs SaslHandshake 1")
        if self._exchange.session is not None:
            self._logins.succeeded(self._listener, self.current.mechanism, self.current)
            self.current, self._exchange = self._exchange.session, None
        return [reply.body] if reply.body is not None else []

    def _is_too_soon(self, now_ms: int) -> bool:
        return self._begun_ms is not None and now_ms - self._begun_ms < _LEAST_INTERVAL_MS
