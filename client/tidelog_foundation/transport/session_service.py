"""Authentication on a gRPC listener with SASL: logins, and the sessions that they begin.

An unauthenticated caller reaches AuthenticationService and the health service alone, which receive no message: the
tokens of a login are metadata, whose size gRPC limits. All other calls are refused before their requests are received.
The rules of sessions are in :mod:`tidelog_foundation.sasl.sessions`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Final

import grpc.aio

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.logs.limit import LogLimit
from tidelog_foundation.metrics import Family
from tidelog_foundation.sasl import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Deferred,
    SaslContext,
    SaslMechanism,
    SaslServer,
)
from tidelog_foundation.sasl.login_counts import SESSIONS, LoginCounts, Result
from tidelog_foundation.sasl.sessions import Session, SessionLimits, SessionTable
from tidelog_foundation.sasl.settings import ListenerSaslSettings
from tidelog_foundation.transport.intake import parse
from tidelog_foundation.transport.login_exchanges import Exchange, Exchanges
from tidelog_foundation.transport.services import Caller, MetadataCall, RpcContext, Service
from tidelog_foundation.transport.session_messages import (
    AUTHENTICATE,
    AUTHORIZATION,
    REQUEST_KEY,
    REQUESTS,
    SERVICE,
    AuthenticateRequest,
    AuthenticateResponse,
    token_in,
)
from tidelog_foundation.transport.status import SessionEndedError

logger = logging.getLogger(__name__)
_MAX_LOGINS: Final = 128
_FAILED: Final = "Authentication failed"
"""Kafka's text."""
_SHOWN_NAME: Final = 64
_TOKEN_BYTES: Final = 32
_MAX_TOKENS: Final = 16
"""The most tokens of one exchange. No mechanism needs more than four."""


class SessionService:
    """The logins and sessions of one listener, on its server's event loop."""

    def __init__(
        self,
        settings: ListenerSaslSettings,
        mechanisms: Mapping[str, SaslMechanism],
        *,
        is_encrypted: bool,
        limits: SessionLimits | None = None,
        max_logins: int = _MAX_LOGINS,
        admit: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """``mechanisms`` has the enabled ones of ``settings`` by name.

        ``admit`` waits until a login of a host may begin, or raises TidelogError.
        """
        self._admit = admit
        self._settings = settings
        self._mechanisms = mechanisms
        self._is_encrypted = is_encrypted
        self._table = SessionTable(limits or SessionLimits())
        self._exchanges = Exchanges(max_logins)
        self._log = LogLimit(logger, time.monotonic)
        self.counts = LoginCounts()

    @property
    def succeeded(self) -> int:
        """The number of successful logins, further ones of a session included."""
        return self.counts.total(Result.SUCCESS) + self.counts.total(Result.SUCCESS, is_again=True)

    @property
    def failed(self) -> int:
        """The number of failed ones."""
        return self.counts.total(Result.FAILURE) + self.counts.total(Result.FAILURE, is_again=True)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve logins."""
        Service(SERVICE, {AUTHENTICATE: MetadataCall(self._authenticate, AuthenticateResponse)}).add_to(server)

    def identify(self, rpc: RpcContext) -> Session:
        """Return the session of a call.

        Raises:
            TidelogError: ILLEGAL_SASL_STATE: the call names no session. SessionEndedError: its session is unknown or
                has ended.
        """
        value = next((value for key, value in rpc.invocation_metadata() or () if key == AUTHORIZATION), None)
        token = token_in(value) if isinstance(value, str) else None
        if token is None:
            text = f"listener {self._settings.listener} requires a login with SASL: {', '.join(self._mechanisms)}"
            raise error_for(ErrorCode.ILLEGAL_SASL_STATE, text)
        session = self._table.find(_digest(token), _monotonic_ms())
        if session is None:
            raise SessionEndedError("the session is unknown or has ended")
        return session

    def families(self) -> Iterable[Family]:
        """Return the metrics of logins and sessions."""
        yield from self.counts.families()
        yield SESSIONS.of({(self._settings.listener,): len(self._table)})

    async def _authenticate(self, caller: Caller) -> AuthenticateResponse:
        """Take a token of a login, or a part of it, and return the answer."""
        request = await _request_in(caller)
        if request.exchange_id:
            exchange = self._exchanges.resume(request.exchange_id)
        else:
            exchange = self._exchanges.begin(caller.host, request)
        try:
            if self._admit is not None and exchange.server is None and not self._prolongs(exchange.first):
                await exchange.wait(self._admit(exchange.host))
            response = await self._advance(exchange, request)
        except BaseException:
            self._exchanges.end(exchange)
            raise
        if response.session_token:
            self._exchanges.end(exchange)
            return response
        self._exchanges.keep(exchange)
        return replace(response, exchange_id=exchange.id)

    def _prolongs(self, first: AuthenticateRequest) -> bool:
        """Return whether a login is of a client that has a session, and therefore no new connection."""
        token = first.session_token
        return bool(token) and self._table.find(_digest(token), _monotonic_ms()) is not None

    async def _advance(self, exchange: Exchange, request: AuthenticateRequest) -> AuthenticateResponse:
        first, host = exchange.first, exchange.host
        if exchange.server is None:
            exchange.server = self._server(first.mechanism, host)
        exchange.add(
            request.auth_bytes, self._settings.mechanisms[first.mechanism].settings.sasl_server_max_receive_size
        )
        if request.has_more:
            return AuthenticateResponse()
        try:
            step = await exchange.wait(_evaluate(exchange.server, exchange.take_token()))
            if isinstance(step, Authenticated):
                return self._succeed(first, step, host)
            if exchange.tokens == _MAX_TOKENS:
                raise AuthenticationFailed(f"the exchange has more than {_MAX_TOKENS} tokens")
            return AuthenticateResponse(step.token)
        except AuthenticationFailed as failure:
            raise await self._fail(first, host, failure) from None

    def _server(self, mechanism: str, host: str) -> SaslServer:
        found = self._mechanisms.get(mechanism)
        if found is None:
            self._count_failure("", host, f"the mechanism {mechanism[:_SHOWN_NAME]!a} is not enabled")
            text = f"the mechanism is not enabled: must be one of {', '.join(self._mechanisms)}"
            raise error_for(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
        return found.server(SaslContext(self._settings.listener, host, self._is_encrypted))

    def _succeed(self, first: AuthenticateRequest, step: Authenticated, host: str) -> AuthenticateResponse:
        """Begin the session of a login, or prolong the one that the client names.

        Raises:
            AuthenticationFailed: That session is another principal's, or began with a credential of another kind.
        """
        now_ms = _monotonic_ms()
        lifetime_ms = self._lifetime_ms(first.mechanism, step.expires_at_ms)
        expires_at_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        known = self._table.find(_digest(first.session_token), now_ms) if first.session_token else None
        if known is not None and known.principal != step.principal:
            raise AuthenticationFailed(f"{step.principal} cannot prolong the session of {known.principal}")
        if known is not None and known.is_token != step.is_token:
            raise AuthenticationFailed(f"{step.principal} cannot change between a delegation token and another login")
        self.counts.count(self._settings.listener, first.mechanism, Result.SUCCESS, is_again=known is not None)
        token = first.session_token
        if known is not None:
            self._table.prolong(known, expires_at_ms, now_ms)
        else:
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            self._table.begin(
                _digest(token), step.principal, host, now_ms, expires_at_ms=expires_at_ms, is_token=step.is_token
            )
        return AuthenticateResponse(step.response or b"", token, lifetime_ms or 0)

    def _lifetime_ms(self, mechanism: str, credential_expires_at_ms: int | None) -> int | None:
        """Return the time after which the client must log in again: connections.max.reauth.ms, or its credential's.

        Raises:
            AuthenticationFailed: The credential has expired.
        """
        limit_ms = self._settings.mechanisms[mechanism].settings.connections_max_reauth_ms or None
        if credential_expires_at_ms is None:
            return limit_ms
        left_ms = credential_expires_at_ms - _wall_clock_ms()
        if left_ms <= 0:
            raise AuthenticationFailed("the credential has expired")
        return left_ms if limit_ms is None else min(left_ms, limit_ms)

    async def _fail(self, first: AuthenticateRequest, host: str, failure: AuthenticationFailed) -> TidelogError:
        """Count and log a failed login, and return the client's error after the delay."""
        mechanism = first.mechanism
        self._count_failure(mechanism, host, f"{mechanism}: {failure.reason}", is_again=self._prolongs(first))
        settings = self._settings.mechanisms[mechanism].settings
        await asyncio.sleep(settings.connection_failed_authentication_delay_ms / 1000)
        return error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, _public_text(mechanism, failure.public))

    def _count_failure(self, mechanism: str, host: str, reason: str, *, is_again: bool = False) -> None:
        self.counts.count(self._settings.listener, mechanism, Result.FAILURE, is_again=is_again)
        text = "A login from %s at listener %s failed, %d since the start: %s"
        self._log.warning(text, host, self._settings.listener, self.failed, reason)


async def _request_in(caller: Caller) -> AuthenticateRequest:
    """Return the request in a call's metadata.

    Raises:
        TidelogError: INVALID_REQUEST.
    """
    raw = caller.binary_metadata(REQUEST_KEY)
    if raw is None:
        raise error_for(ErrorCode.INVALID_REQUEST, f"the call has no metadata {REQUEST_KEY}")
    return REQUESTS.from_message(await parse(REQUESTS.message_type, raw))


async def _evaluate(server: SaslServer, token: bytes) -> Authenticated | Challenge:
    step = server.evaluate(token, _wall_clock_ms())
    return await asyncio.to_thread(step.work) if isinstance(step, Deferred) else step


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _monotonic_ms() -> float:
    return time.monotonic() * 1000


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _public_text(mechanism: str, text: str | None) -> str:
    """Return the text for the peer. That of OAUTHBEARER is JSON, which does not say what it is about."""
    if text is None:
        return f"{_FAILED} during authentication due to invalid credentials with SASL mechanism {mechanism}"
    return text if text.startswith(_FAILED) else f"{_FAILED} with SASL mechanism {mechanism}: {text}"
