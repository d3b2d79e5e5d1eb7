"""The expiry of offsets and groups (KIP-211; GroupCoordinatorShardTest, testCleanupGroupMetadata...)."""

from __future__ import annotations

import dataclasses

import pytest
from group_shards import (
    ShardHarness,
    TransactionalStore,
    commit_request,
    fetched_offsets,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    stable_group,
    subscription,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import ListGroupsRequest
from tidelog_node.groups.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue, encode
from tidelog_node.groups.settings import GroupSettings

CHECK_MS = 1_000
RETENTION_MS = 100_000
SETTINGS = GroupSettings(
    offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS, group_initial_rebalance_delay_ms=0
)


@pytest.fixture
def harness() -> ShardHarness:
    return ShardHarness(SETTINGS)


def groups(harness: ShardHarness) -> list[str]:
    return [group.group_id for group in harness.call(ListGroupsRequest()).groups]


def live(harness: ShardHarness, member_id: str, generation: int, duration_ms: int) -> None:
    for _ in range(duration_ms // 5_000):
        harness.pass_time(5_000)
        assert harness.call(heartbeat_request(member_id, generation)).error is None


def test_offsets_of_a_simple_group_expire_each_for_itself_and_the_group_with_the_last(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5, ("t", 1): 5}))
    harness.pass_time(50_000)
    harness.call(commit_request({("t", 1): 6}))
    harness.pass_time(49_000)
    assert fetched_offsets(harness) == {("t", 0): 5, ("t", 1): 6}
    harness.pass_time(2 * CHECK_MS)
    assert fetched_offsets(harness) == {("t", 1): 6}
    harness.pass_time(RETENTION_MS)
    assert groups(harness) == []
    assert list(harness.store.ids()) == []


def test_offsets_of_a_group_that_became_empty_expire_when_it_has_been_so_for_the_retention(
    harness: ShardHarness,
) -> None:
    generation, (leader,) = stable_group(harness)
    harness.call(commit_request({("t", 0): 5}, member_id=leader, generation=generation))
    live(harness, leader, generation, 2 * RETENTION_MS)
    harness.call(leave_request(leader))
    harness.pass_time(RETENTION_MS - CHECK_MS)
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.reload()
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.pass_time(2 * CHECK_MS)
    assert groups(harness) == []
    assert (GroupMetadataKey("g"), None) in harness.log
    assert list(harness.store.ids()) == []


def test_offsets_of_topics_that_a_stable_group_does_not_read_any_more_expire(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5, ("u", 0): 6}))
    member_id, _ = join_new(harness, protocols=[("range", subscription("t"))])
    harness.pass_time(0)
    harness.call(sync_request(member_id, 1))
    live(harness, member_id, 1, RETENTION_MS + 5_000)
    assert fetched_offsets(harness) == {("t", 0): 5}


def test_offsets_of_a_group_that_rebalances_do_not_expire(harness: ShardHarness) -> None:
    harness.call(commit_request({("u", 0): 6}))
    options = {"protocols": [("range", subscription("t"))], "rebalance_timeout_ms": 10 * RETENTION_MS}
    leader, _ = join_new(harness, **options)
    harness.pass_time(0)
    harness.call(sync_request(leader, 1))
    join_new(harness, **options)
    live(harness, leader, 1, 0)
    for _ in range(RETENTION_MS // 5_000 + 1):
        harness.pass_time(5_000)
        harness.call(heartbeat_request(leader, 1))
    assert fetched_offsets(harness) == {("u", 0): 6}


def test_offset_with_a_time_of_its_own_expires_then() -> None:
    key = OffsetCommitKey("g", "t", 0)
    value = OffsetCommitValue(1, -1, "", 0, expire_timestamp=1_010_000)
    harness = ShardHarness(SETTINGS, TransactionalStore([encode(key, value)]))
    harness.pass_time(9_000)
    assert fetched_offsets(harness) == {("t", 0): 1}
    harness.pass_time(2 * CHECK_MS)
    assert fetched_offsets(harness) == {}


def test_offset_of_which_a_commit_is_under_way_does_not_expire(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    harness.holds_commits = True
    harness.send(commit_request({("t", 0): 6}))
    harness.pass_time(2 * RETENTION_MS)
    assert harness.log[-1][1] is not None
    harness.commit()
    assert fetched_offsets(harness) == {("t", 0): 6}


def test_group_without_members_and_offsets_is_deleted_at_the_next_check(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    harness.call(leave_request(leader))
    assert groups(harness) == ["g"]
    harness.pass_time(CHECK_MS)
    assert groups(harness) == []


def test_group_with_members_and_no_offsets_is_not_deleted(harness: ShardHarness) -> None:
    generation, (leader,) = stable_group(harness)
    live(harness, leader, generation, 2 * RETENTION_MS)
    assert groups(harness) == ["g"]


def test_expiry_that_cannot_be_written_is_tried_again(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.pass_time(RETENTION_MS + CHECK_MS)
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.fails_writes = None
    harness.pass_time(CHECK_MS)
    assert fetched_offsets(harness) == {}


def test_offsets_of_a_deleted_topic_are_deleted_with_or_without_members(harness: ShardHarness) -> None:
    harness.set_topics(t=1, u=1)
    harness.call(commit_request({("t", 0): 5, ("u", 0): 6}))
    harness.call(commit_request({("t", 0): 7}, group="other"))
    stable_group(harness)
    harness.set_topics(u=1)
    harness.pass_time(0)
    assert fetched_offsets(harness) == {("u", 0): 6}
    assert fetched_offsets(harness, "other") == {}


def test_offsets_of_a_topic_that_was_made_again_are_kept(harness: ShardHarness) -> None:
    harness.set_topics(t=1)
    harness.call(commit_request({("t", 0): 5}))
    harness.call(commit_request({("t", 0): 5}, group="other"))
    harness.set_topics()
    harness.now_ms += 10
    harness.set_topics(t=1)
    harness.now_ms += 10
    harness.call(commit_request({("t", 0): 1}))
    harness.pass_time(0)
    assert fetched_offsets(harness) == {("t", 0): 1}
    assert fetched_offsets(harness, "other") == {}


def test_offsets_of_a_topic_that_has_another_id_are_deleted(harness: ShardHarness) -> None:
    harness.set_topics(t=1)
    harness.call(commit_request({("t", 0): 5}))
    harness.topics = {}
    harness.set_topics(t=1)
    harness.pass_time(0)
    assert fetched_offsets(harness) == {}


def test_group_is_deleted_once_however_long_that_takes_to_commit(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    harness.call(leave_request(leader))
    harness.holds_commits = True
    harness.pass_time(5 * CHECK_MS)
    assert [key for key, value in harness.log if value is None] == [GroupMetadataKey("g")]


def test_member_that_joins_while_an_expired_group_is_deleted_begins_a_new_one(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    harness.call(leave_request(leader))
    harness.holds_commits = True
    harness.pass_time(CHECK_MS)
    member_id, call = join_new(harness)
    harness.pass_time(0)
    assert harness.responses[call].generation_id == 1
    harness.commit()
    assert harness.call(heartbeat_request(member_id, 1)).error is None


def test_all_of_many_groups_are_looked_at_in_slices() -> None:
    keys = [OffsetCommitKey(f"g{number}", "t", 0) for number in range(350)]
    harness = ShardHarness(SETTINGS, TransactionalStore(encode(key, OffsetCommitValue(1, -1, "", 0)) for key in keys))
    assert list(harness.store.ids()) == []
    assert {key for key, value in harness.log if value is None} == set(keys)


def test_groups_without_members_are_left_to_the_store_after_a_check(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 1}))
    assert "g" in harness.shard._groups
    harness.pass_time(CHECK_MS)
    assert "g" not in harness.shard._groups
    assert fetched_offsets(harness) == {("t", 0): 1}
    harness.call(join_request())
    harness.pass_time(CHECK_MS)
    assert "g" in harness.shard._groups


def test_very_many_offsets_expire_in_parts() -> None:
    harness = ShardHarness(dataclasses.replace(SETTINGS, offsets_retention_check_interval_ms=RETENTION_MS))
    for number in range(4):
        harness.call(commit_request({("t" * 100 + str(number), index): 1 for index in range(1_000)}))
    harness.holds_commits = True
    harness.pass_time(2 * RETENTION_MS)
    sizes = [sum(len(record.key) for record in write.records) for write in harness.uncommitted]
    assert len(sizes) > 1
    assert max(sizes) < 200_000
    harness.commit()
    assert list(harness.store.ids()) == []


@pytest.mark.parametrize("clock_error_ms", [-3_600_000, 3_600_000])
def test_offsets_of_a_deleted_topic_go_whatever_clock_they_were_written_by(
    harness: ShardHarness, clock_error_ms: int
) -> None:
    harness.set_topics(t=1)
    harness.clock_error_ms = clock_error_ms
    harness.call(commit_request({("t", 0): 5}))
    harness.clock_error_ms = 0
    harness.set_topics()
    harness.pass_time(0)
    assert fetched_offsets(harness) == {}


@pytest.mark.parametrize("clock_error_ms", [-50_000, 50_000])
def test_offsets_of_a_topic_that_was_made_again_are_kept_whatever_the_clock_says(
    harness: ShardHarness, clock_error_ms: int
) -> None:
    harness.set_topics(t=2)
    harness.call(commit_request({("t", 0): 5, ("t", 1): 5}))
    harness.topics = {}
    harness.set_topics(t=2)
    harness.clock_error_ms = clock_error_ms
    harness.call(commit_request({("t", 0): 1}))
    assert fetched_offsets(harness) == {("t", 0): 1}, "the old ones are gone at once"
    harness.set_topics(t=2, u=1)
    harness.set_topics(t=2)
    harness.pass_time(0)
    assert fetched_offsets(harness) == {("t", 0): 1}


def test_commit_that_was_under_way_when_its_topic_was_deleted_goes_too(harness: ShardHarness) -> None:
    harness.set_topics(t=1)
    harness.holds_commits = True
    harness.send(commit_request({("t", 0): 5}))
    harness.set_topics()
    harness.pass_time(0)
    harness.commit()
    assert fetched_offsets(harness) == {}


def test_offsets_of_a_deleted_topic_are_looked_for_again_when_they_could_not_be_deleted(harness: ShardHarness) -> None:
    harness.set_topics(t=1)
    harness.call(commit_request({("t", 0): 5}))
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.set_topics()
    harness.pass_time(2 * CHECK_MS)
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.fails_writes = None
    harness.pass_time(CHECK_MS)
    assert fetched_offsets(harness) == {}
