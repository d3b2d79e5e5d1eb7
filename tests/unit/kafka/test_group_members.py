"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in all their versions, with the real coordinator behind them."""

import asyncio

import pytest
from kafka_groups import kafka_groups

from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.messages.group_admin import DescribeGroupsRequest
from tidelog_node.kafka.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)

REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS.code


def running(test, path, **settings):
    """Run a coroutine with a node's groups."""

    async def run():
        async with kafka_groups(path, **settings) as groups:
            await test(groups)

    asyncio.run(run())


def test_member_joins_is_assigned_lives_and_leaves_in_every_version(tmp_path):
    async def test(groups):
        for version in range(10):
            other = (min(version, 5), min(version, 4))
            joined = await groups.join(version)
            if version >= 4:
                assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED.code
                no_protocol = None if version >= 7 else ""
                assert (joined.generation_id, joined.protocol_name, joined.leader) == (-1, no_protocol, "")
                assert not joined.members
                joined = await groups.join(version, joined.member_id)
            assert joined.error_code == 0
            assert joined.leader == joined.member_id
            assert joined.protocol_type == ("consumer" if version >= 7 else None)
            assert [(m.member_id, bytes(m.metadata)) for m in joined.members] == [(joined.member_id, b"v%d" % version)]
            synced = await groups.sync(other[0], joined, {joined.member_id: b"all"})
            assert (synced.error_code, bytes(synced.assignment)) == (0, b"all")
            assert synced.protocol_name == ("range" if other[0] >= 5 else None)
            assert await groups.beat(other[1], joined) == 0
            left = await groups.leave(other[0], joined.member_id)
            assert left.error_code == 0
            assert [m.error_code for m in left.members] == ([0] if other[0] >= 3 else [])

    running(test, tmp_path)


def test_members_of_different_versions_rebalance_together(tmp_path):
    async def test(groups):
        versions = {"old": 0, "middle": 5, "new": 9}
        async with asyncio.TaskGroup() as tasks:
            calls = {name: tasks.create_task(groups.join_fully(version)) for name, version in versions.items()}
        joined = {name: call.result() for name, call in calls.items()}
        # The delay of an empty group is zero: who came first has a generation of its own, and joins again.
        last = max(answer.generation_id for answer in joined.values())
        async with asyncio.TaskGroup() as tasks:
            again = {
                name: tasks.create_task(groups.join(versions[name], answer.member_id))
                for name, answer in joined.items()
                if answer.generation_id < last
            }
        joined |= {name: call.result() for name, call in again.items()}
        generations = {answer.generation_id for answer in joined.values()}
        assert len(generations) == 1
        (leader,) = {answer.leader for answer in joined.values()}
        for answer in joined.values():
            assert len(answer.members) == (3 if answer.member_id == leader else 0)

        async with asyncio.TaskGroup() as tasks:
            syncs = {
                name: tasks.create_task(
                    groups.sync(
                        min(versions[name], 5),
                        answer,
                        {a.member_id: n.encode() for n, a in joined.items()} if answer.member_id == leader else None,
                    )
                )
                for name, answer in joined.items()
            }
        assert {name: bytes(call.result().assignment) for name, call in syncs.items()} == {
            name: name.encode() for name in versions
        }
        gone = joined.pop("middle")
        assert (await groups.leave(1, gone.member_id)).error_code == 0
        for name, answer in joined.items():
            assert await groups.beat(min(versions[name], 4), answer) == REBALANCE_IN_PROGRESS
        assert await groups.beat(3, gone) == ErrorCode.UNKNOWN_MEMBER_ID.code

    running(test, tmp_path, group_initial_rebalance_delay_ms=100)


def test_static_leader_that_comes_back_assigns_nothing_in_any_version(tmp_path):
    async def test(groups):
        before = await groups.join(5, instance_id="i")
        await groups.sync(5, before, {before.member_id: b"kept"}, instance_id="i")
        for version in range(5, 10):
            joined = await groups.join(version, instance_id="i")
            assert (joined.error_code, joined.generation_id) == (0, before.generation_id)
            assert joined.member_id != before.member_id
            knows = version >= 9
            # Before KIP-814 the leader is told of itself as it was, and takes itself for a follower.
            assert joined.leader == (joined.member_id if knows else before.member_id)
            assert joined.skip_assignment is knows
            assert [m.group_instance_id for m in joined.members] == (["i"] if knows else [])
            synced = await groups.sync(3, joined, instance_id="i")
            assert bytes(synced.assignment) == b"kept"
            assert await groups.beat(3, before, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID.code
            before = joined

    running(test, tmp_path)


def test_join_is_refused_with_the_codes_of_kafka(tmp_path):
    async def test(groups):
        for version in (0, 6, 9):
            joined = await groups.single_member(version)
            unknown = await groups.join(version, "nobody")
            assert (unknown.error_code, unknown.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID.code, "nobody")
            assert (unknown.generation_id, unknown.leader, unknown.protocol_type) == (-1, "", None)
            assert unknown.protocol_name == (None if version >= 7 else "")
            other = await groups.join(version, protocols=("sticky",))
            assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.code
            assert (await groups.join(version, group="")).error_code == ErrorCode.INVALID_GROUP_ID.code
            short = await groups.join(version, session_timeout_ms=1)
            assert short.error_code == ErrorCode.INVALID_SESSION_TIMEOUT.code
            assert await groups.beat(4, joined) == 0
            await groups.leave(5, joined.member_id)

    running(test, tmp_path)


def test_join_of_a_full_group_is_refused_without_a_member_id(tmp_path):
    async def test(groups):
        await groups.single_member()
        for version in range(10):
            for member_id in ("", "nobody"):
                full = await groups.join(version, member_id)
                assert (full.error_code, full.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED.code, "")

    running(test, tmp_path, group_max_size=1)


def test_sync_must_name_its_protocol_from_version_5_on(tmp_path):
    async def test(groups):
        joined = await groups.single_member()
        request = SyncGroupRequest("g", joined.generation_id, joined.member_id)
        inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL.code
        assert [(await groups.ask(request, v)).error_code for v in range(6)] == [0, 0, 0, 0, 0, inconsistent]
        request.protocol_type, request.protocol_name = "consumer", "sticky"
        assert (await groups.ask(request, 5)).error_code == inconsistent
        request.protocol_name, request.generation_id = "range", 7
        assert (await groups.ask(request, 5)).error_code == ErrorCode.ILLEGAL_GENERATION.code

    running(test, tmp_path)


def test_leave_says_of_each_member_what_became_of_it(tmp_path):
    async def test(groups):
        joined = await groups.single_member()
        unknown = ErrorCode.UNKNOWN_MEMBER_ID.code
        assert (await groups.leave(2, "nobody")).error_code == unknown
        for version in (3, 4, 5):
            answer = await groups.leave(version, "nobody", "neither")
            assert answer.error_code == 0
            assert [(m.member_id, m.error_code) for m in answer.members] == [("nobody", unknown), ("neither", unknown)]
            missing = await groups.leave(version, "m", group="no-group")
            assert (missing.error_code, [m.error_code for m in missing.members]) == (0, [unknown])
        assert (await groups.leave(0, "m", group="no-group")).error_code == unknown
        assert (await groups.leave(5, "m", group="")).error_code == ErrorCode.INVALID_GROUP_ID.code
        by_instance = LeaveGroupRequest("g", members=[MemberIdentity("", "i"), MemberIdentity(joined.member_id)])
        answer = await groups.ask(by_instance, 5)
        assert [(m.group_instance_id, m.error_code) for m in answer.members] == [("i", unknown), (None, 0)]

    running(test, tmp_path)


def test_errors_of_the_node_are_in_every_response(tmp_path):
    async def test(groups):
        joined = await groups.single_member()
        await groups.move_away()
        code = ErrorCode.NOT_COORDINATOR.code
        for version in range(10):
            assert (await groups.join(version, joined.member_id)).error_code == code
            if version <= 5:
                assert (await groups.sync(version, joined)).error_code == code
                assert (await groups.leave(version, joined.member_id)).error_code == code
            if version <= 4:
                assert await groups.beat(version, joined) == code

    running(test, tmp_path)


def test_member_whose_connection_is_lost_while_it_joins_holds_the_group_for_its_session_only(tmp_path):
    async def test(groups):
        joined = await groups.single_member()
        lost = asyncio.create_task(groups.join(3, session_timeout_ms=100))
        await groups.until(lambda: groups.beat(4, joined), REBALANCE_IN_PROGRESS)
        lost.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lost

        async def count():
            return len((await groups.join(9, joined.member_id)).members)

        await groups.until(count, 1)

    running(test, tmp_path, group_min_session_timeout_ms=1)


def test_member_is_described_with_its_client_id_and_host(tmp_path):
    async def test(groups):
        request = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [])
        assert (await groups.ask(request, 0)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.code
        joined = await groups.join(3)
        (group,) = (await groups.ask(DescribeGroupsRequest(["g"]), 4)).groups
        assert [(m.member_id, m.client_id, m.client_host) for m in group.members] == [
            (joined.member_id, "client", "/127.0.0.1")
        ]
        assert joined.member_id.startswith("client-")
        assert (await groups.ask(HeartbeatRequest("", 1, "m"), 0)).error_code == ErrorCode.INVALID_GROUP_ID.code

    running(test, tmp_path)
