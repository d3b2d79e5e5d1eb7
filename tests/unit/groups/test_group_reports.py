"""The log lines of a group's members and rebalances: one line for each change, and none for what changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from group_shards import (
    ShardHarness,
    consumer_heartbeat_request,
    heartbeat_request,
    join_new,
    join_request,
    stable_group,
    sync_request,
)

from tidelog_node.broker.report import Level, Report
from tidelog_node.coordination.group_coordinator import GroupCore, _GroupKind
from tidelog_node.groups.messages import LeaveGroupRequest, LeavingMember
from tidelog_node.partitions import MetadataCache
from tidelog_node.shards.store import RecordStore


@pytest.fixture
def taken(harness: ShardHarness) -> Callable[[], list[str]]:
    """Returns the lines since its last call."""

    def take() -> list[str]:
        lines, harness.reports = harness.reports, []
        return lines

    return take


def test_classic_group_reports_the_phases_of_its_rebalances(
    harness: ShardHarness, taken: Callable[[], list[str]]
) -> None:
    stable_group(harness)
    assert taken() == [
        "Group g: member client-1 with instance id None joined from /127.0.0.1, client id client: 1 members",
        "Group g: a rebalance begins in generation 0 with 1 members: a member joined",
        "Group g: generation 1 begins with 1 members, protocol range and leader client-1",
        "Group g: the rebalance ended in generation 1 with 1 members",
    ]
    harness.call(heartbeat_request("client-1", 1))
    assert taken() == [], "a heartbeat changes nothing"
    join_new(harness)
    assert taken() == [
        "Group g: member client-2 with instance id None joined from /127.0.0.1, client id client: 2 members",
        "Group g: a rebalance begins in generation 1 with 2 members: a member joined",
    ]


def test_classic_group_reports_why_members_leave(harness: ShardHarness, taken: Callable[[], list[str]]) -> None:
    _, [leader, other] = stable_group(harness, 2)
    taken()
    harness.call(LeaveGroupRequest("g", (LeavingMember(other, reason="the consumer is being closed"),)))
    left, begins = taken()
    assert left == f"Group g: member {other} left in generation 1, 1 members remain: the consumer is being closed"
    assert begins == "Group g: a rebalance begins in generation 1 with 1 members: a member left"
    harness.pass_time(10_000)
    assert taken() == [
        f"Group g: member {leader} left in generation 1, 0 members remain: its session of 10000 ms expired",
        "Group g: the rebalance ended in generation 2 without members",
    ]


def test_classic_group_reports_a_static_member_that_replaces_another(
    harness: ShardHarness, taken: Callable[[], list[str]]
) -> None:
    joined = harness.send(join_request(instance="i"))
    harness.pass_time(harness.settings.group_initial_rebalance_delay_ms * 2)
    former = harness.responses[joined].member_id
    harness.call(sync_request(former, 1, {former: b""}, instance="i"))
    taken()
    harness.call(join_request(instance="i"))
    assert taken() == [f"Group g: member i-2 replaces {former}, which is fenced, with instance id i"]
    harness.call(heartbeat_request(former, 1, instance="i"))
    assert taken() == [
        f"Group g: refused Heartbeat of a fenced member: in group g the instance id i is that of i-2, not of {former}"
    ]


def test_consumer_group_reports_its_epochs_and_members(harness: ShardHarness, taken: Callable[[], list[str]]) -> None:
    harness.set_topics(t=2)
    harness.call(consumer_heartbeat_request("a"))
    assert taken() == [
        "Group g: member a with instance id None joined from /127.0.0.1, client id client",
        "Group g: epoch 1 begins with 1 members",
        "Group g: the rebalance ended in epoch 1 with 1 members",
    ]
    harness.call(consumer_heartbeat_request("a", 1))
    assert taken() == []
    harness.call(consumer_heartbeat_request("b"))
    assert taken() == [
        "Group g: member b with instance id None joined from /127.0.0.1, client id client",
        "Group g: epoch 2 begins with 2 members",
    ]
    harness.call(consumer_heartbeat_request("b", 1))
    assert "refused ConsumerGroupHeartbeat of a fenced member: member b has epoch 2, not 1" in taken()[0]
    harness.call(consumer_heartbeat_request("b", -1))
    assert taken() == [
        "Group g: member b left in epoch 2: it sent a heartbeat that leaves",
        "Group g: epoch 3 begins with 1 members",
    ]
    harness.pass_time(harness.settings.consumer_session_timeout_ms)
    assert taken() == [
        "Group g: member a left in epoch 3: its session expired",
        "Group g: epoch 4 begins with 0 members",
        "Group g: the rebalance ended in epoch 4 with 0 members",
    ]


def test_consumer_group_reports_a_static_member_that_leaves_and_returns(
    harness: ShardHarness, taken: Callable[[], list[str]]
) -> None:
    harness.set_topics(t=1)
    harness.call(consumer_heartbeat_request("a", group_instance_id="i"))
    taken()
    harness.call(consumer_heartbeat_request("a", -2, group_instance_id="i"))
    assert taken() == ["Group g: static member a left in epoch 1, and keeps its partitions until its session expires"]
    harness.call(consumer_heartbeat_request("b", group_instance_id="i"))
    assert taken() == [
        "Group g: member a left in epoch 1: b replaces it",
        "Group g: member b with instance id i joined from /127.0.0.1, client id client",
        "Group g: the rebalance ended in epoch 1 with 1 members",
    ]


def test_long_ids_are_shortened_in_lines(harness: ShardHarness, taken: Callable[[], list[str]]) -> None:
    harness.send(join_request(group="g" * 30_000, instance="i" * 30_000))
    assert all(len(line) < 1_000 for line in taken())


def test_lines_of_groups_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    """A failover makes thousands of members join at once. Their lines must not fill the disk."""

    def no_core(store: RecordStore) -> GroupCore:
        raise AssertionError(store)

    caplog.set_level(logging.INFO)
    kind = _GroupKind(no_core, MetadataCache(), lambda: True)
    for number in range(1_000):
        kind.execute(None, Report(Level.INFO, "Group %s: epoch %d begins", (f"g{number}", 1)))  # type: ignore[arg-type]
    assert [line.message for line in caplog.records][-1] == "Group g99: epoch 1 begins"
