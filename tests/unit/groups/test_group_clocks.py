"""The time of day may be set: deadlines go by a clock that never goes back, records have the time of day."""

from __future__ import annotations

import pytest
from group_shards import (
    ShardHarness,
    commit_request,
    consumer_heartbeat_request,
    fetched_offsets,
    heartbeat_request,
    join_new,
    leave_request,
    stable_group,
)

from tidelog_node.groups.messages import ConsumerGroupHeartbeatRequest
from tidelog_node.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog_node.groups.settings import GroupSettings

HOUR_MS = 3_600_000


@pytest.fixture
def harness() -> ShardHarness:
    return ShardHarness(GroupSettings(offsets_retention_ms=10_000, offsets_retention_check_interval_ms=1_000))


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_session_of_a_classic_member_lasts_as_long_as_it_should(harness: ShardHarness, step_ms: int) -> None:
    generation, (member,) = stable_group(harness)
    harness.clock_error_ms = step_ms
    harness.pass_time(9_000)
    assert harness.call(heartbeat_request(member, generation)).error is None
    harness.pass_time(10_001)
    assert harness.call(heartbeat_request(member, generation)).error is not None


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_rebalance_ends_when_it_should(harness: ShardHarness, step_ms: int) -> None:
    _, call = join_new(harness)
    harness.clock_error_ms = step_ms
    harness.pass_time(2_999)
    assert call not in harness.responses
    harness.pass_time(1)
    assert harness.responses[call].generation_id == 1


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_session_of_a_consumer_member_lasts_as_long_as_it_should(harness: ShardHarness, step_ms: int) -> None:
    harness.set_topics(t=1)
    harness.call(consumer_heartbeat_request("m"))
    harness.clock_error_ms = step_ms
    beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    harness.pass_time(44_000)
    assert harness.call(beat).member_epoch == 1
    harness.pass_time(45_001)
    assert harness.call(beat).error is not None


def test_records_have_the_time_of_day(harness: ShardHarness) -> None:
    harness.clock_error_ms = HOUR_MS
    harness.call(commit_request({("t", 0): 5}))
    assert harness.log[-1] == (
        OffsetCommitKey("g", "t", 0),
        OffsetCommitValue(5, -1, "", harness.now_ms + HOUR_MS),
    )
    _, (member,) = stable_group(harness)
    harness.call(leave_request(member))
    key, value = harness.log[-1]
    assert key == GroupMetadataKey("g")
    assert isinstance(value, GroupMetadataValue)
    assert value.current_state_timestamp == harness.now_ms + HOUR_MS


def test_retention_goes_by_the_time_of_day_and_is_looked_at_in_time(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    harness.clock_error_ms = -HOUR_MS
    harness.pass_time(11_000)
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.clock_error_ms = 0
    harness.pass_time(1_000)
    assert fetched_offsets(harness) == {}
