"""The queue of partition leaders' questions to transaction coordinators."""

from __future__ import annotations

import random

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_node.transactions import verification
from tidelog_node.transactions.states import Producer, TopicPartition
from tidelog_node.transactions.verification import Question, VerificationQueue, VerificationRequest

COORDINATORS = {"a": 1, "b": 1, "c": 2}
P0, P1, P2 = (("t", index) for index in range(3))


def question(name: str = "a", *partitions: TopicPartition, epoch: int = 0, adds: bool = True, of: int = 7) -> Question:
    return Question(name, Producer(of, epoch), frozenset(partitions or (P0,)), adds)


def one_request(queue: VerificationQueue) -> VerificationRequest:
    [request] = queue.requests(COORDINATORS.get)
    queue.check_invariants()
    return request


def test_questions_for_a_node_go_in_one_request_and_wait_while_it_is_in_progress() -> None:
    queue = VerificationQueue()
    first, second, other = queue.ask(question("a")), queue.ask(question("b", P1)), queue.ask(question("c"))
    requests = {request.node_id: request for request in queue.requests(COORDINATORS.get)}
    assert [q.transactional_id for q in requests[1].questions] == ["a", "b"]
    third = queue.ask(question("a", P2))
    assert not queue.requests(COORDINATORS.get)
    queue.answer(requests[1].request_id, {"a": {P0: ErrorCode.NONE}, "b": {P1: ErrorCode.TRANSACTION_ABORTABLE}})
    assert queue.take_answered() == {first: {}, second: {P1: ErrorCode.TRANSACTION_ABORTABLE}}
    request = one_request(queue)
    assert request.questions == (question("a", P2),)
    queue.answer(request.request_id, {"a": {P2: ErrorCode.NONE}})
    queue.answer(requests[2].request_id, {"c": {P0: ErrorCode.NONE}})
    assert queue.take_answered() == {third: {}, other: {}}


def test_questions_of_one_producer_become_one_and_each_gets_the_errors_of_its_partitions() -> None:
    queue = VerificationQueue()
    first, second = queue.ask(question("a", P0, P1)), queue.ask(question("a", P1, P2))
    request = one_request(queue)
    assert request.questions == (question("a", P0, P1, P2),)
    queue.answer(request.request_id, {"a": {P0: ErrorCode.NONE, P1: ErrorCode.NONE, P2: ErrorCode.INVALID_TXN_STATE}})
    assert queue.take_answered() == {first: {}, second: {P2: ErrorCode.INVALID_TXN_STATE}}


def test_questions_of_a_transactional_id_that_differ_go_one_after_the_other() -> None:
    queue = VerificationQueue()
    queue.ask(question("a", P0, adds=True))
    queue.ask(question("a", P1, adds=False))
    queue.ask(question("a", P2, of=8))
    for expected in (question("a", P0), question("a", P1, adds=False), question("a", P2, of=8)):
        request = one_request(queue)
        assert request.questions == (expected,)
        queue.answer(request.request_id, {})


def test_newer_producer_fences_the_questions_of_an_older_one_that_wait() -> None:
    queue = VerificationQueue()
    older = queue.ask(question(epoch=1))
    newer = queue.ask(question(epoch=2))
    oldest = queue.ask(question(epoch=0))
    fenced = {P0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert queue.take_answered() == {older: fenced, oldest: fenced}
    request = one_request(queue)
    assert request.questions == (question(epoch=2),)
    queue.answer(request.request_id, {"a": {}})
    assert queue.take_answered() == {newer: {}}


def test_question_without_a_coordinator_is_answered_at_once() -> None:
    queue = VerificationQueue()
    asked = queue.ask(question("nobody's"))
    assert not queue.requests(COORDINATORS.get)
    assert queue.take_answered() == {asked: {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}}


@pytest.mark.parametrize("answers", [None, {}])
def test_question_without_an_answer_is_a_network_error(answers: dict[str, object] | None) -> None:
    queue = VerificationQueue()
    asked = queue.ask(question())
    request = one_request(queue)
    if answers is None:
        queue.fail(request.request_id)
    else:
        queue.answer(request.request_id, {})
    assert queue.take_answered() == {asked: {P0: ErrorCode.NETWORK_EXCEPTION}}


def test_abandoned_question_is_not_sent() -> None:
    queue = VerificationQueue()
    queue.abandon(queue.ask(question()), "a")
    assert not queue.requests(COORDINATORS.get)
    assert not queue.take_answered()


def test_request_has_a_limited_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_PARTITIONS", 2)
    queue = VerificationQueue()
    for number in range(3):
        queue.ask(question(f"tx-{number}", P0, P1))
    [request] = queue.requests(lambda _: 1)
    assert [q.transactional_id for q in request.questions] == ["tx-0"]


@pytest.mark.parametrize("seed", range(20))
def test_every_question_is_answered_once_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    queue, asked, answered = VerificationQueue(), set[int](), dict[int, object]()
    in_progress: list[VerificationRequest] = []
    coordinators: dict[str, int | None] = {name: rng.choice((1, 2, None)) for name in "abcd"}
    for _ in range(300):
        action = rng.random()
        if action < 0.5:
            partitions = rng.sample((P0, P1, P2), rng.randint(1, 3))
            fields = {"epoch": rng.randrange(3), "adds": rng.random() < 0.5}
            asked.add(queue.ask(question(rng.choice("abcd"), *partitions, **fields)))
        elif action < 0.6:
            coordinators[rng.choice("abcd")] = rng.choice((1, 2, None))
        elif in_progress:
            request = in_progress.pop(rng.randrange(len(in_progress)))
            if rng.random() < 0.3:
                queue.fail(request.request_id)
            else:
                codes = (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)
                errors = {q.transactional_id: {p: rng.choice(codes) for p in q.partitions} for q in request.questions}
                queue.answer(request.request_id, errors)
        in_progress += queue.requests(coordinators.get)
        queue.check_invariants()
        taken = queue.take_answered()
        assert not taken.keys() & answered.keys()
        answered |= taken
    for request in in_progress:
        queue.fail(request.request_id)
    while requests := queue.requests(lambda _: 1):
        for request in requests:
            queue.fail(request.request_id)
    answered |= queue.take_answered()
    assert answered.keys() == asked
