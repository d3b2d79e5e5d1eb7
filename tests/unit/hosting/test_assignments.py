"""Assignments to log directories, until the controller has them."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import LOST_DIRECTORY, DirectoryId, TopicId
from tidelog_node.hosting import assignments
from tidelog_node.hosting.assignments import (
    AssignmentEvent,
    AssignmentQueue,
    AssignmentsAnswered,
    AssignmentsDue,
    AssignmentsFailed,
)
from tidelog_node.hosting.commands import AssignDirectory

T = TopicId(b"t" * 16)
A, B = DirectoryId(b"a" * 16), DirectoryId(b"b" * 16)


class Queue:
    """The queue at a time, with its invariants looked at after every step."""

    def __init__(self) -> None:
        self.core = AssignmentQueue()
        self.now_ms = 1_000

    def step(self, event: AssignmentEvent) -> list[tuple[AssignDirectory, ...]]:
        sent = [command.assignments for command in self.core.step(event, self.now_ms)]
        self.core.check_invariants()
        return sent

    def due(self) -> list[tuple[AssignDirectory, ...]]:
        return self.step(AssignmentsDue())

    def answer(self, *errors: ErrorCode | None) -> None:
        self.step(AssignmentsAnswered({(T, index): error for index, error in enumerate(errors)}))


def at(directory: DirectoryId, index: int = 0) -> AssignDirectory:
    return AssignDirectory(T, index, directory)


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_assignments_go_in_one_call_and_one_call_at_a_time(queue: Queue) -> None:
    queue.step(at(A, 0))
    queue.step(at(B, 1))
    assert queue.due() == [(at(A, 0), at(B, 1))]
    queue.step(at(B, 2))
    assert (queue.due(), queue.core.next_deadline_ms) == ([], None)
    queue.answer(None, None)
    assert queue.due() == [(at(B, 2),)]


def test_newest_assignment_counts_also_when_the_one_before_is_on_its_way(queue: Queue) -> None:
    queue.step(at(LOST_DIRECTORY))
    queue.due()
    queue.step(at(A))
    queue.answer(None)
    assert queue.due() == [(at(A),)]
    queue.answer(None)
    assert len(queue.core) == 0


@pytest.mark.parametrize("event", [AssignmentsFailed(), AssignmentsAnswered({})])
def test_assignment_is_repeated_ever_later_until_the_controller_has_it(queue: Queue, event: AssignmentEvent) -> None:
    queue.step(at(A))
    for pause_ms in (50, 100, 200, 400, 800, 1_000, 1_000):
        assert queue.due() == [(at(A),)]
        queue.step(event)
        assert queue.core.next_deadline_ms == queue.now_ms + pause_ms
        assert (queue.due(), queue.core.is_retrying) == ([], True)
        queue.now_ms += pause_ms
    queue.due()
    queue.answer(None)
    assert (len(queue.core), queue.core.next_deadline_ms, queue.core.is_retrying) == (0, None, False)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_assignment_of_a_replica_that_is_gone_is_dropped(queue: Queue, code: ErrorCode) -> None:
    queue.step(at(A))
    queue.due()
    queue.answer(code)
    assert len(queue.core) == 0


def test_assignment_that_is_refused_is_repeated_alone(queue: Queue) -> None:
    queue.step(at(A, 0))
    queue.step(at(A, 1))
    queue.due()
    queue.answer(None, ErrorCode.UNKNOWN_SERVER_ERROR)
    queue.now_ms += 50
    assert queue.due() == [(at(A, 1),)]


def test_call_has_no_more_assignments_than_a_request_may_have(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "MAX_ASSIGNMENTS_PER_REQUEST", 3)
    for index in range(4):
        queue.step(at(A, index))
    assert [len(sent) for sent in queue.due()] == [3]
