"""Delegation tokens (KIP-48): this node describes those of its image, and the leading controller changes them.

As in Kafka, a caller that is anonymous, or has logged in with a token itself, may neither create nor use them here.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests import delegation_tokens as requests
from tidelog_foundation.requests.delegation_tokens import TokenOperation
from tidelog_foundation.sasl.token_hmacs import token_hmac
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, forward_change
from tidelog_quorum.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TokenCaller:
    """The caller of a request for tokens. ``has_token`` is true if it has logged in with a token."""

    principal: Principal
    has_token: bool = False

    def check_allowed(self) -> None:
        """Return if the caller may send requests for tokens.

        Raises:
            TidelogError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
        """
        if self.has_token or self.principal == ANONYMOUS:
            raise error_for(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


async def create_delegation_token(
    context: NodeContext, request: requests.CreateDelegationTokenRequest, caller: TokenCaller
) -> requests.CreateDelegationTokenResponse:
    """Create a token, and wait until this node's image has it.

    Raises:
        TidelogError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, or an error of the leading controller.
    """
    caller.check_allowed()
    secret_key = _secret_key(context)
    change = requests.AlterDelegationTokenRequest(
        TokenOperation.CREATE,
        caller.principal,
        request.max_lifetime_ms,
        caller.principal if request.owner is None else request.owner,
        request.renewers,
    )
    token = (await _change(context, change)).token
    hmac = token_hmac(secret_key, token.token_id)
    return requests.CreateDelegationTokenResponse(requests.IssuedToken(token, hmac))


async def renew_delegation_token(
    context: NodeContext, request: requests.RenewDelegationTokenRequest, caller: TokenCaller
) -> requests.RenewDelegationTokenResponse:
    """Let a token expire later, and wait until this node's image has the change.

    Raises:
        TidelogError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, or an error of the leading controller.
    """
    caller.check_allowed()
    change = requests.AlterDelegationTokenRequest(
        TokenOperation.RENEW, caller.principal, request.renew_period_ms, hmac=request.hmac
    )
    return requests.RenewDelegationTokenResponse((await _change(context, change)).expiry_timestamp_ms)


async def expire_delegation_token(
    context: NodeContext, request: requests.ExpireDelegationTokenRequest, caller: TokenCaller
) -> requests.ExpireDelegationTokenResponse:
    """Let a token expire, and wait until this node's image has the change.

    Raises:
        TidelogError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, or an error of the leading controller.
    """
    caller.check_allowed()
    change = requests.AlterDelegationTokenRequest(
        TokenOperation.EXPIRE, caller.principal, request.expiry_time_period_ms, hmac=request.hmac
    )
    return requests.ExpireDelegationTokenResponse((await _change(context, change)).expiry_timestamp_ms)


async def describe_delegation_token(
    context: NodeContext, request: requests.DescribeDelegationTokenRequest, caller: TokenCaller
) -> requests.DescribeDelegationTokenResponse:
    """Return the tokens that belong to any of the owners: as owner, requester or renewer.

    An authorizer leaves out those that the caller may not see.

    Raises:
        TidelogError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
    """
    caller.check_allowed()
    secret_key = _secret_key(context)
    owners, slices = frozenset(request.owners), TimeSlices()
    found = [
        requests.IssuedToken(token, token_hmac(secret_key, token.token_id))
        async for token in slices.of(context.metadata.image.delegation_tokens.values())
        if request.all_owners or not owners.isdisjoint((token.owner, token.requester, *token.renewers))
    ]
    return requests.DescribeDelegationTokenResponse(tuple(found))


async def _change(
    context: NodeContext, change: requests.AlterDelegationTokenRequest
) -> requests.AlterDelegationTokenResponse:
    response, remaining_s = await forward_change(context, change)
    token, is_removed = response.token, change.operation is TokenOperation.EXPIRE and change.period_ms < 0

    def is_applied(image: MetadataImage) -> bool:
        current = image.delegation_tokens.get(token.token_id)
        return current is None if is_removed else current == token

    await context.metadata.wait_until(is_applied, remaining_s)
    return response


def _secret_key(context: NodeContext) -> str:
    if context.token_key is None:
        raise error_for(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return context.token_key
