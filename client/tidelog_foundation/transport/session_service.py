"""Authentication on a gRPC listener with SASL: logins, and the sessions that they begin.

An unauthenticated caller reaches AuthenticationService and the health service alone. All other calls are refused before
their requests are received. The rules of sessions are in :mod:`tidelog_foundation.sasl.sessions`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping
from hashlib import sha256
from typing import Final, TypeVar

import grpc.aio
from google.protobuf.message import Message

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.log_limit import LogLimit
from tidelog_foundation.sasl import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Deferred,
    SaslContext,
    SaslMechanism,
    SaslServer,
)
from tidelog_foundation.sasl.logins import Login, Logins
from tidelog_foundation.sasl.sessions import Session, SessionLimits, SessionTable
from tidelog_foundation.sasl.settings import ListenerSaslSettings
from tidelog_foundation.transport.intake import parse
from tidelog_foundation.transport.services import Caller, Read, RequestStream, RpcContext, Service
from tidelog_foundation.transport.session_messages import (
    AUTHENTICATE,
    AUTHORIZATION,
    REQUESTS,
    RESPONSES,
    SERVICE,
    AuthenticateRequest,
    AuthenticateResponse,
    token_in,
)
from tidelog_foundation.transport.status import SessionEndedError

logger = logging.getLogger(__name__)
T = TypeVar("T")
LOGIN_TIMEOUT_S: Final = 10.0
_MAX_LOGINS: Final = 128
_GENERAL: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
"""Kafka's text."""
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
    ) -> None:
        """``mechanisms`` has the enabled ones of ``settings`` by name."""
        self._settings = settings
        self._mechanisms = mechanisms
        self._is_encrypted = is_encrypted
        self._table = SessionTable(limits or SessionLimits())
        self._logins = Logins(max_logins)
        self._log = LogLimit(logger, time.monotonic)
        self.succeeded = 0
        """The number of successful logins."""
        self.failed = 0
        """The number of failed ones."""

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve logins."""
        Service(SERVICE, {AUTHENTICATE: RequestStream(self._authenticate)}).add_to(server)

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

    async def _authenticate(self, read: Read, caller: Caller) -> AsyncGenerator[Message, None]:
        host, attempt = caller.host, _Attempt()
        login = Login(host, attempt.abort)
        if not self._logins.begin(login):
            # Servers try again after this error, as after a server that is not up.
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "too many logins are in progress, most of them from this host")
        try:
            first = await self._receive(attempt, read)
            server = self._server(first.mechanism, host)
            request = first
            for _ in range(_MAX_TOKENS):
                step = await attempt.wait(_evaluate(server, request.auth_bytes))
                if isinstance(step, Authenticated):
                    yield RESPONSES.to_message(self._succeed(first, step, host))
                    return
                yield RESPONSES.to_message(AuthenticateResponse(step.token))
                request = await self._receive(attempt, read)
            raise AuthenticationFailed(f"the exchange has more than {_MAX_TOKENS} tokens")
        except AuthenticationFailed as failure:
            raise await self._fail(first.mechanism, host, failure) from None
        finally:
            self._logins.end(login)

    async def _receive(self, attempt: _Attempt, read: Read) -> AuthenticateRequest:
        """Return the client's next token.

        Raises:
            TidelogError: INVALID_REQUEST or REQUEST_TIMED_OUT.
        """
        raw = await attempt.wait(read())
        if not isinstance(raw, bytes):
            raise error_for(ErrorCode.INVALID_REQUEST, "the login ended before the mechanism's last token")
        limit = max(each.settings.sasl_server_max_receive_size for each in self._settings.mechanisms.values())
        if len(raw) > limit:
            text = f"a request of {len(raw)} bytes is above the {limit} of sasl.server.max.receive.size"
            raise error_for(ErrorCode.INVALID_REQUEST, text)
        return REQUESTS.from_message(await parse(REQUESTS.message_type, raw))

    def _server(self, mechanism: str, host: str) -> SaslServer:
        found = self._mechanisms.get(mechanism)
        if found is None:
            self._count_failure(host, f'the mechanism "{mechanism[:64]}" is not enabled')
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
        self.succeeded += 1
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

    async def _fail(self, mechanism: str, host: str, failure: AuthenticationFailed) -> TidelogError:
        """Count and log a failed login, and return the client's error after the delay."""
        self._count_failure(host, f"{mechanism}: {failure.reason}")
        settings = self._settings.mechanisms[mechanism].settings
        await asyncio.sleep(settings.connection_failed_authentication_delay_ms / 1000)
        text = failure.public or f"{_GENERAL} {mechanism}"
        return error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, text)

    def _count_failure(self, host: str, reason: str) -> None:
        self.failed += 1
        text = "A login from %s at listener %s failed, %d since the start: %s"
        self._log.warning(text, host, self._settings.listener, self.failed, reason)


class _Attempt:
    """The deadline of one login."""

    def __init__(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + LOGIN_TIMEOUT_S
        self._timeout: asyncio.Timeout | None = None

    def abort(self) -> None:
        """End the login now, because others need its place."""
        self._deadline = 0.0
        if self._timeout is not None:
            self._timeout.reschedule(0)

    async def wait(self, work: Awaitable[T]) -> T:
        """Return the result of ``work``.

        Raises:
            TidelogError: REQUEST_TIMED_OUT.
        """
        try:
            async with asyncio.timeout_at(self._deadline) as self._timeout:
                return await work
        except TimeoutError:
            text = f"the login did not end within {LOGIN_TIMEOUT_S:g} s, or made room for those of other hosts"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from None
        finally:
            self._timeout = None


async def _evaluate(server: SaslServer, token: bytes) -> Authenticated | Challenge:
    step = server.evaluate(token, _wall_clock_ms())
    return await asyncio.to_thread(step.work) if isinstance(step, Deferred) else step


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _monotonic_ms() -> float:
    return time.monotonic() * 1000


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
