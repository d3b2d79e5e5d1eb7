"""The consumer protocol's bytes, against kafka-python's."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from tidelog.consumer.assignors import (
    Key,
    Member,
    Subscription,
    assignor_named,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.consumer.assignors.sticky import previous_of
from tidelog_foundation.errors import ErrorCode, TidelogError

names = st.text(min_size=1, max_size=8)
keys = st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=12)
subscribed = st.builds(
    Subscription,
    topics=st.frozensets(names, max_size=5),
    user_data=st.none() | st.binary(max_size=20),
    owned=keys,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | names,
)


def grouped(partitions: frozenset[Key]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


@given(subscription=subscribed, version=st.integers(0, 3))
def test_subscription_is_what_kafka_python_reads_and_writes(subscription: Subscription, version: int) -> None:
    encoded = encode_subscription(subscription, version)
    theirs = ConsumerProtocolSubscription.decode(encoded)
    assert theirs.version == version
    assert theirs.encode() == encoded
    assert (set(theirs.topics), theirs.user_data) == (subscription.topics, subscription.user_data)
    ours = decode_subscription(encoded)
    assert (ours.topics, ours.user_data) == (subscription.topics, subscription.user_data)
    assert ours.owned == (subscription.owned if version >= 1 else frozenset())
    assert ours.generation == (subscription.generation if version >= 2 else -1)
    assert ours.rack == (subscription.rack if version >= 3 else None)
    if version >= 1:
        assert {each.topic: each.partitions for each in theirs.owned_partitions} == grouped(subscription.owned)


@given(partitions=keys, user_data=st.none() | st.binary(max_size=20), version=st.integers(0, 3))
def test_assignment_is_what_kafka_python_reads_and_writes(
    partitions: frozenset[Key], user_data: bytes | None, version: int
) -> None:
    encoded = encode_assignment(partitions, user_data, version)
    theirs = ConsumerProtocolAssignment.decode(encoded)
    assert theirs.encode() == encoded
    assert theirs.user_data == user_data
    assert {each.topic: each.partitions for each in theirs.assigned_partitions} == grouped(partitions)
    assert decode_assignment(encoded) == partitions


def test_assignment_without_bytes_is_empty() -> None:
    assert decode_assignment(b"") == frozenset()


def test_subscription_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    subscription = Subscription(frozenset(("a", "b")), None, frozenset((("a", 1),)), 7, "r")
    later = b"\0\x09" + encode_subscription(subscription)[2:] + b"more"
    assert decode_subscription(later) == subscription


@given(subscription=subscribed, data=st.data())
def test_subscription_that_ends_too_soon_is_refused(subscription: Subscription, data: st.DataObject) -> None:
    encoded = encode_subscription(subscription)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(TidelogError) as raised:
        decode_subscription(cut)
    assert raised.value.code is ErrorCode._BAD_MSG


@given(data=st.binary(max_size=60))
def test_garbage_raises_nothing_but_our_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with suppress(TidelogError):
            decode(data)
    previous_of(Member("m", Subscription(frozenset(), data)))


def test_sticky_user_data_has_kafkas_bytes() -> None:
    owned = frozenset((("t", 2), ("t", 0)))
    data = assignor_named("sticky").user_data(owned, 5)
    assert data == bytes.fromhex("00000001 0001 74 00000002 00000000 00000002 00000005")
    assert previous_of(Member("m", Subscription(frozenset("t"), data))) == (owned, 5)
    assert previous_of(Member("m", Subscription(frozenset("t"), data[:-4]))) == (owned, -1)
    assert assignor_named("cooperative-sticky").user_data(owned, 5) == bytes.fromhex("00000005")
