"""The mechanism GSSAPI (RFC 4752) for Kerberos, without a security layer: TLS protects the connection.

The library is given as a security context per exchange; :mod:`tidelog_foundation.kerberos.library` has that of
python-gssapi. Its calls may block, on a replay cache or a key distribution center: each step of a server is deferred to
a thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.kerberos.local_names import LocalNames, NoLocalName
from tidelog_foundation.sasl.mechanism import (
    GSSAPI,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Deferred,
    SaslContext,
)
from tidelog_foundation.security.principal import USER, Principal

_NO_LAYER: Final = 1
_LAYERS: Final = struct.Struct(">I")
_MAX_TOKEN_BYTES: Final = 65_536
_MAX_STEPS: Final = 8


class SecurityContext(Protocol):
    """One security context of GSS-API. The methods may block; they raise GssError."""

    @property
    def complete(self) -> bool:
        """True once both sides have authenticated."""

    @property
    def initiator(self) -> str:
        """The client's principal, once complete."""

    def step(self, token: bytes | None) -> bytes | None:
        """Return the token for the other side, if there is one."""

    def wrap(self, message: bytes) -> bytes:
        """Return a protected message, which is not encrypted."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a protected message."""


class GssError(Exception):
    """An error of the library, with its text."""


@dataclass(frozen=True, slots=True)
class GssapiMechanism:
    """The server's side. ``accept`` begins a security context with the server's key table."""

    accept: Callable[[], SecurityContext]
    names: LocalNames

    @property
    def name(self) -> str:
        """Its registered name."""
        return GSSAPI

    def server(self, context: SaslContext) -> GssapiServer:
        """Begin an exchange."""
        return GssapiServer(self.accept, self.names)


class GssapiServer:
    """The server's side of one exchange: the tokens of GSS-API, then the offer of no security layer and its choice."""

    def __init__(self, accept: Callable[[], SecurityContext], names: LocalNames) -> None:
        self._accept = accept
        self._names = names
        self._context: SecurityContext | None = None
        self._is_offered = False
        self._steps = 0

    def evaluate(self, token: bytes, now_ms: int) -> Deferred:
        """Return the work of the next step.

        Raises:
            AuthenticationFailed: The token is too large, or the exchange has too many steps.
        """
        self._steps += 1
        if self._steps > _MAX_STEPS or len(token) > _MAX_TOKEN_BYTES:
            raise AuthenticationFailed(f"token {self._steps} of the exchange has {len(token)} bytes")
        return Deferred(partial(self._step, token))

    def _step(self, token: bytes) -> Challenge | Authenticated:
        try:
            if self._context is None:
                self._context = self._accept()
            if self._is_offered:
                return self._finish(self._context, token)
            return self._continue(self._context, token)
        except GssError as error:
            raise AuthenticationFailed(f"GSSAPI: {error}") from error

    def _continue(self, context: SecurityContext, token: bytes) -> Challenge:
        if not context.complete:
            answer = context.step(token)
            if answer or not context.complete:
                return Challenge(answer or b"")
        elif token:
            raise AuthenticationFailed("the client continues a complete context")
        self._is_offered = True
        return Challenge(context.wrap(_LAYERS.pack(_NO_LAYER << 24)))

    def _finish(self, context: SecurityContext, token: bytes) -> Authenticated:
        choice = context.unwrap(token)
        if len(choice) < _LAYERS.size:
            raise AuthenticationFailed(f"the choice of a security layer has {len(choice)} bytes")
        [layer] = _LAYERS.unpack_from(choice)
        if layer >> 24 != _NO_LAYER:
            raise AuthenticationFailed(f"the client chooses security layer {layer >> 24}, only {_NO_LAYER} is offered")
        principal = context.initiator
        identity = choice[_LAYERS.size :].decode(errors="replace")
        if identity not in ("", principal):
            raise AuthenticationFailed("the authorization id is not the client's principal")
        try:
            return Authenticated(Principal(USER, self._names.of(principal)))
        except NoLocalName as error:
            raise AuthenticationFailed(str(error)) from error


@dataclass(frozen=True, slots=True)
class GssapiLogin:
    """A client's credentials. ``initiate`` begins a security context with a server's host; it may block."""

    initiate: Callable[[str], SecurityContext]

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        return GSSAPI

    def client(self, host: str) -> GssapiClient:
        """Begin an exchange, which may block while tickets are requested.

        Raises:
            TidelogError: SASL_AUTHENTICATION_FAILED, there is no ticket for the server.
        """
        try:
            context = self.initiate(host)
            return GssapiClient(context, context.step(None) or b"")
        except GssError as error:
            raise error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, f"GSSAPI: {error}") from error


class GssapiClient:
    """The client's side of one exchange."""

    def __init__(self, context: SecurityContext, first: bytes) -> None:
        self._context = context
        self._first = first
        self._has_chosen = False
        self.is_complete = False
        """True once the server has authenticated itself and has accepted the choice of no security layer."""

    def first(self) -> bytes:
        """Return the first token."""
        return self._first

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the next token, or None at the end.

        Raises:
            AuthenticationFailed: The server's token is wrong, or it requires a security layer.
        """
        try:
            return self._evaluate(challenge)
        except GssError as error:
            raise AuthenticationFailed(f"GSSAPI: {error}") from error

    def _evaluate(self, challenge: bytes) -> bytes | None:
        if self._has_chosen:
            self.is_complete = True
            return None
        if not self._context.complete:
            return self._context.step(challenge) or b""
        offer = self._context.unwrap(challenge)
        if len(offer) != _LAYERS.size or not offer[0] & _NO_LAYER:
            raise AuthenticationFailed("the server requires a security layer, use TLS instead")
        self._has_chosen = True
        return self._context.wrap(_LAYERS.pack(_NO_LAYER << 24))
