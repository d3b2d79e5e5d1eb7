"""The queue of a coordinator's markers."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_node.transactions.events import WriteMarkers
from tidelog_node.transactions.markers import BACKOFF_MS, NO_LEADER, SLOW_MS, MarkerQueue, MarkersRequest
from tidelog_node.transactions.partition_order import STEP_PARTITIONS
from tidelog_node.transactions.states import Producer, TopicPartition

LEADERS: dict[TopicPartition, int] = {("a", 0): 1, ("a", 1): 2, ("b", 0): 1}


def markers(number: int = 1, partitions: frozenset[TopicPartition] = frozenset(LEADERS)) -> WriteMarkers:
    return WriteMarkers(f"tx-{number}", Producer(number, 1), True, partitions, 2)


def answer(queue: MarkerQueue, request: MarkersRequest, code: ErrorCode = ErrorCode.NONE, now_ms: int = 0) -> None:
    errors = {(item.markers_id, p): code for item in request.transactions for p in item.partitions}
    queue.answer(request.request_id, errors, now_ms)
    queue.check_invariants()


def test_each_leader_gets_one_request_with_all_its_markers() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(1))
    queue.add(3, 6, markers(2))
    requests = {request.node_id: request for request in queue.requests(LEADERS.get, 0)}
    assert {node: [(i.coordinator_epoch, i.partitions) for i in r.transactions] for node, r in requests.items()} == {
        1: [(5, (("a", 0), ("b", 0))), (6, (("a", 0), ("b", 0)))],
        2: [(5, (("a", 1),)), (6, (("a", 1),))],
    }
    assert not queue.requests(LEADERS.get, 0)
    answer(queue, requests[1])
    assert not queue.take_written()
    answer(queue, requests[2])
    assert [(shard, m.transactional_id) for shard, m in queue.take_written()] == [(0, "tx-1"), (3, "tx-2")]
    assert not queue


@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_retry_that_is_due_sets_no_deadline_while_it_must_wait_for_something_else(leader: int) -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(partitions=frozenset({("a", 0)})))
    (request,) = queue.requests(LEADERS.get, 0)
    queue.fail(request.request_id, 0)
    queue.requests(lambda _: leader, BACKOFF_MS)
    assert queue.next_retry_ms() is None, "the shell would spin until the answer or a leader arrives"


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None])
def test_marker_that_is_not_written_goes_to_the_next_leader_after_the_backoff(code: ErrorCode | None) -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(partitions=frozenset({("a", 0)})))
    (request,) = queue.requests(LEADERS.get, 0)
    if code is None:
        queue.fail(request.request_id, 10)
    else:
        answer(queue, request, code, 10)
    assert queue.next_retry_ms() == 10 + BACKOFF_MS
    assert not queue.requests(lambda _: 3, 9 + BACKOFF_MS)
    (request,) = queue.requests(lambda _: 3, 10 + BACKOFF_MS)
    assert request.node_id == 3
    answer(queue, request)
    assert len(queue.take_written()) == 1
    assert queue.next_retry_ms() is None


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_marker_goes_to_a_new_leader_while_the_former_one_does_not_answer(code: ErrorCode) -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(partitions=frozenset({("a", 0), ("a", 1)})))
    former, other = queue.requests(LEADERS.get, 0)
    assert (former.node_id, other.node_id) == (1, 2)
    answer(queue, other)
    assert not queue.requests({("a", 0): 3}.get, SLOW_MS - 1)
    assert not queue.requests({("a", 0): NO_LEADER}.get, SLOW_MS)
    (request,) = queue.requests({("a", 0): 3}.get, SLOW_MS)
    assert (request.node_id, request.transactions[0].partitions) == (3, (("a", 0),))
    # The late answer of the former leader, from before the change or after it.
    answer(queue, former, code, SLOW_MS)
    assert not queue.requests({("a", 0): 3}.get, SLOW_MS + BACKOFF_MS)
    assert len(queue.take_written()) == (1 if code is ErrorCode.NONE else 0)
    answer(queue, request)
    assert len(queue.take_written()) == (0 if code is ErrorCode.NONE else 1)
    assert not queue


def test_marker_in_the_epoch_of_its_transaction_waits_for_the_former_leader() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, replace(markers(partitions=frozenset({("a", 0)})), version=1))
    (former,) = queue.requests(LEADERS.get, 0)
    assert not queue.requests({("a", 0): 3}.get, SLOW_MS)
    queue.fail(former.request_id, SLOW_MS)
    assert len(queue.requests({("a", 0): 3}.get, SLOW_MS + BACKOFF_MS)) == 1


def test_partition_without_a_leader_waits_and_a_deleted_one_needs_no_marker() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(partitions=frozenset({("a", 0), ("b", 0)})))
    assert not queue.requests({("a", 0): NO_LEADER}.get, 0)
    assert not queue.take_written()
    (request,) = queue.requests({("a", 0): 2}.get, 1)
    assert request.transactions[0].partitions == (("a", 0),)
    answer(queue, request)
    assert len(queue.take_written()) == 1


def test_newer_epoch_at_the_partition_counts_as_written() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(partitions=frozenset({("a", 0)})))
    answer(queue, queue.requests(LEADERS.get, 0)[0], ErrorCode.INVALID_PRODUCER_EPOCH)
    assert len(queue.take_written()) == 1


def test_partition_whose_replicas_are_slow_delays_no_marker_of_its_leaders_other_partitions() -> None:
    queue, leaders = MarkerQueue(), {("a", 0): 1, ("b", 0): 1}
    queue.add(0, 5, markers(1, frozenset(leaders)))
    (request,) = queue.requests(leaders.get, 0)
    queue.add(0, 5, markers(2, frozenset(leaders)))
    (item,) = request.transactions
    errors = {("a", 0): ErrorCode.NONE, ("b", 0): ErrorCode.REQUEST_TIMED_OUT}
    queue.answer(request.request_id, {(item.markers_id, p): errors[p] for p in item.partitions}, 0)
    (request,) = queue.requests(leaders.get, 0)
    assert request.transactions[0].partitions == (("a", 0),)
    answer(queue, request)
    # The slow partition gets requests of its own.
    (slow,) = queue.requests(leaders.get, BACKOFF_MS)
    assert {p for item in slow.transactions for p in item.partitions} == {("b", 0)}
    for number in range(3, 6):
        queue.add(0, 5, markers(number, frozenset({("a", 0)})))
        (request,) = queue.requests(leaders.get, BACKOFF_MS + number * SLOW_MS)
        answer(queue, request)
        assert [done.transactional_id for _, done in queue.take_written()] == [f"tx-{number}"]
    answer(queue, slow)
    assert len(queue.take_written()) == 2
    # It has replicas that follow again.
    queue.add(0, 5, markers(9, frozenset(leaders)))
    (request,) = queue.requests(leaders.get, 60 * SLOW_MS)
    assert request.transactions[0].partitions == (("a", 0), ("b", 0))


def test_newer_coordinator_ends_the_markers_of_the_older() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers())
    for request in queue.requests(LEADERS.get, 0):
        answer(queue, request, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert not queue
    assert not queue.take_written()


def test_end_of_a_shard_ends_its_markers_alone() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(1))
    queue.add(1, 5, markers(2))
    requests = queue.requests(LEADERS.get, 0)
    queue.end_shard(0)
    for request in requests:
        answer(queue, request)
    assert [shard for shard, _ in queue.take_written()] == [1]


@pytest.mark.parametrize("seed", range(20))
def test_every_marker_arrives_whatever_fails(seed: int) -> None:
    draw = random.Random(seed)
    queue, open_requests, written = MarkerQueue(), [], []
    stored: set[tuple[str, TopicPartition]] = set()
    now_ms, added = 0, 0
    codes = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]
    while added < 60 or queue:
        now_ms += draw.randrange(60)
        if added < 60:
            added += 1
            queue.add(draw.randrange(3), 1, markers(added))
        open_requests += queue.requests(lambda p: draw.choice((NO_LEADER, 1, 2, 3)), now_ms)
        if open_requests and draw.random() < 0.8:
            request = open_requests.pop(draw.randrange(len(open_requests)))
            chosen = {(i.markers_id, p): draw.choice(codes) for i in request.transactions for p in i.partitions}
            for item in request.transactions:
                name = item.markers.transactional_id
                stored |= {(name, p) for p in item.partitions if chosen[item.markers_id, p] is ErrorCode.NONE}
            queue.answer(request.request_id, chosen, now_ms)
        queue.check_invariants()
        for _, done in queue.take_written():
            assert {(done.transactional_id, p) for p in done.partitions} <= stored
            written.append(done.transactional_id)
    assert sorted(written) == sorted(f"tx-{n}" for n in range(1, 61))


MANY = frozenset({("a", index) for index in range(3 * STEP_PARTITIONS)})


def test_requests_for_very_many_partitions_are_built_in_steps() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(partitions=MANY))
    assert sum(1 for _ in queue.requests_in_steps(lambda _: 1, 0)) >= 6, (
        "they are sorted in steps, and visited in steps"
    )


def test_markers_of_very_many_partitions_are_sent_in_order_until_each_is_written() -> None:
    queue = MarkerQueue()
    queue.add(0, 5, markers(partitions=MANY))
    written: list[TopicPartition] = []
    while requests := queue.requests(lambda _: 1, 0):
        (request,) = requests
        written += [p for item in request.transactions for p in item.partitions]
        answer(queue, request)
    assert written == sorted(MANY)
    assert len(queue.take_written()) == 1


def test_request_has_no_marker_that_ended_in_a_pause() -> None:
    """While a request is built, the former leader may answer, and a shard may end."""
    queue = MarkerQueue()
    queue.add(0, 5, markers(1, MANY))
    (slow,) = queue.requests(lambda partition: 1 if partition[1] < 10 else NO_LEADER, 0)
    queue.add(1, 5, markers(2, frozenset({("b", 0)})))
    steps = queue.requests_in_steps(lambda _: 2, SLOW_MS)
    next(steps)
    answer(queue, slow)
    queue.end_shard(1)
    (request,) = _result(steps)
    queue.check_invariants()
    asked = {p for item in request.transactions for p in item.partitions}
    assert asked
    assert not asked & {p for item in slow.transactions for p in item.partitions}
    assert [item.markers.transactional_id for item in request.transactions] == ["tx-1"]


def _result(steps: Generator[None, None, list[MarkersRequest]]) -> list[MarkersRequest]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
