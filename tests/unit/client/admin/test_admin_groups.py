"""The admin client's operations on groups: what it asks of coordinators, how often, and what it makes of answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import confluent_kafka
import pytest
from scripted_groups import ScriptedGroups, error

import tidelog
from tidelog import OFFSET_INVALID, AdminClient, KafkaError, KafkaException, TopicPartition
from tidelog.admin import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    MemberAssignment,
    MemberDescription,
    MemberToRemove,
    PartitionLag,
)
from tidelog.consumer.assignors.protocol import encode_assignment
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder


@pytest.fixture
def groups() -> Iterator[ScriptedGroups]:
    with ScriptedGroups() as running:
        yield running


@pytest.fixture
def admin(groups: ScriptedGroups) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": groups.bootstrap_servers, "retry.backoff.ms": 5}) as client:
        yield client


def classic(group_id: str, *members: pb.DescribedGroupMember, **fields: str) -> pb.DescribedGroup:
    given = {"group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"} | fields
    return pb.DescribedGroup(group_id=group_id, members=members, **given)


def has_classic(groups: ScriptedGroups, *found: pb.DescribedGroup) -> None:
    """Let the node have these classic groups and no others."""
    by_id = {g.group_id: g for g in found}
    missing = error(ErrorCode.GROUP_ID_NOT_FOUND)

    def describe_consumer(request: pb.ConsumerGroupDescribeRequest) -> pb.ConsumerGroupDescribeResponse:
        return pb.ConsumerGroupDescribeResponse(
            groups=[pb.DescribedConsumerGroup(group_id=g, error=missing) for g in request.group_ids]
        )

    def describe(request: pb.DescribeGroupsRequest) -> pb.DescribeGroupsResponse:
        dead = {"group_state": "Dead", "error": missing}
        return pb.DescribeGroupsResponse(
            groups=[by_id.get(g, pb.DescribedGroup(group_id=g, **dead)) for g in request.group_ids]
        )

    groups.answers |= {"ConsumerGroupDescribe": describe_consumer, "DescribeGroups": describe}


def has_offsets(groups: ScriptedGroups, *offsets: TopicPartition) -> None:
    def fetch(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
        topics = [
            pb.OffsetFetchTopicResult(
                name=o.topic,
                partitions=[
                    pb.OffsetFetchPartitionResult(
                        index=o.partition, committed_offset=o.offset, committed_leader_epoch=4, metadata="m"
                    )
                ],
            )
            for o in offsets
        ]
        return pb.OffsetFetchResponse(
            groups=[pb.OffsetFetchGroupResult(group_id=g.group_id, topics=topics) for g in request.groups]
        )

    groups.answers["OffsetFetch"] = fetch


def commits(code: ErrorCode | None) -> pb.OffsetCommitResponse:
    results = [
        pb.OffsetCommitPartitionResult(index=0),
        pb.OffsetCommitPartitionResult(index=1, error=error(code) if code else None),
    ]
    return pb.OffsetCommitResponse(topics=[pb.OffsetCommitTopicResult(name="t", partitions=results)])


WANTED = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 5), TopicPartition("t", 1, 6)])]


def test_list_consumer_groups_shows_groups_of_consumers_alone(groups: ScriptedGroups, admin: AdminClient) -> None:
    listings = [
        pb.GroupListing(group_id="b", protocol_type="consumer", group_state="PreparingRebalance", group_type="classic"),
        pb.GroupListing(group_id="a", protocol_type="", group_state="Empty", group_type="classic"),
        pb.GroupListing(group_id="c", protocol_type="connect", group_state="Stable", group_type="classic"),
        pb.GroupListing(group_id="d", protocol_type="consumer", group_state="Reconciling", group_type="consumer"),
    ]
    groups.answers["ListGroups"] = lambda _: pb.ListGroupsResponse(groups=listings)
    result = admin.list_consumer_groups().result(20)
    assert result.errors == []
    assert [(g.group_id, g.is_simple_consumer_group, g.state.name, g.type.name) for g in result.valid] == [
        ("a", True, "EMPTY", "CLASSIC"),
        ("b", False, "PREPARING_REBALANCING", "CLASSIC"),
        ("d", False, "RECONCILING", "CONSUMER"),
    ]


def test_list_consumer_groups_sends_its_filters_by_kafkas_names(groups: ScriptedGroups, admin: AdminClient) -> None:
    groups.answers["ListGroups"] = lambda _: pb.ListGroupsResponse()
    states = {ConsumerGroupState.STABLE, ConsumerGroupState.PREPARING_REBALANCING}
    admin.list_consumer_groups(states=states, types={ConsumerGroupType.CONSUMER}).result(20)
    (request,) = groups.requests["ListGroups"]
    assert list(request.states_filter) == ["PreparingRebalance", "Stable"]
    assert list(request.types_filter) == ["consumer"]


def test_list_consumer_groups_asks_a_node_that_is_loading_again(groups: ScriptedGroups, admin: AdminClient) -> None:
    listing = pb.GroupListing(group_id="a", protocol_type="consumer", group_state="Stable", group_type="classic")
    groups.answers["ListGroups"] = lambda _: pb.ListGroupsResponse(
        error=error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if groups.calls["ListGroups"] < 3 else None,
        groups=[listing],
    )
    assert [g.group_id for g in admin.list_consumer_groups().result(20).valid] == ["a"]
    assert groups.calls["ListGroups"] == 3


def test_list_consumer_groups_has_what_there_is_of_a_node_that_stays_loading(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    listing = pb.GroupListing(group_id="a", protocol_type="consumer", group_state="Stable", group_type="classic")
    loading = error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    ended = threading.Event()

    def answer(_: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        if groups.calls["ListGroups"] > 2:
            # The deadline cuts this attempt short.
            ended.wait(20)
        return pb.ListGroupsResponse(error=loading, groups=[listing])

    groups.answers["ListGroups"] = answer
    try:
        result = admin.list_consumer_groups(request_timeout=1).result(20)
    finally:
        ended.set()
    assert [g.group_id for g in result.valid] == ["a"]
    assert [e.code for e in result.errors] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_describe_consumer_groups_tells_a_classic_group_with_its_members(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    static = pb.DescribedGroupMember(
        member_id="m2",
        group_instance_id="i",
        client_id="c",
        client_host="/127.0.0.1",
        member_assignment=encode_assignment([("t", 1), ("t", 0)]),
    )
    idle = pb.DescribedGroupMember(member_id="m1", client_id="c", client_host="/127.0.0.1")
    has_classic(groups, classic("g", static, idle))
    group = admin.describe_consumer_groups(["g"])["g"].result(20)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    assert (group.partition_assignor, group.is_simple_consumer_group) == ("range", False)
    assert (group.coordinator.id, group.coordinator.port) == (1, groups.port)
    owned = MemberAssignment([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert group.members == [
        MemberDescription("m2", "c", "/127.0.0.1", owned, "i"),
        MemberDescription("m1", "c", "/127.0.0.1", MemberAssignment([])),
    ]


def test_describe_consumer_groups_tells_a_group_of_kip_848_with_its_targets(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    def topics(*partitions: int) -> pb.MemberTopics:
        item = pb.MemberTopicPartitions(topic_id=b"x" * 16, topic_name="t", partitions=partitions)
        return pb.MemberTopics(topics=[item])

    member = pb.DescribedConsumerGroupMember(member_id="m", assignment=topics(0), target_assignment=topics(0, 1))
    described = pb.DescribedConsumerGroup(
        group_id="g", group_state="Reconciling", group_epoch=3, assignment_epoch=2, assignor_name="uniform"
    )
    described.members.append(member)
    groups.answers["ConsumerGroupDescribe"] = lambda _: pb.ConsumerGroupDescribeResponse(groups=[described])
    group = admin.describe_consumer_groups(["g"])["g"].result(20)
    assert (group.type, group.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.RECONCILING)
    assert (group.group_epoch, group.assignment_epoch, group.partition_assignor) == (3, 2, "uniform")
    target = group.members[0].target_assignment
    assert target is not None
    assert target.topic_partitions == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert groups.calls["DescribeGroups"] == 0


def test_describe_consumer_groups_fails_alone_for_a_group_that_is_not_there(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    has_classic(groups, classic("there"))
    futures = admin.describe_consumer_groups(["there", "gone"])
    assert futures["there"].result(20).members == []
    with pytest.raises(KafkaException) as caught:
        futures["gone"].result(20)
    assert caught.value.args[0] == KafkaError.GROUP_ID_NOT_FOUND


def test_describe_consumer_groups_refuses_a_group_of_connect(groups: ScriptedGroups, admin: AdminClient) -> None:
    has_classic(groups, classic("g", protocol_type="connect"))
    with pytest.raises(KafkaException, match=r'"g" is not a consumer group: its protocol type is "connect"'):
        admin.describe_consumer_groups(["g"])["g"].result(20)


def test_describe_consumer_groups_names_the_group_whose_assignment_is_broken(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    has_classic(groups, classic("g", pb.DescribedGroupMember(member_id="m", member_assignment=b"\x00")))
    with pytest.raises(KafkaException, match='group "g"'):
        admin.describe_consumer_groups(["g"])["g"].result(20)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_describe_consumer_groups_finds_a_coordinator_that_moved(
    groups: ScriptedGroups, admin: AdminClient, code: ErrorCode
) -> None:
    moved = pb.DescribedConsumerGroup(group_id="g", error=error(code))
    found = pb.DescribedConsumerGroup(group_id="g", group_state="Stable")
    groups.answers["ConsumerGroupDescribe"] = lambda _: pb.ConsumerGroupDescribeResponse(
        groups=[moved if groups.calls["ConsumerGroupDescribe"] < 3 else found]
    )
    assert admin.describe_consumer_groups(["g"])["g"].result(20).group_id == "g"
    assert groups.calls["FindCoordinator"] == 3


def test_delete_consumer_groups_has_an_outcome_for_each(groups: ScriptedGroups, admin: AdminClient) -> None:
    busy = pb.DeletedGroup(group_id="busy", error=error(ErrorCode.NON_EMPTY_GROUP))
    groups.answers["DeleteGroups"] = lambda _: pb.DeleteGroupsResponse(groups=[busy, pb.DeletedGroup(group_id="idle")])
    futures = admin.delete_consumer_groups(["idle", "busy"])
    assert futures["idle"].result(20) is None
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        futures["busy"].result(20)


def test_delete_consumer_groups_takes_a_lost_answer_for_what_it_was(groups: ScriptedGroups, admin: AdminClient) -> None:
    gone = pb.DeletedGroup(group_id="g", error=error(ErrorCode.GROUP_ID_NOT_FOUND))
    groups.answers["DeleteGroups"] = lambda _: pb.DeleteGroupsResponse(groups=[gone])
    groups.faults["DeleteGroups"].append(ErrorCode._TRANSPORT)
    assert admin.delete_consumer_groups(["g"])["g"].result(20) is None
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups(["g"])["g"].result(20)


def test_list_consumer_group_offsets_asks_for_all_that_are_committed(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    has_offsets(groups, TopicPartition("t", 1, 7), TopicPartition("t", 0, -1))
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(20)
    assert [(p.partition, p.offset, p.leader_epoch, p.metadata) for p in found.topic_partitions or ()] == [
        (0, OFFSET_INVALID, 4, "m"),
        (1, 7, 4, "m"),
    ]
    assert [g.all_topics for g in groups.requests["OffsetFetch"][0].groups] == [True]


def test_list_consumer_group_offsets_waits_for_an_unstable_offset(groups: ScriptedGroups, admin: AdminClient) -> None:
    def fetch(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
        unstable = error(ErrorCode.UNSTABLE_OFFSET_COMMIT) if groups.calls["OffsetFetch"] < 3 else None
        result = pb.OffsetFetchPartitionResult(index=0, committed_offset=9, error=unstable)
        topic = pb.OffsetFetchTopicResult(name="t", partitions=[result])
        return pb.OffsetFetchResponse(groups=[pb.OffsetFetchGroupResult(group_id="g", topics=[topic])])

    groups.answers["OffsetFetch"] = fetch
    wanted = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0)])]
    found = admin.list_consumer_group_offsets(wanted, require_stable=True)["g"].result(20)
    assert [p.offset for p in found.topic_partitions or ()] == [9]
    assert [r.require_stable for r in groups.requests["OffsetFetch"]] == [True] * 3


def test_alter_consumer_group_offsets_keeps_the_error_of_a_partition_with_it(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    groups.answers["OffsetCommit"] = lambda _: commits(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    result = admin.alter_consumer_group_offsets(WANTED)["g"].result(20)
    errors = [p.error and p.error.code() for p in result.topic_partitions or ()]
    assert errors == [None, KafkaError.OFFSET_METADATA_TOO_LARGE]
    (request,) = groups.requests["OffsetCommit"]
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")


def test_alter_consumer_group_offsets_fails_for_a_group_with_members(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    groups.answers["OffsetCommit"] = lambda _: commits(ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        admin.alter_consumer_group_offsets(WANTED)["g"].result(20)


def test_alter_consumer_group_offsets_asks_a_coordinator_that_is_loading_again(
    groups: ScriptedGroups, admin: AdminClient
) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    groups.answers["OffsetCommit"] = lambda _: commits(loading if groups.calls["OffsetCommit"] < 3 else None)
    result = admin.alter_consumer_group_offsets(WANTED)["g"].result(20)
    assert [p.offset for p in result.topic_partitions or ()] == [5, 6]


@pytest.mark.parametrize(
    ("partition_error", "group_error", "expected"),
    [
        (None, None, [None, None]),
        (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, None, [None, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC]),
        (None, ErrorCode.GROUP_ID_NOT_FOUND, None),
    ],
)
def test_delete_consumer_group_offsets_tells_the_errors_of_partitions_from_the_groups(
    groups: ScriptedGroups,
    admin: AdminClient,
    partition_error: ErrorCode | None,
    group_error: ErrorCode | None,
    expected: list[int | None] | None,
) -> None:
    whole: Error | None = error(group_error) if group_error else None
    groups.answers["OffsetDelete"] = lambda _: pb.OffsetDeleteResponse(
        error=whole, topics=commits(partition_error).topics
    )
    future = admin.delete_consumer_group_offsets(WANTED)["g"]
    if expected is None:
        with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
            future.result(20)
    else:
        partitions = future.result(20).topic_partitions or ()
        assert [p.error and p.error.code() for p in partitions] == expected


def test_remove_members_takes_all_that_the_group_has(groups: ScriptedGroups, admin: AdminClient) -> None:
    static = pb.DescribedGroupMember(member_id="m1", group_instance_id="i")
    has_classic(groups, classic("g", static, pb.DescribedGroupMember(member_id="m2")))
    refused = pb.LeftMember(member_id="m2", error=error(ErrorCode.UNKNOWN_MEMBER_ID))
    groups.answers["LeaveGroup"] = lambda _: pb.LeaveGroupResponse(
        members=[pb.LeftMember(member_id="m1", group_instance_id="i"), refused]
    )
    outcomes = admin.remove_members_from_consumer_group("g", reason="moved").result(20)
    assert outcomes[MemberToRemove("i")] is None
    failure = outcomes[MemberToRemove(member_id="m2")]
    assert failure is not None
    assert failure.code is ErrorCode.UNKNOWN_MEMBER_ID
    (request,) = groups.requests["LeaveGroup"]
    assert [(m.member_id, m.group_instance_id, m.reason) for m in request.members] == [
        ("", "i", "moved"),
        ("m2", "", "moved"),
    ]


def test_consumer_group_lags_joins_offsets_ends_and_owners(groups: ScriptedGroups, admin: AdminClient) -> None:
    groups.cluster.create_topic("t", 3)
    batch = RecordBatchBuilder()
    for _ in range(5):
        batch.append(None, b"v")
    groups.cluster.append("t", 0, batch.build())
    member = pb.DescribedGroupMember(member_id="m", member_assignment=encode_assignment([("t", 0), ("t", 1)]))
    has_classic(groups, classic("g", member))
    has_offsets(groups, TopicPartition("t", 0, 2), TopicPartition("t", 2, 8), TopicPartition("gone", 0, 1))
    lags = admin.consumer_group_lags(["g"])["g"].result(20)

    def shown(item: PartitionLag) -> tuple[object, ...]:
        owner = item.member.member_id if item.member else None
        return (item.topic, item.partition, item.committed_offset, item.log_end_offset, item.lag, owner)

    assert [shown(item) for item in lags] == [
        ("gone", 0, 1, None, None, None),
        ("t", 0, 2, 5, 3, "m"),
        ("t", 1, None, 0, None, "m"),
        ("t", 2, 8, 0, 0, None),
    ]
    assert lags[0].error is not None
    assert lags[0].error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_list_groups_shows_groups_of_any_protocol_type(groups: ScriptedGroups, admin: AdminClient) -> None:
    listing = pb.GroupListing(group_id="g", protocol_type="connect", group_state="Stable", group_type="classic")
    groups.answers["ListGroups"] = lambda _: pb.ListGroupsResponse(groups=[listing])
    has_classic(groups, classic("g", pb.DescribedGroupMember(member_id="m"), protocol_type="connect"))
    (found,) = admin.list_groups(timeout=20)
    assert (found.id, found.protocol_type, found.broker.id, [m.id for m in found.members]) == ("g", "connect", 1, ["m"])
    assert admin.list_groups("another", timeout=20) == []


@pytest.mark.parametrize(
    ("call", "failure"),
    [
        (lambda a: a.describe_consumer_groups("g"), TypeError),
        (lambda a: a.describe_consumer_groups([]), ValueError),
        (lambda a: a.delete_consumer_groups([""]), ValueError),
        (lambda a: a.list_consumer_groups(states={"Stable"}), TypeError),
        (lambda a: a.list_consumer_group_offsets(WANTED), ValueError),
        (lambda a: a.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [])]), ValueError),
        (lambda a: a.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")] * 2), ValueError),
        (lambda a: a.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]), ValueError),
        (lambda a: a.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [("t", 0)])]), TypeError),
        (
            lambda a: a.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0)])]),
            ValueError,
        ),
        (lambda a: a.delete_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]), ValueError),
        (lambda a: a.remove_members_from_consumer_group("g", [MemberToRemove()]), ValueError),
    ],
)
def test_operations_on_groups_refuse_what_they_cannot_ask(admin: AdminClient, call: object, failure: type) -> None:
    with pytest.raises(failure):
        call(admin)  # type: ignore[operator]


def test_names_of_groups_are_those_of_confluent_kafka() -> None:
    for name in ("ConsumerGroupState", "ConsumerGroupType", "IsolationLevel", "ElectionType"):
        theirs = {e.name: e.value for e in getattr(confluent_kafka, name)}
        ours = {e.name: e.value for e in getattr(tidelog, name)}
        assert theirs.keys() <= ours.keys()
    for state in confluent_kafka.ConsumerGroupState:
        assert tidelog.ConsumerGroupState[state.name].value == state.value
