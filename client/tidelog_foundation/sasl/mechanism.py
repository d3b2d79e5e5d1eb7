"""The interface between SASL mechanisms (RFC 4422) and the protocols that carry their tokens.

A mechanism decides; it has no I/O and no clock. A server's exchange is a sequence of :meth:`SaslServer.evaluate` calls,
one per token of the client. Work that may block, such as a request for signing keys or a call of a Kerberos library, is
returned as a :class:`Deferred` step, which the caller runs in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Final, Protocol, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.security.principal import Principal

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)
"""The mechanisms of Kafka."""


class AuthenticationFailed(Exception):
    """A failed exchange. ``reason`` is for the server's log and contains no secret; the peer never sees it.

    ``public`` is a text for the peer, in place of the general one. It must not distinguish an unknown user from a wrong
    password.
    """

    def __init__(self, reason: str, public: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.public = public


@dataclass(frozen=True, slots=True)
class Challenge:
    """A token for the client, whose next token is expected.

    ``refusal`` is a reason for the log: the token tells the client that it is refused, which it has to confirm. Not all
    clients do.
    """

    token: bytes = field(repr=False)
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The end of a successful exchange.

    ``response`` is the last token for the client, None if the mechanism has none. The credential expires at
    ``expires_at_ms``, in milliseconds since 1970. ``is_token`` is true for a delegation token.
    """

    principal: Principal
    response: bytes | None = field(default=b"", repr=False)
    expires_at_ms: int | None = None
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """A step that may block. The caller runs ``work`` outside of its event loop, at most once.

    ``work`` returns the step's outcome or raises AuthenticationFailed. The exchange's next token is evaluated after it.
    """

    work: Callable[[], Challenge | Authenticated]


Step: TypeAlias = Challenge | Authenticated | Deferred


@dataclass(frozen=True, slots=True)
class SaslContext:
    """The connection of an exchange. ``host`` is the client's address, ``listener`` the listener's name."""

    listener: str
    host: str
    is_encrypted: bool


class SaslServer(Protocol):
    """The server's side of one exchange. It is discarded after Authenticated or AuthenticationFailed."""

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        """Return the answer to the client's next token. ``now_ms`` is the time in milliseconds since 1970.

        Raises:
            AuthenticationFailed: The token is malformed or the credentials are invalid. No other exception is raised,
                whatever the token.
        """


class SaslMechanism(Protocol):
    """A mechanism of a listener, with the credentials that it accepts."""

    @property
    def name(self) -> str:
        """Its registered name, such as PLAIN."""

    def server(self, context: SaslContext) -> SaslServer:
        """Begin an exchange."""


class SaslClient(Protocol):
    """The client's side of one exchange."""

    @property
    def is_complete(self) -> bool:
        """True if the client needs nothing more of the server, whose identity it has verified if the mechanism can.

        The server's success counts only if this is true.
        """

    def first(self) -> bytes:
        """Return the first token, which may be empty."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the next token, or None if nothing remains to be sent.

        Raises:
            AuthenticationFailed: The server's token is malformed, reports an error, or does not prove its identity.
        """


class SaslLogin(Protocol):
    """The credentials of a client, for any number of exchanges."""

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""

    def client(self, host: str) -> SaslClient:
        """Begin an exchange with the server ``host``. This may block: call it outside of event loops if it does I/O."""
