"""The mechanism PLAIN (RFC 4616): a name and a password in clear text, to be used over TLS."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.mechanism import PLAIN, Authenticated, AuthenticationFailed, SaslContext
from tidelog_foundation.security.principal import USER, Principal

_PARTS: Final = 3
_NO_PASSWORD: Final = bytes(sha256().digest_size)
"""A digest for unknown users. No password is known that has it."""
_PUBLIC: Final = "Authentication failed: Invalid username or password"
"""Kafka's text for an unknown user and a wrong password."""


class PlainMechanism:
    """The server's side, with the passwords of all users.

    Passwords are compared by their digests in constant time, with the same steps for users that do not exist.
    """

    name: Final = PLAIN

    def __init__(self, users: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password.encode()) for name, password in users.items()}

    def server(self, context: SaslContext) -> PlainServer:
        """Begin an exchange."""
        return PlainServer(self._digests)


class PlainServer:
    """The server's side of one exchange, of a single token."""

    __slots__ = ("_digests",)

    def __init__(self, digests: Mapping[str, bytes]) -> None:
        self._digests = digests

    def evaluate(self, token: bytes, now_ms: int) -> Authenticated:
        """Return the principal of the token ``[authorization id] NUL name NUL password``.

        Raises:
            AuthenticationFailed: The token is malformed, the password is wrong, or the client asks for another
                identity than its own.
        """
        identity, name, password = _parts(token)
        is_equal = hmac.compare_digest(_digest(password.encode()), self._digests.get(name, _NO_PASSWORD))
        if not is_equal:
            raise AuthenticationFailed("unknown user or wrong password", _PUBLIC)
        if identity not in ("", name):
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationFailed("the authorization id is not the user's name", text)
        return Authenticated(Principal(USER, name))


@dataclass(frozen=True, slots=True)
class PlainLogin:
    """The name and password of a client."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        for what, value in (("username", self.username), ("password", self.password)):
            if not value or "\0" in value:
                raise ConfigError(f"the {what} of the mechanism PLAIN must not be empty or contain a NUL character")

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        return PLAIN

    def client(self, host: str) -> PlainClient:
        """Begin an exchange."""
        return PlainClient(self)


class PlainClient:
    """The client's side of one exchange."""

    __slots__ = ("_login", "is_complete")

    def __init__(self, login: PlainLogin) -> None:
        self._login = login
        self.is_complete = False
        """True once the server has answered; PLAIN does not verify the server."""

    def first(self) -> bytes:
        """Return the only token."""
        return f"\0{self._login.username}\0{self._login.password}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Accept the server's answer, which is empty.

        Raises:
            AuthenticationFailed: The answer is not empty.
        """
        if challenge:
            raise AuthenticationFailed("the server has sent a challenge, which PLAIN does not have")
        self.is_complete = True
        return None


def _parts(token: bytes) -> tuple[str, str, str]:
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise AuthenticationFailed("the token is not UTF-8") from None
    if len(parts) != _PARTS:
        text = f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}"
        raise AuthenticationFailed(f"the token has {len(parts)} parts, not {_PARTS}", text)
    identity, name, password = parts
    if not name or not password:
        missing = "password" if name else "username"
        raise AuthenticationFailed(f"the token has no {missing}", f"Authentication failed: {missing} not specified")
    return identity, name, password


def _digest(password: bytes) -> bytes:
    return sha256(password).digest()
