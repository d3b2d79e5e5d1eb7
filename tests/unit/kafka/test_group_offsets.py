"""OffsetCommit, OffsetFetch and OffsetDelete in all their versions, with the real coordinator behind them."""

import asyncio

from kafka_groups import OTHER_TOPIC_ID, TOPIC_ID, UNKNOWN_TOPIC_ID, kafka_groups

from tidelog_foundation.errors import ErrorCode
from tidelog_node import handlers
from tidelog_node.kafka.protocol.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
)
from tidelog_node.kafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest
from tidelog_node.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tidelog_node.kafka.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

COMMITS, FETCHES = range(2, 11), range(1, 11)
IDS = {"t": TOPIC_ID, "u": OTHER_TOPIC_ID}


def running(test, path, **settings):
    """Run a coroutine with a node's groups."""

    async def run():
        async with kafka_groups(path, **settings) as groups:
            await test(groups)

    asyncio.run(run())


async def commit(groups, version, offsets, member_id="", epoch=-1, group="g", **fields):
    """Return the error code by topic, or its id, and partition; ``offsets`` are by topic and partition."""
    topics = [
        OffsetCommitRequestTopic(
            topic, IDS.get(topic, UNKNOWN_TOPIC_ID), [OffsetCommitRequestPartition(index, offset, 3, "note")]
        )
        for (topic, index), offset in offsets.items()
    ]
    request = OffsetCommitRequest(group, epoch, member_id, topics=topics)
    for name, value in fields.items():
        setattr(request, name, value)
    answer = await groups.ask(request, version)
    return {
        (t.name if version < 10 else t.topic_id, p.partition_index): p.error_code
        for t in answer.topics
        for p in t.partitions
    }


def wanted(version, topics, group="g", member_id=None, epoch=-1):
    """Return an OffsetFetch of one group, as its version has it; ``topics`` None: all."""
    named = topics and [OffsetFetchRequestTopic(t, IDS.get(t, UNKNOWN_TOPIC_ID), list(p)) for t, p in topics.items()]
    if version < 8:
        return OffsetFetchRequest(group, named)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, member_id, epoch, named)])


async def fetch(groups, version, topics, **options):
    """Return the group's error, and (offset, leader epoch, metadata, error) by topic or id, and partition."""
    answer = await groups.ask(wanted(version, topics, **options), version)
    group = answer if version < 8 else answer.groups[0]
    return group.error_code, {
        (t.name if version < 10 else t.topic_id, p.partition_index): (
            p.committed_offset,
            p.committed_leader_epoch,
            p.metadata,
            p.error_code,
        )
        for t in group.topics
        for p in t.partitions
    }


def test_offsets_of_every_version_are_read_in_every_version(tmp_path):
    async def test(groups):
        for written in COMMITS:
            topic = TOPIC_ID if written >= 10 else "t"
            assert await commit(groups, written, {("t", 1): written}) == {(topic, 1): 0}
            for read in FETCHES:
                topic = TOPIC_ID if read >= 10 else "t"
                epoch = 3 if written >= 6 and read >= 5 else -1
                found = {(topic, 0): (-1, -1, "", 0), (topic, 1): (written, epoch, "note", 0)}
                assert await fetch(groups, read, {"t": [0, 1]}) == (0, found)
                if read >= 2:
                    assert await fetch(groups, read, None) == (0, {(topic, 1): found[topic, 1]})

    running(test, tmp_path)


def test_topics_and_ids_that_are_not_known_are_said_so_where_they_stand(tmp_path):
    async def test(groups):
        offsets = {("none", 0): 1, ("t", 0): 2, ("t", 9): 3}
        unknown, unknown_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code, ErrorCode.UNKNOWN_TOPIC_ID.code
        assert await commit(groups, 9, offsets) == {("none", 0): unknown, ("t", 0): 0, ("t", 9): unknown}
        codes = await commit(groups, 10, offsets)
        assert codes == {(UNKNOWN_TOPIC_ID, 0): unknown_id, (TOPIC_ID, 0): 0, (TOPIC_ID, 9): unknown}
        assert next(iter(codes)) == (UNKNOWN_TOPIC_ID, 0)
        assert await commit(groups, 10, {("none", 4): 1}) == {(UNKNOWN_TOPIC_ID, 4): unknown_id}

        none = (-1, -1, "", 0)
        asked = {"none": [5], "t": [0], "u": [0]}
        assert await fetch(groups, 9, asked) == (0, {("none", 5): none, ("t", 0): (2, 3, "note", 0), ("u", 0): none})
        assert await fetch(groups, 10, asked) == (
            0,
            {
                (UNKNOWN_TOPIC_ID, 5): (-1, -1, "", unknown_id),
                (TOPIC_ID, 0): (2, 3, "note", 0),
                (OTHER_TOPIC_ID, 0): none,
            },
        )

    running(test, tmp_path)


def test_several_groups_are_fetched_in_one_request(tmp_path):
    async def test(groups):
        for number in range(4):
            await commit(groups, 8, {("t", 0): number}, group=f"group-{number}")
        asked = [OffsetFetchRequestGroup(f"group-{n}", topics=None) for n in (3, 0, 9, 1)]
        answer = await groups.ask(OffsetFetchRequest(groups=asked, require_stable=True), 8)
        assert [g.group_id for g in answer.groups] == ["group-3", "group-0", "group-9", "group-1"]
        offsets = [[p.committed_offset for t in g.topics for p in t.partitions] for g in answer.groups]
        assert offsets == [[3], [0], [], [1]]

    running(test, tmp_path)


def test_group_with_an_empty_id_keeps_offsets_and_can_be_found_and_deleted(tmp_path):
    async def test(groups):
        assert await commit(groups, 8, {("t", 0): 7}, group="") == {("t", 0): 0}
        assert await fetch(groups, 8, None, group="") == (0, {("t", 0): (7, 3, "note", 0)})
        (found,) = (await groups.ask(FindCoordinatorRequest(coordinator_keys=[""]), 4)).coordinators
        assert (found.error_code, found.node_id) == (0, 1)
        (described,) = (await groups.ask(DescribeGroupsRequest([""]), 6)).groups
        assert (described.error_code, described.group_state) == (0, "Empty")
        invalid = await groups.ask(ConsumerGroupDescribeRequest([""]), 1)
        assert [g.error_code for g in invalid.groups] == [ErrorCode.INVALID_GROUP_ID.code]
        assert [r.error_code for r in (await groups.ask(DeleteGroupsRequest([""]), 2)).results] == [0]
        assert await fetch(groups, 8, None, group="") == (0, {})

    running(test, tmp_path)


def test_commit_of_a_member_is_checked_as_its_version_can_be_told(tmp_path):
    async def test(groups):
        joined = await groups.single_member()
        member = {"member_id": joined.member_id, "epoch": joined.generation_id}
        for version in COMMITS:
            topic = TOPIC_ID if version >= 10 else "t"

            async def code(version=version, topic=topic, **options):
                return (await commit(groups, version, {("t", 0): 1}, **options))[topic, 0]

            assert await code(**member) == 0
            assert await code(**member | {"epoch": 7}) == ErrorCode.ILLEGAL_GENERATION.code
            assert await code(**member | {"member_id": "nobody"}) == ErrorCode.UNKNOWN_MEMBER_ID.code
            assert await code() == ErrorCode.UNKNOWN_MEMBER_ID.code
            missing = await code(**member, group="no-group")
            later = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
            assert missing == later.code
            large = ErrorCode.OFFSET_METADATA_TOO_LARGE.code
            topics = [OffsetCommitRequestTopic("t", TOPIC_ID, [OffsetCommitRequestPartition(0, 1, -1, "m" * 5_000)])]
            assert await code(**member, topics=topics) == large

    running(test, tmp_path)


def test_commit_names_what_there_is_not_whatever_else_is_wrong_with_it(tmp_path):
    """The coordinator receives only the existing partitions, if any, as in Kafka's KafkaApis."""

    async def test(groups):
        joined = await groups.single_member()
        unknown, illegal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code, ErrorCode.ILLEGAL_GENERATION.code
        offsets = {("none", 0): 1, ("t", 0): 2, ("t", 9): 3}
        for version in COMMITS:
            known, other = (TOPIC_ID, UNKNOWN_TOPIC_ID) if version >= 10 else ("t", "none")
            missing = ErrorCode.UNKNOWN_TOPIC_ID.code if version >= 10 else unknown
            codes = await commit(groups, version, offsets, joined.member_id, 7)
            assert codes == {(other, 0): missing, (known, 0): illegal, (known, 9): unknown}
        await groups.move_away()
        assert await commit(groups, 9, {("none", 0): 1, ("t", 9): 3}) == {("none", 0): unknown, ("t", 9): unknown}
        assert await commit(groups, 9, {}) == {}

    running(test, tmp_path)


def test_commit_in_a_transaction_names_what_there_is_not_whatever_else_is_wrong_with_it(tmp_path):
    partitions = [TxnOffsetCommitRequestPartition(index, 5) for index in (0, 9)]
    topics = [TxnOffsetCommitRequestTopic(topic, partitions) for topic in ("t", "none")]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test(groups):
        for request, version, error in (
            (TxnOffsetCommitRequest("id", "g", 1, 0), 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (TxnOffsetCommitRequest("id", "g", 1, 0), 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (TxnOffsetCommitRequest("id", "", 1, 0), 4, ErrorCode.INVALID_GROUP_ID),
            (TxnOffsetCommitRequest("id", "g", 1, -1), 5, ErrorCode.INVALID_PRODUCER_EPOCH),
            (TxnOffsetCommitRequest("id", "g", -1, 0), 5, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ):
            request.topics = topics
            answer = await groups.ask(request, version)
            codes = {t.name: [ErrorCode.of(p.error_code) for p in t.partitions] for t in answer.topics}
            assert codes == {"t": [error, unknown], "none": [unknown, unknown]}

    running(test, tmp_path)


def test_members_with_epochs_commit_and_fetch_with_them(tmp_path):
    async def test(groups):
        join = ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 10_000, ["t"], topic_partitions=[])
        epoch = (await groups.ask(join, 1)).member_epoch
        stale, unknown = ErrorCode.STALE_MEMBER_EPOCH.code, ErrorCode.UNKNOWN_MEMBER_ID.code
        for version in COMMITS:
            topic = TOPIC_ID if version >= 10 else "t"
            refused = 0 if version >= 9 else ErrorCode.UNSUPPORTED_VERSION.code
            assert await commit(groups, version, {("t", 0): 1}, "m", epoch) == {(topic, 0): refused}
            assert await commit(groups, version, {("t", 0): 1}, "m", 7) == {(topic, 0): refused or stale}
            assert await commit(groups, version, {("t", 0): 1}, "x", epoch) == {(topic, 0): unknown}
        for version in (9, 10):
            assert (await fetch(groups, version, None, member_id="m", epoch=epoch))[0] == 0
            assert await fetch(groups, version, {"t": [0]}, member_id="m", epoch=7) == (stale, {})
            assert await fetch(groups, version, None, member_id="x", epoch=epoch) == (unknown, {})
            assert await fetch(groups, version, None, epoch=epoch) == (unknown, {})
            assert (await fetch(groups, version, None))[0] == 0

    running(test, tmp_path)


def test_errors_of_the_node_stand_where_each_version_has_them(tmp_path):
    async def test(groups):
        await commit(groups, 8, {("t", 0): 1})
        await groups.move_away()
        code = ErrorCode.NOT_COORDINATOR.code
        for version in COMMITS:
            assert set((await commit(groups, version, {("t", 0): 1, ("u", 0): 1})).values()) == {code}
        await assert_fetches_fail(groups, code)
        assert (await delete(groups, {"t": [0]})) == (code, {})

    running(test, tmp_path, moved_ms=0)


def test_offset_fetch_is_repeated_by_librdkafka_when_the_coordinator_has_just_moved(tmp_path):
    async def test(groups):
        await commit(groups, 8, {("t", 0): 1})
        await groups.move_away()
        await assert_fetches_fail(groups, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code)

    running(test, tmp_path, moved_ms=60_000)


async def assert_fetches_fail(groups, code):
    failed = {("t", 0): (-1, -1, "", code), ("t", 1): (-1, -1, "", code)}
    assert await fetch(groups, 1, {"t": [0, 1]}) == (0, failed)
    for version in range(2, 11):
        assert await fetch(groups, version, {"t": [0, 1]}) == (code, {})
        assert await fetch(groups, version, None) == (code, {})


async def delete(groups, topics, group="g"):
    """Return the group's error, and the code by topic and partition."""
    named = [OffsetDeleteRequestTopic(t, [OffsetDeleteRequestPartition(i) for i in p]) for t, p in topics.items()]
    answer = await groups.ask(OffsetDeleteRequest(group, named), 0)
    return answer.error_code, {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def test_offsets_are_deleted_but_for_those_that_are_read(tmp_path):
    async def test(groups):
        await commit(groups, 8, {("t", 0): 1, ("t", 1): 2, ("u", 0): 3})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        codes = {("t", 0): 0, ("t", 9): unknown, ("none", 0): unknown}
        assert await delete(groups, {"t": [0, 9], "none": [0]}) == (0, codes)
        assert await delete(groups, {"none": [0]}) == (0, {("none", 0): unknown})
        assert set((await fetch(groups, 8, None))[1]) == {("t", 1), ("u", 0)}
        for asked in ({"t": [0]}, {"none": [0]}, {}):
            assert await delete(groups, asked, "no-group") == (ErrorCode.GROUP_ID_NOT_FOUND.code, {})
            assert await delete(groups, asked, "") == (ErrorCode.INVALID_GROUP_ID.code, {})

    running(test, tmp_path)


def test_a_commit_of_more_offsets_than_one_may_have_is_refused_as_a_whole(tmp_path, monkeypatch):
    async def check(groups):
        monkeypatch.setattr(handlers.group_offsets, "MOST_OFFSETS", 2)
        both = {("t", 0): 5, ("t", 1): 6}
        assert set((await commit(groups, 9, both)).values()) == {0}
        more = {("t", 0): 7, ("t", 1): 8, ("t", 2): 9, ("nowhere", 0): 1}
        too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE.code
        assert await commit(groups, 9, more) == {
            ("t", 0): too_large,
            ("t", 1): too_large,
            ("t", 2): too_large,
            ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
        }
        answer = await groups.ask(wanted(9, {"t": [0, 1, 2]}), 9)
        [topic] = answer.groups[0].topics
        assert [p.committed_offset for p in topic.partitions] == [5, 6, -1]

    running(check, tmp_path)
