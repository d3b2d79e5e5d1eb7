"""The time of an answer: after the commit, by the leader, and never from data that may be lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse, RegisterBrokerRequest
from tidelog_foundation.requests.features import FeatureRange
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.records import FeatureLevelRecord
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController

SESSION_MS = 400


class Quorum:
    def __init__(self, raft: Any, features: list[FeatureRange]) -> None:
        self.raft = raft
        self.features = features
        self.now_ms = 0
        controller = Controller(ControllerConfig("c1", SESSION_MS), SequentialTopicIds())
        self.shell = QuorumController(controller, raft, MetadataFeed(), SESSION_MS, lambda: self.now_ms)

    async def lead(self) -> None:
        await self.raft.start(self.shell)
        self.raft.elect(1)
        await self.submit_register(1)

    async def submit_register(self, broker_id: int) -> int:
        request = RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id="c1",
            incarnation_id=bytes([broker_id]) * 16,
            endpoint=Endpoint(host="h", port=1),
            features=tuple(self.features),
        )
        answer = await self.shell.submit(lambda c, now_ms: c.handle(request, now_ms))
        return answer.broker_epoch

    async def submit_heartbeat(self, broker_id: int) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.shell.controller.committed.brokers[broker_id].broker_epoch,  # type: ignore[index]
            current_metadata_offset=10**6,
        )
        return await self.shell.submit(lambda c, now_ms: c.handle(request, now_ms))

    async def submit_create(self, name: str, request_id: bytes = b"") -> ErrorCode:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=(topic,), request_id=request_id)
        answer = await self.shell.submit(lambda c, now_ms: c.handle(request, now_ms))
        error = answer.topics[0].error
        return ErrorCode.NONE if error is None else error.code


@pytest.fixture
def quorum(new_raft: Callable[[], Any], features: list[FeatureRange]) -> Quorum:
    return Quorum(new_raft(), features)


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await test

    asyncio.run(bounded())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def code_of(awaitable: Awaitable[object]) -> ErrorCode:
    with pytest.raises(TidelogError) as caught:
        await awaitable
    return caught.value.code


def test_submit_answers_only_after_the_commit(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        quorum.raft.auto_commit = False
        task = asyncio.create_task(quorum.submit_register(2))
        await settle()
        assert not task.done()
        quorum.raft.commit()
        assert await task == len(quorum.raft.log)

    run(test())


def test_submit_pipelines_requests_that_see_each_other(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        await quorum.submit_heartbeat(1)
        quorum.raft.auto_commit = False
        first = asyncio.create_task(quorum.submit_create("a"))
        second = asyncio.create_task(quorum.submit_create("a"))
        await settle()
        assert not first.done()
        assert not second.done(), "TOPIC_ALREADY_EXISTS depends on an entry that may be lost"
        quorum.raft.commit()
        assert (await first, await second) == (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    run(test())


def test_submit_fails_on_another_controller(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.raft.start(quorum.shell)
        quorum.raft.elect(2)
        assert await code_of(quorum.submit_register(1)) is ErrorCode.NOT_CONTROLLER
        assert await code_of(quorum.shell.read(lambda image: image)) is ErrorCode.NOT_CONTROLLER

    run(test())


def test_submit_fails_when_the_leadership_ends_before_the_commit(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        quorum.raft.auto_commit = False
        task = asyncio.create_task(quorum.submit_register(2))
        await settle()
        quorum.raft.elect(2, keep_uncommitted=False)
        assert await code_of(task) is ErrorCode.NOT_CONTROLLER
        quorum.raft.commit()
        quorum.raft.auto_commit = True
        quorum.raft.elect(1)
        await quorum.submit_heartbeat(1)
        assert list(quorum.shell.controller.committed.brokers) == [1]

    run(test())


def test_submit_sees_an_entry_that_survived_a_change_of_leader(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        quorum.raft.auto_commit = False
        task = asyncio.create_task(quorum.submit_register(2))
        await settle()
        quorum.raft.auto_commit = True
        quorum.raft.elect(1)
        assert await code_of(task) is ErrorCode.NOT_CONTROLLER
        await quorum.submit_heartbeat(1)
        assert list(quorum.shell.controller.committed.brokers) == [1, 2]

    run(test())


def test_create_succeeds_when_asked_again_after_its_entry_survived_a_change_of_leader(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        await quorum.submit_heartbeat(1)
        quorum.raft.auto_commit = False
        task = asyncio.create_task(quorum.submit_create("a", b"8 bytes."))
        await settle()
        quorum.raft.auto_commit = True
        quorum.raft.elect(1)
        assert await code_of(task) is ErrorCode.NOT_CONTROLLER
        assert await quorum.submit_create("a", b"8 bytes.") is ErrorCode.NONE
        assert await quorum.submit_create("a", b"another.") is ErrorCode.TOPIC_ALREADY_EXISTS

    run(test())


def test_submit_waits_until_a_new_leader_has_its_own_first_entry(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.raft.start(quorum.shell)
        quorum.raft.auto_commit = False
        quorum.raft.elect(1)
        task = asyncio.create_task(quorum.submit_register(1))
        await settle()
        assert len(quorum.raft.log) == 2, "the request must not be handled yet"
        quorum.raft.commit(1)
        await settle()
        assert len(quorum.raft.log) == 2
        quorum.raft.commit()
        await settle()
        assert len(quorum.raft.log) == 4, "a new cluster's first records, then the request's"
        quorum.raft.commit()
        assert await task == 4

    run(test())


def test_submit_that_waits_for_a_new_leader_fails_when_another_is_elected(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.raft.start(quorum.shell)
        quorum.raft.auto_commit = False
        quorum.raft.elect(1)
        task = asyncio.create_task(quorum.submit_register(1))
        await settle()
        quorum.raft.elect(2)
        assert await code_of(task) is ErrorCode.NOT_CONTROLLER

    run(test())


def test_silent_broker_is_fenced_and_a_heard_one_is_not(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        await quorum.submit_register(2)
        for broker_id in (1, 2):
            await quorum.submit_heartbeat(broker_id)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(quorum.shell.run())
            began = time.monotonic()
            while not quorum.shell.controller.committed.brokers[1].fenced:  # type: ignore[index]
                quorum.now_ms = int((time.monotonic() - began) * 1000)
                await quorum.submit_heartbeat(2)
                await asyncio.sleep(0.005)
            running.cancel()
        assert quorum.now_ms >= SESSION_MS
        assert not quorum.shell.controller.committed.brokers[2].fenced  # type: ignore[index]

    run(test())


def test_paused_process_fences_nobody_when_it_goes_on(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        await quorum.submit_heartbeat(1)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(quorum.shell.run())
            await settle()
            quorum.now_ms += 100 * SESSION_MS
            await asyncio.sleep(0.1)
            running.cancel()
        assert not quorum.shell.controller.committed.brokers[1].fenced  # type: ignore[index]

    run(test())


def test_entry_that_does_not_fit_ends_the_process(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        quorum.raft.log.append(type(quorum.raft.log[0])(len(quorum.raft.log) + 1, 1, b"\x0a\x00"))
        with pytest.raises(TidelogError, match="unknown kind"):
            quorum.raft.commit()
        with pytest.raises(TidelogError, match="unknown kind"):
            await quorum.shell.run()

    run(test())


def test_controller_of_an_earlier_version_ends_when_a_level_needs_a_later_one(quorum: Quorum) -> None:
    async def test() -> None:
        await quorum.lead()
        later = FeatureLevelRecord("metadata.version", 99)
        await quorum.shell.submit(lambda controller, now_ms: Result([later], None))
        with pytest.raises(TidelogError, match=r"metadata\.version at level 99, this version supports levels 1 to"):
            await quorum.shell.run()

    run(test())
