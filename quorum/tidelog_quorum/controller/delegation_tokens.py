"""Delegation tokens (KIP-48, KIP-900), as in Kafka's DelegationTokenControlManager.

Rules:

- a token is valid until its expiry, which renewals move up to the end of its lifetime;
- its owner and its renewers may renew and expire it; only a token that has not expired can be changed;
- the leader removes expired tokens periodically.

The node that forwards a request has authenticated and authorized the requester.
"""

from __future__ import annotations

import dataclasses
from typing import Final, assert_never

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import uuid_text
from tidelog_foundation.requests.delegation_tokens import (
    AlterDelegationTokenRequest,
    AlterDelegationTokenResponse,
    DelegationToken,
    RemoveExpiredTokens,
    TokenOperation,
)
from tidelog_foundation.security.principal import USER, Principal
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.features import METADATA_VERSION, SECURITY_VERSION
from tidelog_quorum.metadata.records import DelegationTokenRecord, MetadataRecord, RemoveDelegationTokenRecord

_MAX_TOKENS: Final = 10_000
"""The largest number of tokens in a cluster."""
_MAX_TOKENS_OF_REQUESTER: Final = 2_000
"""The largest number of tokens that one principal has created, so that none leaves no room for others."""
_MAX_RENEWERS: Final = 100
_MAX_NAME: Final = 1_024
_MAX_NAMES: Final = 10_240
"""The largest number of characters of all names of a token, whose records every server keeps in memory."""
_MAX_REMOVALS: Final = 1_000
"""The largest number of tokens that one entry removes."""
_Outcome = Result[AlterDelegationTokenResponse]


def alter_delegation_token(state: ControllerState, request: AlterDelegationTokenRequest, now_ms: int) -> _Outcome:
    """Create, renew or expire a token.

    Raises:
        TidelogError: DELEGATION_TOKEN_AUTH_DISABLED without a secret key; UNSUPPORTED_VERSION, the level of
            ``metadata.version`` has no tokens; for a new token INVALID_PRINCIPAL_TYPE or POLICY_VIOLATION; for a known
            one DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED or DELEGATION_TOKEN_OWNER_MISMATCH.
    """
    if state.config.delegation_token_secret_key is None:
        raise error_for(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if state.latest.feature_levels.get(METADATA_VERSION, 0) < SECURITY_VERSION:
        text = f"delegation tokens need {METADATA_VERSION} {SECURITY_VERSION}: upgrade the feature first"
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
    operation = TokenOperation(request.operation)
    match operation:
        case TokenOperation.CREATE:
            return _create(state, request)
        case TokenOperation.RENEW:
            return _renew(state, request)
        case TokenOperation.EXPIRE:
            return _expire(state, request)
        case TokenOperation.UNKNOWN:
            raise error_for(ErrorCode.INVALID_REQUEST, f"unknown operation {request.operation} on a delegation token")
        case _:
            assert_never(operation)


def remove_expired_tokens(state: ControllerState, request: RemoveExpiredTokens, now_ms: int) -> Result[int]:
    """Remove tokens that have expired, at most 1,000 at once."""
    tokens = state.latest.delegation_tokens.values()
    expired = [token.token_id for token in tokens if _is_expired(token, request.time_ms)][:_MAX_REMOVALS]
    return Result([RemoveDelegationTokenRecord(token_id) for token_id in expired], len(expired))


def _create(state: ControllerState, request: AlterDelegationTokenRequest) -> _Outcome:
    for renewer in request.renewers:
        if renewer.kind != USER:
            text = f"the renewer {renewer} is not of type {USER}"
            raise error_for(ErrorCode.INVALID_PRINCIPAL_TYPE, text)
    _check_limits(state, request.requester, (request.owner, *request.renewers))
    config, now_ms = state.config, request.time_ms
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if request.period_ms > 0:
        lifetime_ms = min(lifetime_ms, request.period_ms)
    max_timestamp_ms = now_ms + lifetime_ms
    token = DelegationToken(
        token_id=uuid_text(next(state.topic_ids)),
        owner=request.owner,
        requester=request.requester,
        renewers=tuple(request.renewers),
        issue_timestamp_ms=now_ms,
        expiry_timestamp_ms=min(max_timestamp_ms, now_ms + config.delegation_token_expiry_time_ms),
        max_timestamp_ms=max_timestamp_ms,
    )
    return _written(token)


def _renew(state: ControllerState, request: AlterDelegationTokenRequest) -> _Outcome:
    token = _find(state, request)
    period_ms = state.config.delegation_token_expiry_time_ms
    if request.period_ms > 0:
        period_ms = min(period_ms, request.period_ms)
    return _written(_expiring(token, request.time_ms + period_ms))


def _expire(state: ControllerState, request: AlterDelegationTokenRequest) -> _Outcome:
    token = _find(state, request)
    if request.period_ms < 0:
        records: list[MetadataRecord] = [RemoveDelegationTokenRecord(token.token_id)]
        return Result(records, AlterDelegationTokenResponse(token, request.time_ms))
    return _written(_expiring(token, request.time_ms + request.period_ms))


def _find(state: ControllerState, request: AlterDelegationTokenRequest) -> DelegationToken:
    assert state.token_hmacs is not None, "the secret key is checked first"
    token = state.token_hmacs.find(state.latest.delegation_tokens, request.hmac)
    if token is None:
        raise error_for(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if _is_expired(token, request.time_ms):
        raise error_for(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"delegation token {token.token_id} has expired")
    if not token.may_be_changed_by(request.requester):
        text = f"{request.requester} is neither the owner nor a renewer of delegation token {token.token_id}"
        raise error_for(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, text)
    return token


def _check_limits(state: ControllerState, requester: Principal, principals: tuple[Principal, ...]) -> None:
    tokens = state.latest.delegation_tokens
    if len(tokens) >= _MAX_TOKENS:
        text = f"the cluster has {len(tokens)} delegation tokens, {_MAX_TOKENS} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    count = sum(token.requester == requester for token in tokens.values())
    if count >= _MAX_TOKENS_OF_REQUESTER:
        text = f"{requester} has created {count} delegation tokens, {_MAX_TOKENS_OF_REQUESTER} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    if len(principals) > _MAX_RENEWERS + 1:
        text = f"the token would have {len(principals) - 1} renewers, {_MAX_RENEWERS} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    longest = max(len(principal.name) for principal in principals)
    if longest > _MAX_NAME:
        text = f"the name of a principal has {longest} characters, {_MAX_NAME} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    total = sum(len(principal.name) for principal in principals)
    if total > _MAX_NAMES:
        text = f"the names of the owner and the renewers have {total} characters, {_MAX_NAMES} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)


def _is_expired(token: DelegationToken, time_ms: int) -> bool:
    return min(token.max_timestamp_ms, token.expiry_timestamp_ms) < time_ms


def _expiring(token: DelegationToken, expiry_timestamp_ms: int) -> DelegationToken:
    return dataclasses.replace(token, expiry_timestamp_ms=min(token.max_timestamp_ms, expiry_timestamp_ms))


def _written(token: DelegationToken) -> _Outcome:
    return Result([DelegationTokenRecord(token)], AlterDelegationTokenResponse(token, token.expiry_timestamp_ms))
