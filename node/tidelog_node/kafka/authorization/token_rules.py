"""The rules of APIs about delegation tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.security import USER, Principal
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.kafka.authorization.rule import Asked, Rule, is_open
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import delegation_tokens as wire

_NO_TIME: Final = -1


async def _create(
    access: Access,
    request: wire.CreateDelegationTokenRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[wire.CreateDelegationTokenResponse]],
) -> wire.CreateDelegationTokenResponse:
    requester = access.principal
    if not request.owner_principal_name:
        return await handle(request)
    owner = Principal(request.owner_principal_type or USER, request.owner_principal_name)
    if access.may_create_token_for(owner):
        return await handle(request)
    return wire.CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED.code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


async def _describe(
    access: Access,
    request: wire.DescribeDelegationTokenRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[wire.DescribeDelegationTokenResponse]],
) -> wire.DescribeDelegationTokenResponse:
    """Tokens that the caller may not see are left out."""
    response = await handle(request)
    response.tokens = [token async for token in TimeSlices().of(response.tokens) if _is_shown(access, token)]
    return response


def _is_shown(access: Access, token: wire.DescribedDelegationToken) -> bool:
    requester = Principal(token.token_requester_principal_type, token.token_requester_principal_name)
    renewers = (Principal(each.principal_type, each.principal_name) for each in token.renewers)
    owner = Principal(token.principal_type, token.principal_name)
    return access.may_see_token(token.token_id, owner, (requester, *renewers))


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: _create,
    # The controller decides: owners and renewers may renew and expire a token.
    ApiKey.RENEW_DELEGATION_TOKEN: is_open,
    ApiKey.EXPIRE_DELEGATION_TOKEN: is_open,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe,
}
