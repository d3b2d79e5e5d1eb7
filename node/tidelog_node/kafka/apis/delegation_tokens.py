"""Delegation tokens: DescribeDelegationToken is answered by this node, the others by the leading controller."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests import delegation_tokens as requests
from tidelog_foundation.security import Principal
from tidelog_foundation.security.principal import USER
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers import delegation_tokens as handlers
from tidelog_node.handlers.delegation_tokens import TokenCaller
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages import delegation_tokens as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_NO_TIME = -1
_REFUSED_BY_NODES = (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.INVALID_PRINCIPAL_TYPE)
"""The errors of a creation that Kafka's nodes find; their responses have other times than those of controllers."""


async def create_delegation_token(
    node: KafkaNode, request: wire.CreateDelegationTokenRequest, caller: Caller
) -> wire.CreateDelegationTokenResponse:
    """Create a token of the caller or of another owner."""
    requester = caller.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or USER, request.owner_principal_name)
    response = wire.CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
    )
    renewers = [_principal(each) async for each in TimeSlices().of(request.renewers)]
    wanted = requests.CreateDelegationTokenRequest(tuple(renewers), request.max_lifetime_ms, owner)
    try:
        created = await handlers.create_delegation_token(node.context, wanted, _caller(caller))
    except TidelogError as error:
        response.error_code = code_of(error)
        if error.code in _REFUSED_BY_NODES:
            response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = _NO_TIME
        return response
    token = created.token.token
    response.issue_timestamp_ms = token.issue_timestamp_ms
    response.expiry_timestamp_ms = token.expiry_timestamp_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    response.token_id, response.hmac = token.token_id, created.token.hmac
    return response


async def renew_delegation_token(
    node: KafkaNode, request: wire.RenewDelegationTokenRequest, caller: Caller
) -> wire.RenewDelegationTokenResponse:
    """Let a token expire later."""
    wanted = requests.RenewDelegationTokenRequest(bytes(request.hmac), request.renew_period_ms)
    try:
        renewed = await handlers.renew_delegation_token(node.context, wanted, _caller(caller))
    except TidelogError as error:
        return wire.RenewDelegationTokenResponse(code_of(error), _time_of(error))
    return wire.RenewDelegationTokenResponse(expiry_timestamp_ms=renewed.expiry_timestamp_ms)


async def expire_delegation_token(
    node: KafkaNode, request: wire.ExpireDelegationTokenRequest, caller: Caller
) -> wire.ExpireDelegationTokenResponse:
    """Let a token expire at once or later."""
    wanted = requests.ExpireDelegationTokenRequest(bytes(request.hmac), request.expiry_time_period_ms)
    try:
        expired = await handlers.expire_delegation_token(node.context, wanted, _caller(caller))
    except TidelogError as error:
        return wire.ExpireDelegationTokenResponse(code_of(error), _time_of(error))
    return wire.ExpireDelegationTokenResponse(expiry_timestamp_ms=expired.expiry_timestamp_ms)


async def describe_delegation_token(
    node: KafkaNode, request: wire.DescribeDelegationTokenRequest, caller: Caller
) -> wire.DescribeDelegationTokenResponse:
    """Describe the tokens of owners."""
    slices = TimeSlices()
    owners = [_principal(owner) async for owner in slices.of(request.owners or ())]
    wanted = requests.DescribeDelegationTokenRequest(tuple(owners), request.owners is None)
    try:
        found = await handlers.describe_delegation_token(node.context, wanted, _caller(caller))
    except TidelogError as error:
        return wire.DescribeDelegationTokenResponse(code_of(error))
    return wire.DescribeDelegationTokenResponse(tokens=[_described(each) async for each in slices.of(found.tokens)])


def _described(issued: requests.IssuedToken) -> wire.DescribedDelegationToken:
    token = issued.token
    return wire.DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=issued.hmac,
        renewers=[wire.PrincipalData(renewer.kind, renewer.name) for renewer in token.renewers],
    )


def _time_of(error: TidelogError) -> int:
    """Return the time of expiry in a response with an error: Kafka's nodes write another one than its controllers."""
    return _NO_TIME if error.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def _caller(caller: Caller) -> TokenCaller:
    return TokenCaller(caller.principal, caller.has_token)


def _principal(each: wire.PrincipalData) -> Principal:
    return Principal(each.principal_type, each.principal_name)


APIS: tuple[Api, ...] = (
    MessageApi(wire.CreateDelegationTokenRequest, create_delegation_token),
    MessageApi(wire.RenewDelegationTokenRequest, renew_delegation_token),
    MessageApi(wire.ExpireDelegationTokenRequest, expire_delegation_token),
    MessageApi(wire.DescribeDelegationTokenRequest, describe_delegation_token),
)
