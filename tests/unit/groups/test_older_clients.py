"""The coordinator's behavior towards clients without newer rules (KIP-394, KIP-814, KIP-848, KIP-211)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from group_shards import (
    ShardHarness,
    code_of,
    commit_request,
    consumer_heartbeat_request,
    fetched_offsets,
    heartbeat_request,
    join_request,
    stable_group,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import JoinGroupRequest
from tidelog_node.groups.settings import GroupSettings

HOUR_MS = 3_600_000


def old_join(member_id: str = "", instance: str | None = None, rebalance_timeout_ms: int = 60_000) -> JoinGroupRequest:
    request = join_request(member_id, instance=instance, rebalance_timeout_ms=rebalance_timeout_ms)
    return replace(request, joins_at_once=True, never_skips_assignment=True)


def test_member_that_does_not_know_of_required_ids_joins_with_its_first_call(harness: ShardHarness) -> None:
    call = harness.send(old_join())
    harness.pass_time(3_000)
    answer = harness.responses[call]
    assert (answer.generation_id, answer.leader, len(answer.members)) == (1, answer.member_id, 1)
    harness.call(sync_request(answer.member_id, 1, {answer.member_id: b"A"}))
    assert harness.call(heartbeat_request(answer.member_id, 1)).error is None


def test_old_member_that_goes_away_before_its_answer_is_out_after_its_session(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    harness.abandon(harness.send(old_join()))
    with_both = harness.call(join_request(leader))
    assert len(with_both.members) == 2
    harness.call(sync_request(leader, with_both.generation_id))
    harness.pass_time(6_000)
    assert harness.call(heartbeat_request(leader, with_both.generation_id)).error is None
    harness.pass_time(6_000)
    alone = harness.call(join_request(leader))
    assert [member.member_id for member in alone.members] == [leader]


def test_rebalance_waits_for_the_session_timeout_where_no_other_is_given(harness: ShardHarness) -> None:
    call = harness.send(old_join(rebalance_timeout_ms=-1))
    harness.pass_time(3_000)
    first = harness.responses[call].member_id
    harness.call(sync_request(first, 1, {first: b"A"}))
    second = harness.send(old_join(rebalance_timeout_ms=-1))
    harness.pass_time(6_000)
    harness.call(heartbeat_request(first, 1))
    assert second not in harness.responses
    harness.pass_time(4_000)
    assert len(harness.responses[second].members) == 1


def test_static_leader_that_does_not_know_skipping_is_told_of_itself_as_it_was(harness: ShardHarness) -> None:
    call = harness.send(old_join(instance="a"))
    harness.pass_time(3_000)
    old = harness.responses[call].member_id
    harness.call(sync_request(old, 1, {old: b"A"}, instance="a"))
    answer = harness.call(old_join(instance="a"))
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, old, False)
    assert answer.member_id != old
    assert not answer.members
    assert harness.call(sync_request(answer.member_id, 1, instance="a")).assignment == b"A"
    # With the next generation it leads again.
    again = harness.send(old_join(answer.member_id, instance="a"))
    assert harness.responses[again].leader == answer.member_id


def test_commit_to_a_group_that_there_is_not_has_an_illegal_generation_for_old_clients(harness: ShardHarness) -> None:
    request = commit_request({("t", 0): 5}, member_id="m", generation=1)
    assert code_of(harness.call(request).topics[0].partitions[0]) is ErrorCode.GROUP_ID_NOT_FOUND
    request = replace(request, without_member_epochs=True)
    assert code_of(harness.call(request).topics[0].partitions[0]) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(("member_id", "epoch"), [("m", 1), ("m", 7)])
def test_members_with_epochs_cannot_commit_by_versions_without(
    harness: ShardHarness, member_id: str, epoch: int
) -> None:
    harness.set_topics(t=1)
    assert harness.call(consumer_heartbeat_request("m", rebalance_timeout_ms=1_000)).member_epoch == 1
    request = commit_request({("t", 0): 5}, member_id=member_id, generation=epoch)
    request = replace(request, without_member_epochs=True)
    assert code_of(harness.call(request).topics[0].partitions[0]) is ErrorCode.UNSUPPORTED_VERSION
    request = replace(request, member_id="nobody")
    assert code_of(harness.call(request).topics[0].partitions[0]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_retention_that_a_commit_names_holds_for_its_offsets() -> None:
    harness = ShardHarness(GroupSettings(offsets_retention_ms=24 * HOUR_MS, offsets_retention_check_interval_ms=60_000))
    harness.set_topics(t=2)
    brief = replace(commit_request({("t", 0): 5}), retention_time_ms=HOUR_MS)
    harness.call(brief)
    harness.call(commit_request({("t", 1): 6}))
    harness.pass_time(HOUR_MS - 120_000)
    assert fetched_offsets(harness) == {("t", 0): 5, ("t", 1): 6}
    harness.pass_time(240_000)
    assert fetched_offsets(harness) == {("t", 1): 6}


def test_retention_beyond_all_timestamps_keeps_the_offset() -> None:
    harness = ShardHarness(GroupSettings(offsets_retention_ms=24 * HOUR_MS, offsets_retention_check_interval_ms=60_000))
    harness.set_topics(t=1)
    forever = replace(commit_request({("t", 0): 5}), retention_time_ms=2**63 - 1)
    assert harness.call(forever).topics[0].partitions[0].error is None
    harness.pass_time(48 * HOUR_MS)
    assert fetched_offsets(harness) == {("t", 0): 5}
