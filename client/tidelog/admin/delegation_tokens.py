"""Delegation tokens (KIP-48, KIP-373), with the names of Java's Admin; confluent-kafka has none."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.admin.operations import Future, Operations
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import common_pb2 as common_pb
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.principal import Principal


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """A token without its secret. Principals are written as ``User:alice``; times are in milliseconds since 1970."""

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token and its HMAC, which is secret.

    A client logs in with SCRAM and the extension ``tokenauth=true``: the token's id is the user's name, and
    :meth:`hmac_as_base64_string` the password.
    """

    token_info: TokenInformation
    hmac: bytes = field(repr=False)

    def hmac_as_base64_string(self) -> str:
        """Return the HMAC as the password of SCRAM."""
        return base64.b64encode(self.hmac).decode()


class DelegationTokenAdmin(Operations):
    """Operations on delegation tokens."""

    def create_delegation_token(
        self,
        renewers: Sequence[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = -1,
        request_timeout: float | None = None,
    ) -> Future[DelegationToken]:
        """Create a token of the caller, or of another ``owner``. Principals are written as ``User:alice``.

        The future fails with KafkaException: DELEGATION_TOKEN_AUTH_DISABLED; DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a
        caller that is anonymous or has logged in with a token; DELEGATION_TOKEN_AUTHORIZATION_FAILED for another owner;
        INVALID_PRINCIPAL_TYPE.

        Raises:
            ValueError: A principal is not written as ``User:alice``.
        """
        request = pb.CreateDelegationTokenRequest(
            renewers=list(map(_principal, renewers)),
            max_lifetime_ms=max_lifetime_ms,
            owner=None if owner is None else _principal(owner),
        )

        async def create() -> DelegationToken:
            response = await self._change(
                lambda c, t: c.admin.CreateDelegationToken(request, timeout=t), request_timeout
            )
            return _token(response.token)

        return self._future(create())

    def renew_delegation_token(
        self, hmac: bytes, *, renew_time_period_ms: int = -1, request_timeout: float | None = None
    ) -> Future[int]:
        """Let a token expire later, and return the new time of expiry.

        The future fails with KafkaException: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, or
        DELEGATION_TOKEN_OWNER_MISMATCH for a caller that is neither the owner nor a renewer.
        """
        request = pb.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_time_period_ms)

        async def renew() -> int:
            response = await self._change(
                lambda c, t: c.admin.RenewDelegationToken(request, timeout=t), request_timeout
            )
            return response.expiry_timestamp_ms

        return self._future(renew())

    def expire_delegation_token(
        self, hmac: bytes, *, expiry_time_period_ms: int = -1, request_timeout: float | None = None
    ) -> Future[int]:
        """Let a token expire after a time, or remove it now with a negative one; return the time of expiry.

        The future fails as that of :meth:`renew_delegation_token`.
        """
        request = pb.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_time_period_ms)

        async def expire() -> int:
            response = await self._change(
                lambda c, t: c.admin.ExpireDelegationToken(request, timeout=t), request_timeout
            )
            return response.expiry_timestamp_ms

        return self._future(expire())

    def describe_delegation_token(
        self, owners: Sequence[str] | None = None, *, request_timeout: float | None = None
    ) -> Future[list[DelegationToken]]:
        """Return the tokens of the owners that the caller may see, or of all owners.

        The future fails with KafkaException: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

        Raises:
            ValueError: A principal is not written as ``User:alice``.
        """
        request = pb.DescribeDelegationTokenRequest(
            owners=list(map(_principal, owners or ())), all_owners=owners is None
        )

        async def describe() -> list[DelegationToken]:
            response = await self._ask(
                lambda c, t: c.admin.DescribeDelegationToken(request, timeout=t), request_timeout
            )
            return list(map(_token, response.tokens))

        return self._future(describe())


def _principal(text: str) -> common_pb.Principal:
    try:
        principal = Principal.parse(text)
    except ConfigError as error:
        raise ValueError(error.message) from error
    return common_pb.Principal(kind=principal.kind, name=principal.name)


def _text(principal: common_pb.Principal) -> str:
    return f"{principal.kind}:{principal.name}"


def _token(issued: pb.IssuedToken) -> DelegationToken:
    token = issued.token
    info = TokenInformation(
        token.token_id,
        _text(token.owner),
        _text(token.requester),
        tuple(map(_text, token.renewers)),
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
    )
    return DelegationToken(info, issued.hmac)
