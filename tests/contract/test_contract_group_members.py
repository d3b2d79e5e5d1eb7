"""Membership of groups: static, fenced and slow members, and the commits that each may still make."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from group_members import Member, keys_of, shared, until

from tidelog import KafkaException, TopicPartition
from tidelog_foundation.errors import ErrorCode

Deployment = Any


def codes(member: Member) -> list[ErrorCode]:
    return [error.error_code() for error in (m.error() for m in member.errors) if error is not None]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_keeps_its_partitions_over_a_restart(
    group_cluster: Deployment, join: Callable[..., Member], protocol: str
) -> None:
    topic = group_cluster.topic(partitions=4)
    other = join(topic, group_protocol=protocol, group_instance_id="a")
    static = join(topic, group_protocol=protocol, group_instance_id="b")
    until([other, static], lambda: shared([other, static], keys_of(topic, 4)))
    kept, before = static.owned, len(other.told)
    static.consumer.close()
    group_cluster.send(topic, [b"v"], min(kept)[1])
    back = join(topic, group_protocol=protocol, group_instance_id="b")
    until([other, back], lambda: back.owned == kept and back.values == [b"v"])
    assert other.owned == keys_of(topic, 4) - kept
    assert len(other.told) == before


def test_a_second_live_member_with_the_same_instance_id_fences_the_first(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic()
    group_cluster.send(topic, [b"v"])
    first = join(topic, group_instance_id="same")
    until([first], lambda: first.values == [b"v"])
    second = join(topic, group_instance_id="same")
    until([first, second], lambda: bool(first.errors) and second.owned == {(topic, 0)})
    error = first.errors[0].error()
    assert error is not None
    assert (error.error_code(), error.fatal()) == (ErrorCode.FENCED_INSTANCE_ID, True)
    assert first.told[-1] == ("lost", {(topic, 0)})
    assert not first.owned


def test_the_coordinator_refuses_a_second_live_member_with_the_same_instance_id(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic()
    first = join(topic, group_protocol="consumer", group_instance_id="same")
    until([first], lambda: first.owned == {(topic, 0)})
    second = join(topic, group_protocol="consumer", group_instance_id="same")
    until([first, second], lambda: bool(second.errors))
    assert codes(second)[0] is ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.owned == {(topic, 0)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_does_not_poll_loses_its_partitions_and_what_it_commits_then_is_refused(
    group_cluster: Deployment, join: Callable[..., Member], protocol: str
) -> None:
    topic = group_cluster.topic()
    group_cluster.send(topic, [b"a", b"b"])
    config = {"enable_auto_commit": False, "group_protocol": protocol}
    config |= {"session_timeout_ms": 600} if protocol == "classic" else {}
    slow = join(topic, max_poll_interval_ms=700, **config)
    until([slow], lambda: slow.values == [b"a", b"b"])
    quick = join(topic, **config)
    until([quick], lambda: quick.values == [b"a", b"b"])
    quick.consumer.commit(asynchronous=False)
    with pytest.raises(KafkaException, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION|STALE_MEMBER_EPOCH"):
        slow.consumer.commit(slow.messages[0], asynchronous=False)
    assert [p.offset for p in quick.consumer.committed([TopicPartition(topic, 0)], 10)] == [2]
    until([slow, quick], lambda: ("lost", {(topic, 0)}) in slow.told)
    # By KIP-848 the coordinator may have been the first to give up waiting, for as long.
    until([slow, quick], lambda: protocol == "consumer" or ErrorCode._MAX_POLL_EXCEEDED in codes(slow))
    quick.consumer.close()
    until([slow], lambda: slow.owned == {(topic, 0)})


def test_heartbeats_need_no_poll(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic(partitions=2)
    silent, other = (join(topic, session_timeout_ms=500) for _ in range(2))
    until([silent, other], lambda: shared([silent, other], keys_of(topic, 2)))
    told, owned = len(other.told), silent.owned
    deadline = time.monotonic() + 1.2
    until([other], lambda: time.monotonic() > deadline)
    assert len(other.told) == told
    silent.poll()
    assert silent.owned == owned


def test_arrow_tables_are_shared_by_a_group(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic(partitions=2)
    for partition in (0, 1):
        group_cluster.send(topic, [b"%d" % n for n in range(30)], partition)
    first = join(topic)
    tables = []
    while sum(t.num_rows for t in tables) < 45:
        tables.append(first.consumer.consume_arrow(25, 5))
        assert tables[-1].num_rows <= 25
    seen = [(p, o) for t in tables for p, o in zip(t["partition"].to_pylist(), t["offset"].to_pylist(), strict=True)]
    first.consumer.close()
    second = join(topic)
    until([second], lambda: len(seen) + len(second.messages) == 60)
    seen += [(m.partition(), m.offset()) for m in second.messages]
    assert sorted(seen) == [(p, o) for p in (0, 1) for o in range(30)]
