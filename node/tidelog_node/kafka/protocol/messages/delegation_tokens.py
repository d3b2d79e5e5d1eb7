"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48, KIP-373)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, data, int16, int32, int64, string


class PrincipalData(Structure):
    """A principal: an owner or a renewer."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, api=ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3), flexible=2):
    """The token to create; without an owner, it is the caller's."""

    owner_principal_type: str | None = string(since=3, nullable=3)
    owner_principal_name: str | None = string(since=3, nullable=3)
    renewers: list[PrincipalData] = array(PrincipalData)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, answers=CreateDelegationTokenRequest):
    """The new token."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes | memoryview = data(is_secret=True)
    throttle_time_ms: int = int32()


class RenewDelegationTokenRequest(Message, api=ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible=2):
    """The token to renew."""

    hmac: bytes | memoryview = data(is_secret=True)
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, answers=RenewDelegationTokenRequest):
    """The new time of expiry."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


class ExpireDelegationTokenRequest(Message, api=ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), flexible=2):
    """The token to expire."""

    hmac: bytes | memoryview = data(is_secret=True)
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, answers=ExpireDelegationTokenRequest):
    """The new time of expiry."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


class DescribeDelegationTokenRequest(Message, api=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3), flexible=2):
    """The owners whose tokens to describe; null for all."""

    owners: list[PrincipalData] | None = array(PrincipalData, nullable=1)


class DescribedDelegationToken(Structure):
    """A token."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(since=3)
    token_requester_principal_name: str = string(since=3)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes | memoryview = data(is_secret=True)
    renewers: list[PrincipalData] = array(PrincipalData)


class DescribeDelegationTokenResponse(Message, answers=DescribeDelegationTokenRequest):
    """The tokens that the caller may see."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
