"""The mechanism OAUTHBEARER (RFC 7628): a bearer token of OAuth 2, with Kafka's extensions (KIP-342).

The client's only message is ``n,[a=<authorization id>],`` and the pairs ``auth=Bearer <token>`` and
``<extension>=<value>``, each between bytes 0x01. The server refuses a token with a JSON object, which the client
confirms with a byte 0x01; then the exchange fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Protocol

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.oauth.token import BearerToken, TokenRefused
from tidelog_foundation.sasl.mechanism import (
    OAUTHBEARER,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    SaslContext,
)
from tidelog_foundation.security.principal import USER, Principal

_SEPARATOR: Final = "\x01"
_CONFIRMATION: Final = b"\x01"
_AUTH: Final = "auth"
_HEADER: Final = re.compile(r"n,(?:a=(?P<identity>(?:[^=,\x00\x01\x80-\U0010ffff]|=2C|=3D)+))?,")
_CREDENTIAL: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_MALFORMED: Final = "malformed client message"


class TokenValidator(Protocol):
    """The decision whether a token is valid."""

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """Return the claims of a token.

        Raises:
            TokenRefused: The token is not valid.
        """


class OAuthBearerMechanism:
    """The server's side: accepts the tokens that a validator finds valid. Extensions are read and not used."""

    name: Final = OAUTHBEARER

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator

    def server(self, context: SaslContext) -> OAuthBearerServer:
        """Begin an exchange."""
        return OAuthBearerServer(self._validator)


class OAuthBearerServer:
    """The server's side of one exchange."""

    __slots__ = ("_refusal", "_validator")

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: AuthenticationFailed | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | Authenticated:
        """Return the principal of a valid token, or the JSON object that refuses another.

        Raises:
            AuthenticationFailed: The message is malformed, or the token has been refused before.
        """
        if self._refusal is not None:
            raise self._refusal
        identity, value = _credential(token)
        try:
            claims = self._validator.validate(value, now_ms)
        except TokenRefused as error:
            return self._refuse(error)
        if identity not in ("", claims.principal_name):
            text = (
                f"Authentication failed: Client requested an authorization id ({identity}) that is different from the "
                f"token's principal name ({claims.principal_name})"
            )
            raise AuthenticationFailed("the authorization id is not the token's principal", text)
        return Authenticated(Principal(USER, claims.principal_name), expires_at_ms=claims.expires_at_ms)

    def _refuse(self, error: TokenRefused) -> Challenge:
        scope = {} if error.scope is None else {"scope": error.scope}
        answer = json.dumps({"status": error.status, **scope}, separators=(", ", ":"))
        self._refusal = AuthenticationFailed(error.reason, answer)
        return Challenge(answer.encode(), error.reason)


@dataclass(frozen=True, slots=True)
class ClientToken:
    """A token that a client presents, with its extensions, which are pairs of names and values (KIP-342).

    The value is secret.
    """

    value: str = field(repr=False)
    expires_at_ms: int
    extensions: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    """The authorization id; empty for the token's own principal."""

    def __post_init__(self) -> None:
        if not _CREDENTIAL.fullmatch(f"Bearer {self.value}"):
            raise ConfigError("the token has characters that RFC 6750 does not permit, or is empty")
        for name, value in self.extensions.items():
            if name == _AUTH or not _NAME.fullmatch(name):
                raise ConfigError(f'invalid name "{name}" of a SASL extension: must be letters, and not "auth"')
            if not _VALUE.fullmatch(value):
                raise ConfigError(f'invalid value of the SASL extension "{name}": must be printable ASCII, not empty')


@dataclass(frozen=True, slots=True)
class OAuthBearerLogin:
    """A client's source of tokens. ``token`` returns a token that has not expired; it may block."""

    token: Callable[[], ClientToken]

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        return OAUTHBEARER

    def client(self, host: str) -> OAuthBearerClient:
        """Begin an exchange with the current token. This may block while a new token is fetched."""
        return OAuthBearerClient(self.token())


class OAuthBearerClient:
    """The client's side of one exchange."""

    __slots__ = ("_refusal", "_token", "is_complete")

    def __init__(self, token: ClientToken) -> None:
        self._token = token
        self._refusal: str | None = None
        self.is_complete = False
        """True once the server has accepted the token; OAUTHBEARER does not verify the server."""

    def first(self) -> bytes:
        """Return the message with the token."""
        token = self._token
        pairs = (f"{_AUTH}=Bearer {token.value}", *(f"{name}={value}" for name, value in token.extensions.items()))
        identity = token.identity.replace("=", "=3D").replace(",", "=2C")
        header = f"n,{f'a={identity}' if identity else ''},"
        return _SEPARATOR.join((header, *pairs, "", "")).encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Accept the server's empty answer, or confirm its refusal.

        Raises:
            AuthenticationFailed: The server has refused the token and continues the exchange.
        """
        if self._refusal is not None:
            raise AuthenticationFailed(f"the server refuses the token: {self._refusal}")
        if challenge:
            self._refusal = challenge[:256].decode(errors="replace")
            return _CONFIRMATION
        self.is_complete = True
        return None


def _credential(message: bytes) -> tuple[str, str]:
    """Return the authorization id, which may be empty, and the token of a client's message."""
    try:
        header, *pairs = message.decode().split(_SEPARATOR)
    except UnicodeDecodeError:
        raise AuthenticationFailed(f"{_MALFORMED}: not UTF-8") from None
    found = _HEADER.fullmatch(header)
    if found is None or pairs[-2:] != ["", ""]:
        raise AuthenticationFailed(f"{_MALFORMED}: not framed as in RFC 7628")
    values = _values(pairs[:-2])
    credential = _CREDENTIAL.fullmatch(values.get(_AUTH, ""))
    if credential is None or credential["scheme"].lower() != "bearer":
        raise AuthenticationFailed(f"{_MALFORMED}: no bearer token")
    identity = (found["identity"] or "").replace("=2C", ",").replace("=3D", "=")
    return identity, credential["token"]


def _values(pairs: list[str]) -> dict[str, str]:
    values = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise AuthenticationFailed(f"{_MALFORMED}: an invalid pair")
        values[name] = value
    return values
