"""The rules for the requests of client instances (KIP-714)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.telemetry.instances import ClientInstance, ClientInstances
from tidelog_node.telemetry.subscriptions import ClientFacts, Subscribed, Subscription, compiled, subscribed

CLIENT = ClientFacts("id", "reports-1", "librdkafka", "2.16.0", "10.0.0.7", "50000")
INTERVAL_MS = 1_000
ID = 7


def instance(**fields: object) -> ClientInstance:
    return ClientInstance(CLIENT, Subscribed(("*",), INTERVAL_MS, ID), 1, **fields)  # type: ignore[arg-type]


def push(target: ClientInstance, now_ms: int, subscription_id: int = ID, *, is_terminating: bool = False) -> ErrorCode:
    try:
        target.push(subscription_id, is_terminating=is_terminating, now_ms=now_ms)
    except TidelogError as error:
        return error.code
    return ErrorCode.NONE


def test_subscriptions_are_given_at_once_and_then_once_an_interval() -> None:
    target = instance()
    target.get(0)
    with pytest.raises(TidelogError) as early:
        target.get(INTERVAL_MS - 1)
    assert early.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    target.get(INTERVAL_MS)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_client_whose_push_was_refused_for_its_subscription_gets_it_at_once(error: ErrorCode) -> None:
    target = instance()
    target.get(0)
    target.last_error = error
    target.get(1)
    with pytest.raises(TidelogError):
        target.get(2)


def test_first_push_after_the_subscriptions_may_be_early_and_later_ones_may_not() -> None:
    target = instance()
    target.get(0)
    assert push(target, INTERVAL_MS // 2) is ErrorCode.NONE
    assert push(target, INTERVAL_MS) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(target, INTERVAL_MS * 3 // 2) is ErrorCode.NONE


def test_terminating_push_may_be_early_and_is_the_last() -> None:
    target = instance()
    target.get(0)
    assert push(target, 1) is ErrorCode.NONE
    assert push(target, 2, is_terminating=True) is ErrorCode.NONE
    assert push(target, INTERVAL_MS * 9) is ErrorCode.INVALID_REQUEST


def test_push_for_another_subscription_is_refused() -> None:
    target = instance()
    target.get(0)
    assert push(target, 1, ID + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * INTERVAL_MS)), max_size=30))
def test_accepted_pushes_are_never_more_than_two_an_interval(steps: list[tuple[bool, int]]) -> None:
    target, now_ms, accepted = instance(), 0, []
    for is_push, wait_ms in steps:
        now_ms += wait_ms
        if is_push:
            if push(target, now_ms) is ErrorCode.NONE:
                accepted.append(now_ms)
        else:
            with contextlib.suppress(TidelogError):
                target.get(now_ms)
    for start in accepted:
        assert sum(start <= each < start + INTERVAL_MS for each in accepted) <= 2


def test_instances_expire_after_three_intervals_and_the_oldest_gives_way() -> None:
    known = ClientInstances(max_instances=2)
    for number in range(3):
        each = instance()
        each.use(0)
        displaced = known.put(bytes([number]), each)
        assert displaced == ([bytes([0])] if number == 2 else [])
    assert known.find(bytes([0])) is None
    assert known.sweep(59_999) == []
    assert known.sweep(70_000) == [bytes([1]), bytes([2])]
    assert len(known) == 0


def test_client_gets_the_union_of_what_applies_to_it_at_the_shortest_interval() -> None:
    found, errors = compiled(
        {
            "all": {"metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer."},
            "reports": {"metrics": "org.apache.kafka.producer.", "interval.ms": "500", "match": "client_id=reports-.*"},
            "java": {"metrics": "*", "interval.ms": "100", "match": "client_software_name=apache-kafka-java"},
            "backtracking": {"metrics": "*", "match": "client_id=(?=a)a"},
        }
    )
    assert [*errors] == ["backtracking"]
    mine = subscribed(found.values(), CLIENT, bytes(16))
    assert mine.metrics == ("org.apache.kafka.consumer.", "org.apache.kafka.producer.")
    assert mine.interval_ms == 500
    assert -(2**31) <= mine.subscription_id < 2**31
    assert subscribed(found.values(), CLIENT, bytes(16)) == mine
    assert subscribed(found.values(), CLIENT, bytes([1] * 15 + [2])).subscription_id != mine.subscription_id
    assert subscribed([], CLIENT, bytes(16)).metrics == ()


def test_all_metrics_are_one_name_and_all_patterns_must_match() -> None:
    everything = Subscription({"metrics": "a.,*", "match": "client_id=reports-1,client_source_address=10\\..*"})
    assert subscribed([everything], CLIENT, bytes(16)).metrics == ("*",)
    other = Subscription({"metrics": "*", "match": "client_id=reports-1,client_source_address=11\\..*"})
    assert not other.applies_to(CLIENT)
