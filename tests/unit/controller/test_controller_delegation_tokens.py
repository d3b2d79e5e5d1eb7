"""Delegation tokens: Kafka's rules for their times and for who may change them, and the bounds of their number."""

from __future__ import annotations

import dataclasses

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.delegation_tokens import (
    AlterDelegationTokenRequest,
    RemoveExpiredTokens,
    TokenOperation,
)
from tidelog_foundation.sasl.token_hmacs import token_hmac
from tidelog_foundation.security.principal import Principal
from tidelog_quorum.controller import delegation_tokens as token_control
from tidelog_quorum.metadata.features import METADATA_VERSION

ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def driver(new_driver):
    driver = new_driver(delegation_token_secret_key="key")
    driver.set_levels({METADATA_VERSION: 3})
    return driver


def alter(driver, operation, time_ms=NOW, **fields):
    request = AlterDelegationTokenRequest(operation, time_ms=time_ms, **fields)
    return driver.do(driver.controller.handle, request)


def create(driver, time_ms=NOW, requester=ALICE, owner=ALICE, renewers=(BOB,), period_ms=-1):
    fields = {"requester": requester, "owner": owner, "renewers": renewers, "period_ms": period_ms}
    return alter(driver, TokenOperation.CREATE, time_ms, **fields).token


def change(driver, operation, token, requester=ALICE, period_ms=-1, time_ms=NOW):
    hmac = token_hmac("key", token.token_id)
    return alter(driver, operation, time_ms, requester=requester, hmac=hmac, period_ms=period_ms)


def refusal(call, *args, **fields):
    with pytest.raises(TidelogError) as refused:
        call(*args, **fields)
    return refused.value.code


def test_token_expires_after_a_day_and_lives_for_a_week_unless_asked_for_less(driver) -> None:
    token = create(driver)
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    assert times == (NOW, NOW + DAY, NOW + 7 * DAY)
    assert driver.image.delegation_tokens == {token.token_id: token}
    short, long = create(driver, period_ms=HOUR), create(driver, period_ms=30 * DAY)
    assert (short.expiry_timestamp_ms, short.max_timestamp_ms) == (NOW + HOUR, NOW + HOUR)
    assert long.max_timestamp_ms == NOW + 7 * DAY


def test_token_of_another_owner_names_its_requester(driver) -> None:
    token = create(driver, requester=EVE, owner=ALICE)
    assert (token.owner, token.requester) == (ALICE, EVE)
    assert refusal(change, driver, TokenOperation.RENEW, token, EVE) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_token_is_renewed_up_to_the_end_of_its_lifetime_by_its_owner_and_renewers(driver) -> None:
    token = create(driver)
    renewed = change(driver, TokenOperation.RENEW, token, BOB, time_ms=NOW + HOUR)
    assert renewed.expiry_timestamp_ms == NOW + HOUR + DAY
    assert driver.image.delegation_tokens[token.token_id].expiry_timestamp_ms == NOW + HOUR + DAY
    assert change(driver, TokenOperation.RENEW, token, period_ms=HOUR).expiry_timestamp_ms == NOW + HOUR
    for day in range(7):
        last = change(driver, TokenOperation.RENEW, token, time_ms=NOW + day * DAY + HOUR // 2).expiry_timestamp_ms
    assert last == NOW + 7 * DAY


def test_token_expires_at_once_or_later(driver) -> None:
    token = create(driver)
    assert change(driver, TokenOperation.EXPIRE, token, period_ms=HOUR).expiry_timestamp_ms == NOW + HOUR
    assert change(driver, TokenOperation.EXPIRE, token, BOB, period_ms=-1).expiry_timestamp_ms == NOW
    assert not driver.image.delegation_tokens
    assert refusal(change, driver, TokenOperation.RENEW, token) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_token_is_changed_only_with_its_hmac_before_its_expiry_by_those_who_may(driver) -> None:
    token = create(driver)
    for operation in (TokenOperation.RENEW, TokenOperation.EXPIRE):
        expired = {"time_ms": NOW + DAY + 1}
        assert refusal(change, driver, operation, token, **expired) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        other = dataclasses.replace(token, token_id="other")
        assert refusal(change, driver, operation, other) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert refusal(change, driver, operation, token, EVE) is mismatch
    assert driver.image.delegation_tokens == {token.token_id: token}


def test_expired_tokens_are_removed_in_bounded_entries(driver, monkeypatch) -> None:
    monkeypatch.setattr(token_control, "_MAX_REMOVALS", 2)
    for _ in range(3):
        create(driver, period_ms=HOUR)
    kept = create(driver)
    removals = [driver.do(driver.controller.handle, RemoveExpiredTokens(NOW + HOUR + 1)) for _ in range(3)]
    assert removals == [2, 1, 0]
    assert driver.image.delegation_tokens == {kept.token_id: kept}


def test_tokens_are_bounded_in_number_and_renewers(driver, monkeypatch) -> None:
    assert refusal(create, driver, renewers=(BOB,) * 101) is ErrorCode.POLICY_VIOLATION
    assert refusal(create, driver, renewers=(Principal("User", "x" * 1_025),)) is ErrorCode.POLICY_VIOLATION
    assert refusal(create, driver, renewers=(Principal("Group", "x"),)) is ErrorCode.INVALID_PRINCIPAL_TYPE
    monkeypatch.setattr(token_control, "_MAX_TOKENS", 1)
    create(driver)
    assert refusal(create, driver) is ErrorCode.POLICY_VIOLATION


def test_one_requester_leaves_room_for_the_tokens_of_others(driver, monkeypatch) -> None:
    monkeypatch.setattr(token_control, "_MAX_TOKENS_OF_REQUESTER", 1)
    token = create(driver, requester=EVE)
    assert refusal(create, driver, requester=EVE) is ErrorCode.POLICY_VIOLATION
    create(driver, requester=BOB, owner=EVE)
    change(driver, TokenOperation.EXPIRE, token)
    create(driver, requester=EVE)


def test_names_of_a_token_are_bounded_in_sum(driver) -> None:
    def renewers(count):
        return tuple(Principal("User", f"{i:03}" + "x" * 1_000) for i in range(count))

    assert refusal(create, driver, renewers=renewers(100)) is ErrorCode.POLICY_VIOLATION
    create(driver, renewers=renewers(10))


def test_tokens_are_refused_without_a_key_or_below_the_level_that_has_them(driver, new_driver) -> None:
    driver.set_levels({METADATA_VERSION: 2})
    assert refusal(create, driver) is ErrorCode.UNSUPPORTED_VERSION
    assert refusal(create, new_driver()) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    unknown = AlterDelegationTokenRequest(TokenOperation.UNKNOWN)
    driver.set_levels({METADATA_VERSION: 3})
    assert refusal(driver.do, driver.controller.handle, unknown) is ErrorCode.INVALID_REQUEST


def test_token_is_the_same_after_a_snapshot(driver) -> None:
    token = create(driver)
    image = driver.image
    restored = type(image)().apply(image.offset, image.epoch, image.to_records())
    assert restored.delegation_tokens == {token.token_id: token}
    assert "hmac" not in repr(token)
