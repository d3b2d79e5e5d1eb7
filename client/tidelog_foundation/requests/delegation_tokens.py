"""Delegation tokens (KIP-48, KIP-373): shared secrets with which a client acts as the token's owner for a limited time.

A token's HMAC is its password. It is computed from the token's id by the secret key of the cluster, and is not stored.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.request import Request
from tidelog_foundation.security.principal import ANONYMOUS, Principal
from tidelog_foundation.transport.message_codec import NOT_IN_MESSAGE


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Times are in milliseconds since 1970; the token is never valid after ``max_timestamp_ms``."""

    token_id: str
    owner: Principal
    requester: Principal
    """The principal that created the token, for itself or for another owner."""
    renewers: tuple[Principal, ...]
    """The principals that may renew and expire the token, besides its owner."""
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    def is_of(self, principal: Principal) -> bool:
        """Return whether a principal may always see the token: its owner, requester or one of its renewers."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Return whether a principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token and its HMAC, which is secret."""

    token: DelegationToken
    hmac: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CreateDelegationTokenResponse:
    """The new token."""

    token: IssuedToken


@dataclass(frozen=True, slots=True)
class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    """A request for a token of the caller, or of another ``owner`` (KIP-373).

    ``max_lifetime_ms`` is at most ``delegation.token.max.lifetime.ms``, which is the default.
    """

    renewers: tuple[Principal, ...] = ()
    max_lifetime_ms: int = -1
    owner: Principal | None = None


@dataclass(frozen=True, slots=True)
class RenewDelegationTokenResponse:
    """The new time of expiry."""

    expiry_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    """A request to let a token expire later: after ``renew_period_ms``, or the default if that is not positive."""

    hmac: bytes = field(repr=False)
    renew_period_ms: int = -1


@dataclass(frozen=True, slots=True)
class ExpireDelegationTokenResponse:
    """The new time of expiry, which is now if the token is removed."""

    expiry_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ExpireDelegationTokenRequest(Request[ExpireDelegationTokenResponse]):
    """A request to let a token expire after a time; at once, if ``expiry_time_period_ms`` is negative."""

    hmac: bytes = field(repr=False)
    expiry_time_period_ms: int = -1


@dataclass(frozen=True, slots=True)
class DescribeDelegationTokenResponse:
    """The tokens that the caller may see."""

    tokens: tuple[IssuedToken, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    """A request for the tokens of any of the owners; with ``all_owners``, for those of all."""

    owners: tuple[Principal, ...] = ()
    all_owners: bool = False


class TokenOperation(IntEnum):
    """A change of a token."""

    UNKNOWN = 0
    CREATE = 1
    RENEW = 2
    EXPIRE = 3

    @classmethod
    def _missing_(cls, value: object) -> TokenOperation:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class AlterDelegationTokenResponse:
    """The changed token, or the removed one, whose ``expiry_timestamp_ms`` is now."""

    token: DelegationToken
    expiry_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AlterDelegationTokenRequest(Request[AlterDelegationTokenResponse]):
    """A node's request to change a token for a ``requester`` whom it has authenticated and authorized.

    CREATE uses ``owner`` and ``renewers``, the others use ``hmac``. ``period_ms`` is the lifetime or period of the
    client's request. ``time_ms`` is the controller's time in milliseconds since 1970.
    """

    operation: TokenOperation
    requester: Principal = ANONYMOUS
    period_ms: int = -1
    owner: Principal = ANONYMOUS
    renewers: tuple[Principal, ...] = ()
    hmac: bytes = field(default=b"", repr=False)
    time_ms: int = field(default=0, metadata=NOT_IN_MESSAGE)


@dataclass(frozen=True, slots=True)
class RemoveExpiredTokens(Request[int]):
    """A controller's own request to remove the tokens that have expired at ``time_ms``, milliseconds since 1970.

    The answer is the number of removed tokens.
    """

    time_ms: int
