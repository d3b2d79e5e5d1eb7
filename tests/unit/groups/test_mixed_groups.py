"""Consumer groups with members of the classic protocol, and the conversions of groups that have members (KIP-848)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from group_shards import (
    ShardHarness,
    code_of,
    commit_request,
    consumer_heartbeat_request,
    fetched_offsets,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.consumer_protocol import encode_assignment, read_assignment
from tidelog_node.groups.consumer_value_formats import ClassicMemberMetadata
from tidelog_node.groups.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest,
    ListGroupsRequest,
    MemberTopicPartitions,
)
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from tidelog_node.groups.settings import GroupSettings, MigrationPolicy
from tidelog_node.shards.wire import Writer

PARTITIONS = 4
Partitions = frozenset[tuple[str, int]]
NONE: Partitions = frozenset()
ALL: Partitions = frozenset(("t", index) for index in range(PARTITIONS))


@pytest.fixture
def harness() -> ShardHarness:
    return shard()


def shard(**settings: Any) -> ShardHarness:
    harness = ShardHarness(GroupSettings(group_initial_rebalance_delay_ms=0, **settings))
    harness.set_topics(t=PARTITIONS)
    return harness


def metadata(owned: Partitions = NONE, generation: int = -1) -> bytes:
    """Return the subscription of a consumer to ``t``, in version 2."""
    writer = Writer()
    writer.int16(2)
    writer.array(["t"], writer.string)
    writer.int32(-1)
    partitions = sorted(index for _, index in owned)

    def write(name: str) -> None:
        writer.string(name)
        writer.array(partitions, writer.int32)

    writer.array(["t"] if partitions else [], write)
    writer.int32(generation)
    return bytes(writer)


def protocols(owned: Partitions = NONE, generation: int = -1) -> list[tuple[str, bytes]]:
    return [("range", metadata(owned, generation))]


def owned_in(answer: ConsumerGroupHeartbeatResponse) -> Partitions:
    return frozenset(("t", partition) for topic in answer.assignment or () for partition in topic.partitions)


def classic_group(harness: ShardHarness, count: int = 1, **options: Any) -> tuple[int, list[str]]:
    """Return the generation and the members of a stable classic group; they share the partitions in turn."""
    joins = [join_new(harness, protocols=protocols(), **options) for _ in range(count)]
    harness.pass_time(0)
    answers = {member_id: harness.responses[call] for member_id, call in joins}
    leader = next(answer.leader for answer in answers.values())
    members = sorted(answers, key=lambda member_id: member_id != leader)
    shares = {
        member_id: encode_assignment([p for p in ALL if p[1] % count == rank], 2)
        for rank, member_id in enumerate(members)
    }
    generation = answers[leader].generation_id
    for member_id in members[1:]:
        harness.send(sync_request(member_id, generation))
    harness.call(sync_request(leader, generation, shares))
    return generation, members


def rejoin(harness: ShardHarness, member_id: str, owned: Partitions = NONE) -> tuple[int, Partitions]:
    """Let a classic member join again and ask for its assignment; return its generation and its partitions."""
    answer = harness.call(join_request(member_id, protocols=protocols(owned)))
    assert answer.error is None, answer
    assert (answer.protocol_type, answer.protocol_name, answer.leader, list(answer.members)) == (
        "consumer",
        "range",
        "",
        [],
    )
    synced = harness.call(sync_request(member_id, answer.generation_id))
    assert synced.error is None, synced
    return answer.generation_id, read_assignment(synced.assignment)[0]


def group_type(harness: ShardHarness) -> str:
    (listing,) = harness.call(ListGroupsRequest()).groups
    return str(listing.group_type)


def test_classic_group_becomes_a_consumer_group_when_such_a_member_joins(harness: ShardHarness) -> None:
    generation, (member,) = classic_group(harness)
    before = len(harness.log)
    answer = harness.call(consumer_heartbeat_request("m"))
    assert (answer.member_epoch, owned_in(answer)) == (generation + 1, NONE), "the other has all partitions still"
    assert group_type(harness) == "consumer"
    assert code_of(harness.call(heartbeat_request(member, generation))) is ErrorCode.REBALANCE_IN_PROGRESS
    epoch, owned = rejoin(harness, member)
    assert (epoch, len(owned)) == (generation + 1, 2)
    assert harness.call(heartbeat_request(member, epoch)).error is None
    assert owned_in(harness.call(consumer_heartbeat_request("m", epoch))) == ALL - owned
    keys = [type(key) for key, _ in harness.log[before:]]
    assert keys[:6] == [
        GroupMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ], "the tombstone, then the group in Kafka's order"
    value = harness.log[before + 1][1]
    assert isinstance(value, ConsumerGroupMemberMetadataValue)
    assert value.classic == ClassicMemberMetadata(10_000, (("range", metadata()),))


def test_cooperative_member_of_a_mixed_group_keeps_what_stays_its_own(harness: ShardHarness) -> None:
    generation, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    epoch, kept = rejoin(harness, member, ALL)
    assert (epoch, len(kept)) == (generation, 2), "it has to give two up first"
    assert not owned_in(harness.call(consumer_heartbeat_request("m", generation + 1)))
    assert code_of(harness.call(heartbeat_request(member, generation))) is ErrorCode.REBALANCE_IN_PROGRESS
    epoch, owned = rejoin(harness, member, kept)
    assert (epoch, owned) == (generation + 1, kept)
    assert owned_in(harness.call(consumer_heartbeat_request("m", generation + 1))) == ALL - kept


def test_classic_member_joins_a_consumer_group(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    member_id, call = join_new(harness, protocols=protocols())
    joined = harness.responses[call]
    assert joined.generation_id == 2
    synced = harness.call(sync_request(member_id, 2))
    assert not read_assignment(synced.assignment)[0], "the other has all partitions still"
    assert harness.call(heartbeat_request(member_id, 2)).error is None, "it waits for them"
    kept = owned_in(harness.call(consumer_heartbeat_request("m", 1)))
    owned = MemberTopicPartitions(harness.topics["t"].topic_id, tuple(sorted(index for _, index in kept)))
    harness.call(consumer_heartbeat_request("m", 1, topic_partitions=(owned,)))
    assert code_of(harness.call(heartbeat_request(member_id, 2))) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(harness, member_id) == (2, ALL - kept)


def test_last_member_of_the_consumer_protocol_leaves_a_classic_group_behind(harness: ShardHarness) -> None:
    _, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    epoch, _ = rejoin(harness, member)
    harness.call(commit_request({("t", 0): 5}, member_id=member, generation=epoch))
    before = len(harness.log)
    assert harness.call(consumer_heartbeat_request("m", -1)).member_epoch == -1
    assert group_type(harness) == "classic"
    assert fetched_offsets(harness) == {("t", 0): 5}
    assert harness.log[-2] == (ConsumerGroupMetadataKey("g"), None)
    key, value = harness.log[-1]
    assert isinstance(value, GroupMetadataValue)
    assert (key, value.generation, value.protocol, value.leader) == (GroupMetadataKey("g"), epoch, "range", None)
    assert len(harness.log) - before == 9, "three tombstones of each member and two of the group, and the group"
    assert code_of(harness.call(heartbeat_request(member, epoch))) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = harness.call(join_request(member, protocols=protocols()))
    assert (joined.generation_id, joined.leader) == (epoch + 1, member)


def test_downgrade_is_completed_by_the_next_coordinator(harness: ShardHarness) -> None:
    _, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    epoch, _ = rejoin(harness, member)
    harness.call(consumer_heartbeat_request("m", -1))
    harness.reload()
    harness.set_topics(t=PARTITIONS)
    assert code_of(harness.call(heartbeat_request(member, epoch))) is ErrorCode.REBALANCE_IN_PROGRESS


def test_mixed_group_survives_its_coordinator(harness: ShardHarness) -> None:
    _, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    epoch, owned = rejoin(harness, member)
    harness.reload()
    harness.set_topics(t=PARTITIONS)
    assert harness.call(heartbeat_request(member, epoch)).error is None
    assert read_assignment(harness.call(sync_request(member, epoch)).assignment)[0] == owned
    harness.pass_time(9_999)
    assert harness.call(heartbeat_request(member, epoch)).error is None, "its own session timeout is 10 s"
    harness.pass_time(10_000)
    assert code_of(harness.call(heartbeat_request(member, epoch))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_of_the_consumer_protocol_that_is_silent_leaves_a_classic_group_behind(harness: ShardHarness) -> None:
    _, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    epoch, _ = rejoin(harness, member)
    for _ in range(9):
        harness.pass_time(5_000)
        answer = harness.call(heartbeat_request(member, epoch))
    assert code_of(answer) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group_type(harness) == "classic"


def test_member_that_was_removed_from_a_downgraded_group_can_join_again(harness: ShardHarness) -> None:
    """GROUP_ID_NOT_FOUND would be fatal to it."""
    generation, _ = classic_group(harness)
    epoch = harness.call(consumer_heartbeat_request("m")).member_epoch
    harness.call(leave_request("m"))
    assert group_type(harness) == "classic"
    assert code_of(harness.call(consumer_heartbeat_request("m", epoch))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.call(consumer_heartbeat_request("m")).member_epoch > generation
    harness = shard(consumer_migration_policy=MigrationPolicy.DISABLED)
    classic_group(harness)
    assert code_of(harness.call(consumer_heartbeat_request("m", epoch))) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("waiting_for", ["join", "sync"])
def test_members_that_wait_in_a_classic_group_join_the_consumer_group(harness: ShardHarness, waiting_for: str) -> None:
    generation, (leader, follower) = classic_group(harness, 2)
    waiting = harness.send(join_request(leader, protocols=protocols()))
    if waiting_for == "sync":
        harness.call(join_request(follower, protocols=protocols()))
        waiting = harness.send(sync_request(follower, generation + 1))
    assert waiting not in harness.responses
    harness.call(consumer_heartbeat_request("m"))
    assert code_of(harness.responses[waiting]) is ErrorCode.REBALANCE_IN_PROGRESS
    shares = [rejoin(harness, member)[1] for member in (leader, follower)]
    assert sorted(partition for share in shares for partition in share) != sorted(ALL)
    assert not shares[0] & shares[1]


def test_cooperative_members_own_at_an_upgrade_what_they_had_before_the_rebalance(harness: ShardHarness) -> None:
    """A rebalance that starts over takes assignments back, and cooperative members read on meanwhile."""
    generation, (member,) = classic_group(harness)
    harness.call(join_request(member, protocols=protocols(ALL, generation)))
    join_new(harness, protocols=protocols())
    answer = harness.call(consumer_heartbeat_request("m"))
    assert not owned_in(answer), "the member has all partitions until it has given them up"
    assert not owned_in(harness.call(consumer_heartbeat_request("m", answer.member_epoch)))


def test_cooperative_members_own_at_an_upgrade_what_they_have_not_given_up_yet(harness: ShardHarness) -> None:
    generation, (member,) = classic_group(harness)
    harness.call(join_request(member, protocols=protocols(ALL, generation)))
    kept: Partitions = frozenset({("t", 0)})
    harness.call(sync_request(member, generation + 1, {member: encode_assignment(kept, 2)}))
    assert not owned_in(harness.call(consumer_heartbeat_request("m")))
    assert not owned_in(harness.call(consumer_heartbeat_request("m", generation + 2)))
    _, owned = rejoin(harness, member, kept)
    assert kept <= owned
    assert owned_in(harness.call(consumer_heartbeat_request("m", generation + 2))) == ALL - owned


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (MigrationPolicy.DISABLED, set()),
        (MigrationPolicy.UPGRADE, {"upgrade"}),
        (MigrationPolicy.DOWNGRADE, {"downgrade"}),
        (MigrationPolicy.BIDIRECTIONAL, {"upgrade", "downgrade"}),
    ],
)
def test_policy_says_which_conversions_are_made(policy: MigrationPolicy, allowed: set[str]) -> None:
    harness = shard(consumer_migration_policy=policy)
    classic_group(harness)
    answer = harness.call(consumer_heartbeat_request("m"))
    assert (answer.error is not None) == ("upgrade" not in allowed)
    if answer.error is not None:
        assert code_of(answer) is ErrorCode.GROUP_ID_NOT_FOUND
        assert policy in answer.error.message
    harness = shard(consumer_migration_policy=policy)
    harness.call(consumer_heartbeat_request("m"))
    join_new(harness, protocols=protocols())
    harness.call(consumer_heartbeat_request("m", -1))
    assert group_type(harness) == ("classic" if "downgrade" in allowed else "consumer")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"protocol_type": "connect"}, "protocol type 'connect'"),
        ({"protocols": [("range", b"x")]}, "cannot be read"),
    ],
)
def test_group_that_cannot_be_upgraded_stays_and_says_why(
    harness: ShardHarness, options: dict[str, Any], sentence: str
) -> None:
    join_new(harness, **{"protocols": protocols(), **options})
    harness.pass_time(0)
    answer = harness.call(consumer_heartbeat_request("m"))
    assert code_of(answer) is ErrorCode.GROUP_ID_NOT_FOUND
    assert sentence in answer.error.message
    assert group_type(harness) == "classic"


@pytest.mark.parametrize("assignor", ["mine", "cooperative-sticky"])
def test_group_with_data_of_an_assignor_of_its_own_is_not_upgraded(harness: ShardHarness, assignor: str) -> None:
    """librdkafka's leaders give members of the known assignors data that these do not need."""
    member, call = join_new(harness, protocols=[(assignor, metadata())])
    harness.pass_time(0)
    assignment = encode_assignment(ALL, 2)[:-4] + b"\0\0\0\1x"
    generation = harness.responses[call].generation_id
    harness.call(sync_request(member, generation, {member: assignment}, protocol=assignor))
    answer = harness.call(consumer_heartbeat_request("m"))
    if assignor != "mine":
        assert answer.member_epoch == generation + 1
        return
    assert code_of(answer) is ErrorCode.GROUP_ID_NOT_FOUND
    assert "data of its own" in answer.error.message


def test_group_larger_than_the_other_protocol_allows_is_not_converted() -> None:
    harness = shard(consumer_max_size=1)
    classic_group(harness, 2)
    assert code_of(harness.call(consumer_heartbeat_request("m"))) is ErrorCode.GROUP_ID_NOT_FOUND
    harness = shard(group_max_size=1)
    harness.call(consumer_heartbeat_request("m"))
    for _ in range(2):
        join_new(harness, protocols=protocols())
    harness.call(consumer_heartbeat_request("m", -1))
    assert group_type(harness) == "consumer"


def test_conversion_that_cannot_be_written_leaves_the_group(harness: ShardHarness) -> None:
    generation, (member,) = classic_group(harness)
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(harness.call(consumer_heartbeat_request("m"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.call(heartbeat_request(member, generation)).error is None
    harness.fails_writes = None
    harness.call(consumer_heartbeat_request("m"))
    epoch, _ = rejoin(harness, member)
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(harness.call(consumer_heartbeat_request("m", -1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.call(heartbeat_request(member, epoch)).error is None
    assert group_type(harness) == "consumer"


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_classic_member_that_is_late_in_a_rebalance_is_removed(harness: ShardHarness, phase: str) -> None:
    generation, (member,) = classic_group(harness, rebalance_timeout_ms=20_000)
    harness.call(consumer_heartbeat_request("m"))
    if phase == "sync":
        answer = harness.call(join_request(member, protocols=protocols(), rebalance_timeout_ms=20_000))
        generation = answer.generation_id
    for _ in range(4):
        answer = harness.call(heartbeat_request(member, generation))
        harness.pass_time(5_000)
    assert code_of(harness.call(heartbeat_request(member, generation))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_of_classic_members_are_refused_as_kafka_does(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    member_id, call = join_new(harness, protocols=protocols())
    generation = harness.responses[call].generation_id
    unknown = [sync_request("x", 1), heartbeat_request("x", 1), sync_request("m", 1), heartbeat_request("m", 1)]
    assert {code_of(harness.call(request)) for request in unknown} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert code_of(harness.call(sync_request(member_id, 9))) is ErrorCode.ILLEGAL_GENERATION
    assert code_of(harness.call(heartbeat_request(member_id, 9))) is ErrorCode.ILLEGAL_GENERATION
    other = sync_request(member_id, generation, protocol="sticky")
    assert code_of(harness.call(other)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for refused in ({"protocols": [("sticky", metadata())]}, {"protocol_type": "connect"}, {"protocols": []}):
        answer = harness.call(join_request(**{"protocols": protocols(), **refused}))
        assert code_of(answer) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = harness.call(join_request(protocols=[("range", b"x")]))
    assert code_of(answer) is ErrorCode.INVALID_REQUEST
    assert "'range'" in answer.error.message


def test_full_group_refuses_a_classic_member() -> None:
    harness = shard(consumer_max_size=1)
    harness.call(consumer_heartbeat_request("m"))
    assert code_of(harness.call(join_request(protocols=protocols()))) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_offsets_of_a_classic_member_are_those_of_its_generation(harness: ShardHarness) -> None:
    _, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    epoch, _ = rejoin(harness, member)
    offsets = {("t", 0): 5}
    request = replace(commit_request(offsets, member_id=member, generation=epoch), without_member_epochs=True)
    assert harness.call(request).topics[0].partitions[0].error is None, "its client need not know of epochs"
    stale = harness.call(commit_request(offsets, member_id=member, generation=epoch - 1))
    assert code_of(stale.topics[0].partitions[0]) is ErrorCode.ILLEGAL_GENERATION
    assert fetched_offsets(harness) == offsets


def test_leaving_classic_members_are_answered_each_for_itself(harness: ShardHarness) -> None:
    _, members = classic_group(harness, 2)
    harness.call(consumer_heartbeat_request("m"))
    answer = harness.call(leave_request(members[0], "x"))
    assert [left.error and left.error.code for left in answer.members] == [None, ErrorCode.UNKNOWN_MEMBER_ID]
    assert code_of(harness.call(heartbeat_request(members[0], 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group_type(harness) == "consumer"
    assert harness.call(leave_request("x")).error is None


def test_static_member_changes_its_protocol_and_keeps_its_partitions(harness: ShardHarness) -> None:
    call = harness.send(join_request(protocols=protocols(), instance="i"))
    harness.pass_time(0)
    first = harness.responses[call]
    generation = first.generation_id
    harness.call(sync_request(first.member_id, generation, {first.member_id: encode_assignment(ALL, 2)}, instance="i"))
    answer = harness.call(consumer_heartbeat_request("m", group_instance_id="i"))
    assert owned_in(answer) == ALL
    fenced = harness.call(heartbeat_request(first.member_id, generation, instance="i"))
    assert code_of(fenced) is ErrorCode.FENCED_INSTANCE_ID
    back = harness.call(join_request(protocols=protocols(), instance="i"))
    assert group_type(harness) == "classic", "it was the last member of the consumer protocol"
    beat = harness.call(heartbeat_request(back.member_id, back.generation_id, instance="i"))
    assert beat.error is None, "it owns all that it is to own: there is nothing to rebalance"
    synced = harness.call(sync_request(back.member_id, back.generation_id, instance="i"))
    assert read_assignment(synced.assignment)[0] == ALL
    again = harness.call(join_request(back.member_id, protocols=protocols(), instance="i"))
    assert (again.generation_id, again.leader) == (back.generation_id + 1, back.member_id)


def test_descriptions_tell_members_of_both_protocols_apart(harness: ShardHarness) -> None:
    _, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    (group,) = harness.call(ConsumerGroupDescribeRequest(group_ids=("g",))).groups
    assert {each.member_id: each.uses_classic_protocol for each in group.members} == {member: True, "m": False}
    (old,) = harness.call(DescribeGroupsRequest(group_ids=("g",))).groups
    assert code_of(old) is ErrorCode.GROUP_ID_NOT_FOUND


def test_members_wait_until_the_topics_are_known() -> None:
    harness = shard()
    _, (member,) = classic_group(harness)
    harness.call(consumer_heartbeat_request("m"))
    epoch, _ = rejoin(harness, member)
    harness.reload()
    join = join_request(member, protocols=protocols())
    assert code_of(harness.call(join)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_of(harness.call(sync_request(member, epoch))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.call(heartbeat_request(member, epoch)).error is None


def test_unknown_classic_protocol_of_a_later_version_is_read(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    later = b"\0\x09" + metadata()[2:] + b"\xff\xff" + b"more"
    member_id, call = join_new(harness, protocols=[("range", later)])
    answer = harness.call(sync_request(member_id, harness.responses[call].generation_id))
    assert answer.assignment[:2] == b"\0\3", "the highest version that there is"
