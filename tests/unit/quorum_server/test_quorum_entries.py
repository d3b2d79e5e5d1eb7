"""The controller's entries: their bounds, split results, the backlog, snapshots, the first records."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.controller.term.backlog import WriteLimits
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.features import METADATA_VERSION
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import FeatureLevelRecord, MetadataRecord
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.raft.voters_record import voters_from_message
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController

MAX_RECORDS_PER_OPERATION = WriteLimits().records_per_operation


def levels(count: int, name: str = "f") -> list[MetadataRecord]:
    return [FeatureLevelRecord(f"{name}{index}", 1) for index in range(count)]


class Shell:
    def __init__(self, raft: Any, limits: WriteLimits | None = None) -> None:
        self.raft = raft
        self.controller = Controller(ControllerConfig("c1"), SequentialTopicIds())
        self.feed = MetadataFeed()
        self.quorum = QuorumController(self.controller, raft, self.feed, 9_000, lambda: 0, limits)

    async def lead(self) -> None:
        await self.raft.start(self.quorum)
        self.raft.elect(1)
        await self.write([])

    async def write(self, records: Sequence[MetadataRecord], *, atomic: bool = True) -> None:
        await self.quorum.submit(lambda c, now_ms: Result(records, None, atomic))

    @property
    def sizes(self) -> list[int]:
        return [len(e.payload) for e in self.raft.log]


@pytest.fixture
def shell(new_raft: Callable[[], Any]) -> Shell:
    return Shell(new_raft())


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await test

    asyncio.run(bounded())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_first_leader_of_a_cluster_writes_the_first_records_once(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        assert shell.quorum.controller.committed.feature_levels[METADATA_VERSION] >= 1
        written = len(shell.raft.log)
        shell.raft.elect(1)
        await shell.write([])
        assert len(shell.raft.log) == written + 2, "the engine's own entry and the announcement"

    run(test())


def test_operation_that_needs_too_many_records_is_refused_whole(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        before = shell.quorum.controller.committed
        with pytest.raises(TidelogError, match=f"{MAX_RECORDS_PER_OPERATION + 1} metadata records") as caught:
            await shell.write(levels(MAX_RECORDS_PER_OPERATION + 1))
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        await shell.write([])
        assert shell.quorum.controller.committed == before
        await shell.write(levels(MAX_RECORDS_PER_OPERATION))
        assert len(shell.quorum.controller.committed.feature_levels) >= MAX_RECORDS_PER_OPERATION

    run(test())


def test_operation_that_needs_too_many_bytes_is_refused_whole(new_raft: Callable[[], Any]) -> None:
    shell = Shell(new_raft(), WriteLimits(entry_bytes=100))

    async def test() -> None:
        await shell.lead()
        with pytest.raises(TidelogError, match="bytes of metadata records, 100") as caught:
            await shell.write([FeatureLevelRecord("f" * 100, 1)])
        assert caught.value.code is ErrorCode.POLICY_VIOLATION

    run(test())


def test_result_that_may_be_split_becomes_small_entries_and_no_request_comes_between(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        seen: list[int] = []

        def look(controller: Controller, now_ms: int) -> Result[None]:
            seen.append(len(controller.latest.feature_levels))
            return Result([], None)

        before = len(shell.raft.log)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while not seen:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(shell.write(levels(4_500), atomic=False))
            tasks.create_task(shell.quorum.submit(look))
            tasks.create_task(count_turns())
        assert len(shell.raft.log) - before == 5
        assert turns >= 5
        assert seen[0] >= 4_500

    run(test())


def test_preparations_are_written_before_the_entry_and_not_at_all_when_that_is_too_large(
    new_raft: Callable[[], Any],
) -> None:
    shell = Shell(new_raft(), WriteLimits(records_per_slice=2, records_per_operation=3))

    async def write(count: int) -> list[list[MetadataRecord]]:
        before = len(shell.raft.log)
        result = Result(levels(count, "g"), None, preparations=levels(5))
        await shell.quorum.submit(lambda c, now_ms: result)
        return [decode_batch(e.payload) for e in shell.raft.log[before:]]

    async def test() -> None:
        await shell.lead()
        assert await write(3) == [levels(2), levels(4)[2:], levels(5)[4:], levels(3, "g")]
        before = len(shell.raft.log)
        with pytest.raises(TidelogError, match="4 metadata records"):
            await write(4)
        assert len(shell.raft.log) == before

    run(test())


def test_split_result_ends_when_the_leadership_does(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        task = asyncio.create_task(shell.write(levels(50_000), atomic=False))
        await settle()
        shell.raft.elect(2)
        with pytest.raises(TidelogError) as caught:
            await task
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        shell.raft.elect(1)
        await shell.write([FeatureLevelRecord("after", 1)])
        assert shell.quorum.controller.committed.feature_levels["after"] == 1

    run(test())


def test_requests_wait_while_too_much_is_not_committed(shell: Shell) -> None:
    async def test() -> None:
        limited = Shell(shell.raft, WriteLimits(uncommitted_entries=3))
        await limited.lead()
        shell.raft.auto_commit = False
        before = len(shell.raft.log)
        async with asyncio.TaskGroup() as tasks:
            for index in range(10):
                tasks.create_task(limited.write([FeatureLevelRecord(f"f{index}", 1)]))
            await settle()
            assert len(shell.raft.log) == before + 3
            while len(shell.raft.log) < before + 10:
                shell.raft.commit(1)
                await settle()
                assert len(shell.raft.log) - shell.raft.committed <= 3
            shell.raft.commit()

    run(test())


def test_requests_that_wait_for_room_fail_when_the_leadership_ends(shell: Shell) -> None:
    async def test() -> None:
        limited = Shell(shell.raft, WriteLimits(uncommitted_entries=1))
        await limited.lead()
        shell.raft.auto_commit = False
        writes = [asyncio.create_task(limited.write(levels(1, f"w{i}"))) for i in range(4)]
        await settle()
        shell.raft.elect(2)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [o.code for o in outcomes if isinstance(o, TidelogError)] == [ErrorCode.NOT_CONTROLLER] * 4

    run(test())


def test_snapshot_is_of_the_moment_when_it_was_captured(shell: Shell, new_raft: Callable[[], Any]) -> None:
    async def test() -> None:
        await shell.lead()
        await shell.write(levels(3_000))
        image, chunks = shell.quorum.controller.committed, shell.quorum.capture()
        await shell.write([FeatureLevelRecord("later", 1)])
        payload = b"".join(await asyncio.to_thread(list, chunks))
        other = Shell(new_raft())
        pieces = [payload[i : i + 1_000] for i in range(0, len(payload), 1_000)]
        put = await asyncio.to_thread(other.quorum.read_snapshot, image.offset, image.epoch, pieces)
        assert other.quorum.controller.committed == MetadataImage()
        put()
        assert other.quorum.controller.committed == image
        assert b"".join(other.quorum.capture()) == payload
        response = await anext(other.feed.follow(0))
        assert response.snapshot_begin
        entry = CommittedEntry(image.offset + 1, image.epoch, encode_batch([FeatureLevelRecord("later", 1)]))
        other.quorum.on_commit([entry])
        assert other.quorum.controller.committed == shell.quorum.controller.committed

    run(test())


def test_damaged_snapshot_is_refused(shell: Shell) -> None:
    with pytest.raises(TidelogError) as caught:
        shell.quorum.read_snapshot(5, 1, [b"\x00\x00\x00\x02\xff\xff"])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_entry_of_the_engine_between_the_leaders_own_is_passed_on(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        shell.raft.auto_commit = False
        first = asyncio.create_task(shell.write([FeatureLevelRecord("a", 1)]))
        await settle()
        shell.raft._append(b"")
        second = asyncio.create_task(shell.write([FeatureLevelRecord("b", 1)]))
        await settle()
        shell.raft.commit()
        await asyncio.gather(first, second)
        assert {"a", "b"} <= shell.quorum.controller.committed.feature_levels.keys()
        assert shell.quorum.controller.committed.offset == len(shell.raft.log)

    run(test())


def test_voters_are_those_that_the_engine_told_last(shell: Shell) -> None:
    voters = VoterSet([Voter.at(1, "a", 1), Voter.at(4, "d", 4)])

    async def test() -> None:
        shell.quorum.on_voters_change(voters)
        assert shell.quorum.voters == voters
        response = await anext(shell.feed.follow(0))
        assert voters_from_message(response.voters) == voters

    run(test())


def test_long_request_lets_the_loop_turn_and_others_see_what_it_wrote(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        loop, turned = asyncio.get_running_loop(), threading.Event()

        def handle(controller: Controller, now_ms: int) -> Result[int]:
            loop.call_soon_threadsafe(turned.set)
            assert turned.wait(5), "the loop does not turn"
            return Result(levels(3), controller.latest.offset)

        long = asyncio.create_task(shell.quorum.submit(handle, is_long=True))
        await asyncio.sleep(0)
        seen = await shell.quorum.submit(lambda c, now_ms: Result([], c.latest.offset))
        assert seen == await long + 1

    run(test())


def test_long_request_fails_when_the_leadership_changes_meanwhile(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        loop, elected = asyncio.get_running_loop(), threading.Event()

        def elect_again() -> None:
            shell.raft.elect(2)
            shell.raft.elect(1)
            elected.set()

        def handle(controller: Controller, now_ms: int) -> Result[None]:
            loop.call_soon_threadsafe(elect_again)
            assert elected.wait(5)
            return Result(levels(3), None)

        with pytest.raises(TidelogError) as caught:
            await shell.quorum.submit(handle, is_long=True)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        await shell.write([])
        assert "f0" not in shell.quorum.controller.committed.feature_levels

    run(test())


def test_answer_is_an_error_when_the_leadership_ended_after_the_last_part(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        shell.raft.auto_commit = False
        task = asyncio.create_task(shell.write(levels(10), atomic=False))
        await asyncio.sleep(0)
        shell.raft.elect(2, keep_uncommitted=False)
        with pytest.raises(TidelogError) as caught:
            await task
        assert caught.value.code is ErrorCode.NOT_CONTROLLER

    run(test())


def test_answer_of_a_long_request_is_an_error_when_the_leadership_ended_meanwhile(shell: Shell) -> None:
    """Without records too: what it saw may be an entry that is lost."""

    async def test() -> None:
        await shell.lead()
        may_end = threading.Event()

        def slow(controller: Controller, now_ms: int) -> Result[None]:
            may_end.wait(5)
            return Result([], None)

        task = asyncio.create_task(shell.quorum.submit(slow, is_long=True))
        await settle()
        shell.raft.elect(2)
        may_end.set()
        with pytest.raises(TidelogError) as caught:
            await task
        assert caught.value.code is ErrorCode.NOT_CONTROLLER

    run(test())


def test_nobody_is_let_in_while_a_thread_handles_a_request_whose_caller_went_away(shell: Shell) -> None:
    async def test() -> None:
        await shell.lead()
        may_end, order = threading.Event(), []

        def slow(controller: Controller, now_ms: int) -> Result[None]:
            may_end.wait(5)
            order.append("slow")
            return Result([], None)

        def quick(controller: Controller, now_ms: int) -> Result[None]:
            order.append("quick")
            return Result([], None)

        gone = asyncio.create_task(shell.quorum.submit(slow, is_long=True))
        await settle()
        following = asyncio.create_task(shell.quorum.submit(quick))
        gone.cancel()
        await settle()
        assert order == []
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await following
        assert order == ["slow", "quick"]

    run(test())
