"""The states of a transactional producer: its calls, requests and errors."""

from __future__ import annotations

import pytest
from transaction_world import ID, TIMEOUT_MS, TOPIC, World

from tidelog.producer.core.events import BatchFailed, Send, Settle
from tidelog.producer.core.transaction_errors import Consequence, consequence_of, consequence_of_failed_batch, worst_of
from tidelog.producer.core.transaction_operations import State
from tidelog.producer.core.transaction_requests import (
    AddGroup,
    AddPartitions,
    Ask,
    CommitOffsets,
    EndTransaction,
    GroupMember,
    InitProducer,
    OffsetToCommit,
    PreparedTransaction,
    Unanswered,
)
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.transactions.requests import InitProducerIdRequest

GROUP = GroupMember("g", 3, "m")
OFFSET = OffsetToCommit("in", 0, 7, metadata="o")


@pytest.fixture
def world() -> World:
    """Return a world without faults, whose client is initialized with transaction version 2."""
    world = World(2)
    world.started()
    return world


def kinds(world: World) -> list[type]:
    """Return the types of the requests since the last call."""
    asked, world.asked = world.asked, []
    return [type(request) for request in asked]


def fail_request(world: World, code: ErrorCode) -> None:
    """Step until a request is on its way, and fail it."""
    world.now_ms += 100
    for command in world.manager.poll(world.now_ms):
        world._execute(command)
    asked = next(message for message in world.queue if isinstance(message, Ask))
    world.queue.remove(asked)
    world.manager.handle(Unanswered(asked.request_id, error_for(code, "said so")), world.now_ms)


def raised(call: object, *arguments: object, **options: object) -> TidelogError:
    """Return the error that a call raises."""
    with pytest.raises(TidelogError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    return caught.value


def test_commit_makes_records_and_offsets_visible_together(world: World) -> None:
    world.manager.begin()
    world.produce(0, "a")
    assert world.run(world.manager.send_offsets(GROUP, [OFFSET])) is None
    assert world.run(world.manager.commit()) is None
    assert world.manager.state is State.READY
    world.server.settle()
    assert sorted(world.visible()) == ["a", "o"]
    assert kinds(world) == [InitProducer, CommitOffsets, EndTransaction]


def test_partitions_and_groups_are_added_before_use_without_version_2() -> None:
    world = World(1)
    world.started()
    world.manager.begin()
    world.produce(0, "a")
    assert world.run(world.manager.send_offsets(GROUP, [OFFSET])) is None
    assert world.run(world.manager.commit()) is None
    world.server.settle()
    assert sorted(world.visible()) == ["a", "o"]
    assert sorted(k.__name__ for k in kinds(world)) == sorted(
        k.__name__ for k in (InitProducer, AddPartitions, AddGroup, CommitOffsets, EndTransaction)
    )


def test_end_gives_the_next_transaction_another_epoch(world: World) -> None:
    epochs = []
    for value in "ab":
        world.manager.begin()
        world.produce(0, value)
        assert world.run(world.manager.commit()) is None
    epochs = [r.producer.epoch for r in world.asked if isinstance(r, EndTransaction)]
    assert epochs[1] == epochs[0] + 1


def test_transaction_without_records_sends_nothing(world: World) -> None:
    kinds(world)
    for end in (world.manager.commit, world.manager.abort):
        world.manager.begin()
        assert world.run(end()) is None
    assert kinds(world) == []


def test_abort_fails_its_records_and_hides_them(world: World) -> None:
    world.manager.begin()
    world.produce(0, "a")
    for _ in range(5):
        world.step()
    world.produce(1, "b")
    assert world.run(world.manager.abort()) is None
    world.server.settle()
    assert world.visible() == []
    assert [(s.partition, s.error and s.error.code) for s in world.settled] == [(0, None), (1, ErrorCode._PURGE_QUEUE)]


def test_records_are_refused_outside_of_a_transaction(world: World) -> None:
    assert raised(world.produce, 0, "a").code is ErrorCode._STATE
    world.manager.begin()
    world.produce(0, "a")
    commit = world.manager.commit()
    assert raised(world.produce, 0, "b").code is ErrorCode._STATE
    assert world.run(commit) is None
    assert raised(world.produce, 0, "c").code is ErrorCode._STATE


def test_calls_in_the_wrong_state_have_no_effect(world: World) -> None:
    fresh = World(2)
    for call in (fresh.manager.begin, fresh.manager.commit, fresh.manager.abort, fresh.manager.prepare):
        assert raised(call).code is ErrorCode._STATE
    assert fresh.manager.state is State.UNINITIALIZED
    for call in (world.manager.initialize, world.manager.commit, world.manager.abort, world.manager.prepare):
        error = raised(call)
        assert error.code is ErrorCode._STATE
        assert not error.error.fatal()
    assert raised(world.manager.complete, PreparedTransaction(1, 1)).code is ErrorCode._STATE
    world.manager.begin()
    assert raised(world.manager.begin).code is ErrorCode._STATE
    assert world.manager.state is State.IN_TRANSACTION


def test_commit_continues_without_its_caller_and_is_resumed(world: World) -> None:
    world.manager.begin()
    world.produce(0, "a")
    commit = world.manager.commit()
    for other in (world.manager.abort, world.manager.begin):
        error = raised(other)
        assert error.code is ErrorCode._CONFLICT
        assert error.error.retriable()
    assert world.manager.commit() is commit
    for _ in range(50):
        world.step()
    assert commit.is_done
    assert world.manager.commit() is commit
    world.manager.acknowledge(commit)
    assert raised(world.manager.commit).code is ErrorCode._STATE


def test_abort_replaces_a_call_that_waits_for_the_groups_coordinator(world: World) -> None:
    world.manager.begin()
    sent = world.manager.send_offsets(GROUP, [OFFSET])
    fail_request(world, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    abort = world.manager.abort()
    assert sent.is_done
    assert world.run(abort) is None
    world.server.settle()
    assert world.visible() == []


def test_other_offsets_are_refused_while_the_first_are_committed(world: World) -> None:
    world.manager.begin()
    first = world.manager.send_offsets(GROUP, [OFFSET])
    assert raised(world.manager.send_offsets, GROUP, []).code is ErrorCode._CONFLICT
    assert world.run(first) is None
    assert world.run(world.manager.send_offsets(GROUP, [OffsetToCommit("in", 0, 8, metadata="p")])) is None


def test_failed_record_makes_the_transaction_abortable(world: World) -> None:
    world.manager.begin()
    world.produce(0, "a")
    world.produce(0, "b")
    world.now_ms += 60_000
    commit = world.manager.commit()
    error = world.run(commit)
    assert error is not None
    assert error.code is ErrorCode._MSG_TIMED_OUT
    assert error.error.txn_requires_abort()
    assert not error.error.retriable()
    assert raised(world.manager.commit).error.txn_requires_abort()
    assert raised(world.produce, 0, "c").error.txn_requires_abort()
    assert world.run(world.manager.abort()) is None
    world.manager.begin()
    world.produce(0, "d")
    assert world.run(world.manager.commit()) is None
    world.server.settle()
    assert world.visible() == ["d"]


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.TRANSACTION_ABORTABLE])
def test_abortable_error_of_a_request_ends_the_call_and_waiting_records(world: World, code: ErrorCode) -> None:
    world.manager.begin()
    world.produce(0, "a")
    sent = world.manager.send_offsets(GROUP, [OFFSET])
    fail_request(world, code)
    assert sent.error is not None
    assert sent.error.error.txn_requires_abort()
    world.step()
    assert [s.error is not None for s in world.settled if isinstance(s, Settle)] == [True]
    assert world.run(world.manager.abort()) is None


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_fenced_producer_fails_for_good(world: World, code: ErrorCode) -> None:
    world.manager.begin()
    world.produce(0, "a")
    for _ in range(10):
        world.step()
    commit = world.manager.commit()
    fail_request(world, code)
    assert commit.error is not None
    assert commit.error.code is ErrorCode._FENCED
    assert commit.error.error.fatal()
    world.manager.acknowledge(commit)
    for call in (world.manager.begin, world.manager.abort, world.manager.commit, world.manager.initialize):
        assert raised(call).error.fatal()
    assert raised(world.produce, 0, "b").error.fatal()


def test_zombie_is_fenced_by_its_successor(world: World) -> None:
    world.manager.begin()
    world.produce(0, "zombie")
    zombie = (world.manager, world.accumulator)
    for _ in range(5):
        world.step()
    world.restart()
    world.started()
    successor = (world.manager, world.accumulator)
    world.manager, world.accumulator = zombie
    error = world.run(world.manager.commit())
    assert error is not None
    assert error.code is ErrorCode._FENCED
    world.manager, world.accumulator = successor
    world.manager.begin()
    world.produce(0, "heir")
    assert world.run(world.manager.commit()) is None
    world.server.settle()
    assert world.visible() == ["heir"]


@pytest.mark.parametrize("has_offsets", [False, True])
def test_transaction_that_timed_out_requires_an_abort_and_the_producer_goes_on(world: World, has_offsets: bool) -> None:
    world.manager.begin()
    world.produce(0, "late")
    while not world.settled:
        world.step()
    world.server.time_out()
    operation = world.manager.send_offsets(GROUP, [OFFSET]) if has_offsets else world.manager.commit()
    error = world.run(operation)
    assert error is not None
    assert error.error.txn_requires_abort()
    assert world.run(world.manager.abort()) is None
    world.manager.begin()
    world.produce(0, "next")
    assert world.run(world.manager.commit()) is None
    world.server.settle()
    assert world.visible() == ["next"]


def test_offsets_of_a_fenced_producer_require_an_abort_which_is_fatal(world: World) -> None:
    world.manager.begin()
    world.server.ask(InitProducerIdRequest(ID, TIMEOUT_MS))
    error = world.run(world.manager.send_offsets(GROUP, [OFFSET]))
    assert error is not None
    assert error.error.txn_requires_abort()
    fatal = world.run(world.manager.abort())
    assert fatal is not None
    assert (fatal.code, fatal.error.fatal()) == (ErrorCode._FENCED, True)


@pytest.mark.parametrize(("version", "asks"), [(1, [EndTransaction, InitProducer]), (2, [EndTransaction])])
def test_producer_gets_another_epoch_after_a_request_without_a_known_outcome(version: int, asks: list[type]) -> None:
    world = World(version)
    world.started()
    world.manager.begin()
    world.produce(0, "a")
    for _ in range(10):
        world.step()
    kinds(world)
    commit = world.manager.commit()
    fail_request(world, ErrorCode._TRANSPORT)
    assert world.run(commit) is None
    assert list(dict.fromkeys(kinds(world))) == asks
    assert world.manager.state is State.READY


def test_prepared_transaction_is_completed_by_its_state(world: World) -> None:
    for same, expected in ((True, ["a"]), (False, ["a"])):
        world.manager.begin()
        world.produce(0, "a" if same else "b")
        prepare = world.manager.prepare()
        assert world.run(prepare) is None
        assert prepare.prepared is not None
        assert world.manager.state is State.PREPARED_TRANSACTION
        assert raised(world.produce, 0, "c").code is ErrorCode._STATE
        stored = PreparedTransaction.parse(str(prepare.prepared))
        given = stored if same else PreparedTransaction(1, 1)
        assert world.run(world.manager.complete(given)) is None
        world.server.settle()
        assert world.visible() == expected


def test_prepared_transaction_survives_its_producer(world: World) -> None:
    world.manager.begin()
    world.produce(0, "a")
    prepare = world.manager.prepare()
    assert world.run(prepare) is None
    world.restart()
    assert world.run(world.manager.initialize(keep_prepared=True)) is None
    assert world.manager.state is State.PREPARED_TRANSACTION
    assert prepare.prepared is not None
    assert world.run(world.manager.complete(prepare.prepared)) is None
    world.server.settle()
    assert world.visible() == ["a"]


def test_initialization_without_an_open_transaction_keeps_nothing(world: World) -> None:
    world.restart()
    assert world.run(world.manager.initialize(keep_prepared=True)) is None
    assert world.manager.state is State.READY


def test_split_batch_keeps_its_sequences_in_a_transaction(world: World) -> None:
    world.manager.begin()
    world.produce(0, "a")
    world.produce(0, "b")
    world.now_ms += 5
    (send,) = (c for c in world.accumulator.poll(world.now_ms, lambda *_: 1) if not isinstance(c, Settle))
    assert isinstance(send, Send)
    too_large = error_for(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    world.accumulator.handle(BatchFailed(send.batches[0].batch_id, 0, too_large, is_refused=True), world.now_ms)
    assert world.run(world.manager.commit()) is None
    world.server.settle()
    assert world.visible() == ["a", "b"]
    assert [d.base_sequence for d in world.server.partitions[TOPIC, 0].log if hasattr(d, "values")] == [0, 1]


@pytest.mark.parametrize(
    ("code", "of_request", "of_batch"),
    [
        (ErrorCode.NOT_COORDINATOR, Consequence.RETRY, Consequence.ABORT),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Consequence.RETRY, Consequence.ABORT),
        (ErrorCode._TRANSPORT, Consequence.RETRY, Consequence.ABORT),
        (ErrorCode._TIMED_OUT, Consequence.RETRY, Consequence.ABORT),
        (ErrorCode.PRODUCER_FENCED, Consequence.FATAL, Consequence.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Consequence.FATAL, Consequence.ABORT),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Consequence.ABORT, Consequence.FATAL),
        (ErrorCode.TRANSACTION_ABORTABLE, Consequence.ABORT, Consequence.ABORT),
        (ErrorCode.FENCED_INSTANCE_ID, Consequence.ABORT, Consequence.ABORT),
        (ErrorCode.INVALID_TXN_STATE, Consequence.FATAL, Consequence.ABORT),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Consequence.FATAL, Consequence.ABORT),
    ],
)
def test_error_has_its_consequence(code: ErrorCode, of_request: Consequence, of_batch: Consequence) -> None:
    error = error_for(code, "text")
    assert consequence_of(error) is of_request
    assert consequence_of_failed_batch(error) is of_batch


def test_partition_that_was_not_attempted_has_the_consequence_of_the_failed_one() -> None:
    errors = [error_for(ErrorCode.OPERATION_NOT_ATTEMPTED), error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert worst_of(errors).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert worst_of(errors[:1]).code is ErrorCode.OPERATION_NOT_ATTEMPTED
