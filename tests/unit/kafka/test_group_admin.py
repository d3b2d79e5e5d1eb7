"""FindCoordinator, ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups, with the real coordinator."""

import asyncio

from kafka_groups import PARTITIONS, TOPIC_ID, kafka_groups

from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.messages.group_admin import (
    ConsumerGroupDescribeRequest,
    Coordinator,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from tidelog_node.kafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest
from tidelog_node.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

NO_OPERATIONS = -(2**31)
ALL_OPERATIONS = 0b1101_0100_1000
"""READ (3), DELETE (6), DESCRIBE (8), DESCRIBE_CONFIGS (10), ALTER_CONFIGS (11)."""
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND.code


def running(test, path, **settings):
    """Run a coroutine with a node's groups."""

    async def run():
        async with kafka_groups(path, **settings) as groups:
            await test(groups)

    asyncio.run(run())


async def find(groups, version, *keys, key_type=0, listener="PLAINTEXT"):
    """Return each coordinator, without its message; up to version 3 of the only key."""
    request = FindCoordinatorRequest(keys[0], key_type, list(keys))
    answer = await groups.ask(request, version, listener=listener)
    assert len(answer.coordinators) == (len(keys) if version >= 4 else 0)
    found = answer.coordinators or [Coordinator(keys[0], answer.node_id, answer.host, answer.port, answer.error_code)]
    return [(c.key, c.node_id, c.host, c.port, c.error_code) for c in found]


def test_coordinator_is_found_by_the_callers_listener(tmp_path):
    async def test(groups):
        for version in range(7):
            assert await find(groups, version, "g") == [("g", 1, "kafka", 9092, 0)]
            (other,) = await find(groups, version, "g", listener="EXTERNAL")
            assert other == ("g", -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE.code)
        found = await find(groups, 4, "a", "b", "a")
        assert [(key, node) for key, node, *_ in found] == [("a", 1), ("b", 1), ("a", 1)]
        await groups.move_away()
        for version in range(7):
            assert await find(groups, version, "g") == [("g", -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE.code)]

    running(test, tmp_path)


def test_coordinators_of_shares_are_refused_for_good(tmp_path):
    async def test(groups):
        for version in range(1, 7):
            for key_type in (2, 9):
                (share,) = await find(groups, version, "g", key_type=key_type)
                assert share == ("g", -1, "", -1, ErrorCode.INVALID_REQUEST.code)

    running(test, tmp_path)


async def three_groups(groups):
    """Make a classic group g, a consumer group k, and a group r that only has offsets."""
    await groups.single_member()
    join = ConsumerGroupHeartbeatRequest("k", "m", 0, "i", None, 10_000, ["t"], topic_partitions=[])
    assert (await groups.ask(join, 1, client="app")).error_code == 0
    partitions = [OffsetCommitRequestPartition(0, 5)]
    topic = OffsetCommitRequestTopic("t", TOPIC_ID, partitions)
    await groups.ask(OffsetCommitRequest("r", topics=[topic]), 8)


def test_groups_are_listed_as_each_version_has_them(tmp_path):
    async def test(groups):
        await three_groups(groups)
        states = {"g": "Stable", "k": "Stable", "r": "Empty"}
        types = {"g": "classic", "k": "consumer", "r": "classic"}
        for version in range(6):
            answer = await groups.ask(ListGroupsRequest(), version)
            assert answer.error_code == 0
            assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups] == [
                (g, p, states[g] if version >= 4 else "", types[g] if version >= 5 else "")
                for g, p in (("g", "consumer"), ("k", "consumer"), ("r", ""))
            ]
        for states_filter, types_filter, names in (
            (["stable"], [], ["g", "k"]),
            (["Empty", "Dead"], [], ["r"]),
            ([], ["CONSUMER"], ["k"]),
            (["Stable"], ["classic"], ["g"]),
            ([], ["share"], []),
        ):
            answer = await groups.ask(ListGroupsRequest(states_filter, types_filter), 5)
            assert [g.group_id for g in answer.groups] == names

    running(test, tmp_path)


def test_classic_groups_are_described_as_each_version_has_them(tmp_path):
    async def test(groups):
        await three_groups(groups)
        for version in range(7):
            request = DescribeGroupsRequest(["g", "k", "r", "none"], include_authorized_operations=True)
            answer = await groups.ask(request, version)
            described = {g.group_id: g for g in answer.groups}
            stable, empty = described["g"], described["r"]
            (member,) = stable.members
            assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
            assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"v9", b"all")
            assert (empty.error_code, empty.group_state, empty.protocol_type, empty.members) == (0, "Empty", "", [])
            for name in ("k", "none"):
                gone = described[name]
                assert (gone.error_code, gone.group_state) == (NOT_FOUND if version >= 6 else 0, "Dead")
                assert bool(gone.error_message) == (version >= 6)
            operations = ALL_OPERATIONS if version >= 3 else NO_OPERATIONS
            assert {stable.authorized_operations, empty.authorized_operations} == {operations}
        (group,) = (await groups.ask(DescribeGroupsRequest(["g"]), 6)).groups
        assert group.authorized_operations == NO_OPERATIONS

    running(test, tmp_path)


def test_consumer_groups_are_described_with_what_their_members_own(tmp_path):
    async def test(groups):
        await three_groups(groups)
        for version in (0, 1):
            request = ConsumerGroupDescribeRequest(["k", "g", "none"], include_authorized_operations=True)
            described = {g.group_id: g for g in (await groups.ask(request, version)).groups}
            group = described["k"]
            assert (group.error_code, group.error_message, group.group_state) == (0, None, "Stable")
            assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (1, 1, "uniform")
            assert group.authorized_operations == ALL_OPERATIONS
            (member,) = group.members
            assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", None, 1)
            assert (member.client_id, member.client_host) == ("app", "/127.0.0.1")
            assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], None)
            assert member.member_type == (1 if version else -1)
            for assignment in (member.assignment, member.target_assignment):
                (topic,) = assignment.topic_partitions
                assert (topic.topic_id, topic.topic_name, topic.partitions) == (TOPIC_ID, "t", [0, 1, 2])
            assert {described[name].error_code for name in ("g", "none")} == {NOT_FOUND}
            assert all(described[name].error_message for name in ("g", "none"))

    running(test, tmp_path)


def test_groups_without_members_are_deleted(tmp_path):
    async def test(groups):
        for version in range(3):
            await three_groups(groups)
            answer = await groups.ask(DeleteGroupsRequest(["g", "k", "r", "none"]), version)
            non_empty = ErrorCode.NON_EMPTY_GROUP.code
            codes = {r.group_id: r.error_code for r in answer.results}
            assert codes == {"g": non_empty, "k": non_empty, "r": 0, "none": NOT_FOUND}
            listed = (await groups.ask(ListGroupsRequest(), version)).groups
            assert [g.group_id for g in listed] == ["g", "k"]
            (member,) = (await groups.ask(DescribeGroupsRequest(["g"]), 6)).groups[0].members
            await groups.leave(5, member.member_id)
            leave = ConsumerGroupHeartbeatRequest("k", "m", -1, "i")
            assert (await groups.ask(leave, 1)).error_code == 0
            answer = await groups.ask(DeleteGroupsRequest(["g", "k"]), version)
            assert {r.group_id: r.error_code for r in answer.results} == {"g": 0, "k": 0}

    running(test, tmp_path)


def test_errors_of_the_node_are_said_of_each_group(tmp_path):
    async def test(groups):
        await three_groups(groups)
        assert len({groups.coordinator.shard_of(name) for name in "gkr"}) == PARTITIONS
        await groups.move_away()
        code = ErrorCode.NOT_COORDINATOR.code
        for version in range(7):
            answer = await groups.ask(DescribeGroupsRequest(["g", "r"]), version)
            assert sorted((g.group_id, g.error_code) for g in answer.groups) == [("g", code), ("r", code)]
        answer = await groups.ask(ConsumerGroupDescribeRequest(["k"]), 1)
        assert [g.error_code for g in answer.groups] == [code]
        answer = await groups.ask(DeleteGroupsRequest(["g", "r"]), 2)
        assert [r.error_code for r in answer.results] == [code, code]
        listed = await groups.ask(ListGroupsRequest(), 5)
        assert (listed.error_code, listed.groups) == (0, [])

    running(test, tmp_path)
