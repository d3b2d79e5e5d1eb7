import asyncio
import contextlib
import logging

import pytest

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.replicas import (
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResult,
    DirectoryAssignmentTopicResult,
)
from tidelog_node.event_loop import SystemClock
from tidelog_node.hosting import assignments as queues
from tidelog_node.hosting.commands import AssignDirectory
from tidelog_node.partitions.directories.directory_assignments import DirectoryAssignments

T, U = b"t" * 16, b"u" * 16
A, B = b"a" * 16, b"b" * 16


class FakeController:
    """Takes assignments; ``failures`` are raised first, ``refusals`` are given for partitions, once each."""

    def __init__(self):
        self.requests = []
        self.assigned = {}
        self.kept = {}
        self.failures = []
        self.refusals = {}

    async def assign_replicas_to_dirs(self, request):
        await asyncio.sleep(0)
        self.requests.append(request)
        if self.failures:
            raise error_for(self.failures.pop(0), "for the test")
        topics = []
        for directory in request.directories:
            for topic in directory.topics:
                results = []
                for index in topic.partitions:
                    code = self.refusals.pop((topic.topic_id, index), None)
                    if code is None:
                        self.assigned[topic.topic_id, index] = directory.directory_id
                        self.kept[topic.topic_id, index] = directory.keeps_logs
                    results.append(DirectoryAssignmentResult(index, None if code is None else error_for(code)))
                topics.append(DirectoryAssignmentTopicResult(topic.topic_id, tuple(results)))
        return AssignReplicasToDirsResponse(tuple(topics))


@contextlib.asynccontextmanager
async def running(controller):
    assignments = DirectoryAssignments(controller, 1, lambda: 7, SystemClock())
    task = asyncio.create_task(assignments.run(), name="assignments")
    try:
        yield assignments
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_assignments_of_many_replicas_are_one_request(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as assignments:
            for topic, index, directory in ((T, 0, A), (T, 1, B), (T, 2, A), (U, 0, A)):
                assignments.submit(AssignDirectory(topic, index, directory))
            await wait_for(lambda: len(controller.assigned) == 4)
        [request] = controller.requests
        assert (request.broker_id, request.broker_epoch) == (1, 7)
        assert {d.directory_id: [(t.topic_id, list(t.partitions)) for t in d.topics] for d in request.directories} == {
            A: [(T, [0, 2]), (U, [0])],
            B: [(T, [1])],
        }

    asyncio.run(run())


def test_replica_that_keeps_its_log_is_told_apart_from_one_in_the_same_directory_that_does_not(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as assignments:
            assignments.submit(AssignDirectory(T, 0, A, keeps_log=True))
            assignments.submit(AssignDirectory(T, 1, A))
            await wait_for(lambda: controller.kept == {(T, 0): True, (T, 1): False})
        assert set(controller.assigned.values()) == {A}

    asyncio.run(run())


def test_assignments_are_repeated_until_the_controller_has_them(wait_for, caplog):
    async def run():
        controller = FakeController()
        controller.failures = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH]
        async with running(controller) as assignments:
            assignments.submit(AssignDirectory(T, 0, A))
            await wait_for(lambda: controller.assigned == {(T, 0): A})
            assert len(controller.requests) == 3

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert len(caplog.records) == 1, "the first failure is worth a line"


def test_newest_directory_counts_also_when_it_comes_while_a_request_is_under_way(wait_for):
    async def run():
        controller = FakeController()
        async with running(controller) as assignments:
            assignments.submit(AssignDirectory(T, 0, A))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assignments.submit(AssignDirectory(T, 0, B))
            await wait_for(lambda: controller.assigned == {(T, 0): B})

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "requests"),
    [(ErrorCode.UNKNOWN_TOPIC_ID, 1), (ErrorCode.UNKNOWN_SERVER_ERROR, 2)],
    ids=["gone", "trouble"],
)
def test_refused_assignment_is_dropped_when_the_partition_is_gone_and_repeated_else(code, requests, wait_for):
    async def run():
        controller = FakeController()
        controller.refusals = {(T, 0): code}
        async with running(controller) as assignments:
            assignments.submit(AssignDirectory(T, 0, A))
            await wait_for(lambda: len(controller.requests) == requests and not len(assignments._queue))
            await asyncio.sleep(0.1)
            assert len(controller.requests) == requests

    asyncio.run(run())


def test_large_batches_are_sent_in_parts(wait_for, monkeypatch):
    monkeypatch.setattr(queues, "MAX_ASSIGNMENTS_PER_REQUEST", 3)

    async def run():
        controller = FakeController()
        async with running(controller) as assignments:
            for index in range(8):
                assignments.submit(AssignDirectory(T, index, A))
            await wait_for(lambda: len(controller.assigned) == 8)
            assert len(controller.requests) == 3

    asyncio.run(run())
