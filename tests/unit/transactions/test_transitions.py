"""The transitions of a transactional id, against the tables of Kafka's TransactionCoordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.transactions import transitions
from tidelog_node.transactions.requests import EndTxnRequest, InitProducerIdRequest
from tidelog_node.transactions.states import (
    LEGAL_TRANSITIONS,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Producer,
    TransactionMetadata,
    TransactionState,
)
from tidelog_node.transactions.transitions import IN_PROGRESS, NEEDS_PRODUCER_ID

ID = "payments"
EPOCH = 7
PARTITIONS = frozenset({("orders", 0), ("orders", 1)})
S = TransactionState
CURRENT = Producer(1, EPOCH)
LAST = Producer(1, MAX_PRODUCER_EPOCH - 1)


def metadata(state: TransactionState, producer: Producer = CURRENT, **fields: object) -> TransactionMetadata:
    is_open = not state.is_idle
    partitions = PARTITIONS if is_open else frozenset()
    made = TransactionMetadata(producer, state, 60_000, 500, 400 if is_open else -1, partitions, client_version=2)
    return replace(made, **fields)  # type: ignore[arg-type]


def end(
    current: TransactionMetadata, epoch: int, *, committed: bool, version: int, new_id: int | None = None
) -> TransactionMetadata | transitions.Hindrance | str:
    """Return the result of EndTxn, or the name of the error."""
    request = EndTxnRequest(ID, Producer(1, epoch), committed, version)
    try:
        return transitions.end(current, request, new_id, 1_000)
    except TidelogError as error:
        return error.code.name


FENCED, ILLEGAL = "PRODUCER_FENCED", "INVALID_TXN_STATE"


@pytest.mark.parametrize(
    ("state", "committed", "is_repeated", "expected"),
    [
        (S.EMPTY, False, True, FENCED),
        (S.EMPTY, False, False, S.PREPARE_ABORT),
        (S.EMPTY, True, True, FENCED),
        (S.EMPTY, True, False, ILLEGAL),
        (S.COMPLETE_ABORT, False, True, "same"),
        (S.COMPLETE_ABORT, False, False, S.PREPARE_ABORT),
        (S.COMPLETE_ABORT, True, True, ILLEGAL),
        (S.COMPLETE_ABORT, True, False, ILLEGAL),
        (S.COMPLETE_COMMIT, False, True, ILLEGAL),
        (S.COMPLETE_COMMIT, False, False, S.PREPARE_ABORT),
        (S.COMPLETE_COMMIT, True, True, "same"),
        (S.COMPLETE_COMMIT, True, False, ILLEGAL),
        (S.ONGOING, True, False, S.PREPARE_COMMIT),
        (S.ONGOING, False, False, S.PREPARE_ABORT),
        (S.ONGOING, True, True, FENCED),
        (S.ONGOING, False, True, FENCED),
        (S.PREPARE_COMMIT, True, True, IN_PROGRESS),
        (S.PREPARE_COMMIT, False, True, ILLEGAL),
        (S.PREPARE_COMMIT, True, False, FENCED),
        (S.PREPARE_ABORT, False, True, IN_PROGRESS),
        (S.PREPARE_ABORT, True, True, ILLEGAL),
        (S.PREPARE_ABORT, False, False, FENCED),
    ],
)
def test_end_in_version_2_follows_kafkas_table(
    state: TransactionState, committed: bool, is_repeated: bool, expected: object
) -> None:
    current = metadata(state)
    result = end(current, EPOCH - 1 if is_repeated else EPOCH, committed=committed, version=2)
    if isinstance(expected, TransactionState):
        assert isinstance(result, TransactionMetadata)
        assert (result.state, result.producer) == (expected, Producer(1, EPOCH + 1))
        assert result.client == Producer(1, EPOCH + 1)
        assert state in LEGAL_TRANSITIONS[expected]
    else:
        assert result == (current if expected == "same" else expected)


@pytest.mark.parametrize(
    ("state", "committed", "expected"),
    [
        (S.EMPTY, False, ILLEGAL),
        (S.EMPTY, True, ILLEGAL),
        (S.ONGOING, True, S.PREPARE_COMMIT),
        (S.ONGOING, False, S.PREPARE_ABORT),
        (S.COMPLETE_COMMIT, True, "same"),
        (S.COMPLETE_COMMIT, False, ILLEGAL),
        (S.COMPLETE_ABORT, False, "same"),
        (S.COMPLETE_ABORT, True, ILLEGAL),
        (S.PREPARE_COMMIT, True, IN_PROGRESS),
        (S.PREPARE_COMMIT, False, ILLEGAL),
        (S.PREPARE_ABORT, False, IN_PROGRESS),
        (S.PREPARE_ABORT, True, ILLEGAL),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_end_before_version_2_keeps_the_epoch(
    state: TransactionState, committed: bool, expected: object, version: int
) -> None:
    current = metadata(state)
    result = end(current, EPOCH, committed=committed, version=version)
    if isinstance(expected, TransactionState):
        assert isinstance(result, TransactionMetadata)
        assert (result.state, result.producer, result.client) == (expected, Producer(1, EPOCH), Producer(1, EPOCH))
    else:
        assert result == (current if expected == "same" else expected)
    assert end(current, EPOCH - 1, committed=committed, version=version) == FENCED
    assert end(current, EPOCH + 1, committed=committed, version=version) == FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_producer_that_was_fenced_is_no_repetition_of_an_end_that_raised_no_epoch(committed: bool) -> None:
    # A newer producer of version 1 has ended its own transaction; the older one uses version 2.
    newer = init(metadata(S.COMPLETE_COMMIT))
    assert isinstance(newer, TransactionMetadata)
    begun = transitions.add_partitions(newer, ID, newer.client, PARTITIONS, 1, 1_000)
    assert isinstance(begun, TransactionMetadata)
    prepared = end(begun, newer.client.epoch, committed=committed, version=1)
    assert isinstance(prepared, TransactionMetadata)
    for current in (prepared, transitions.complete(prepared, 2_000)):
        assert end(current, EPOCH, committed=committed, version=2) == FENCED
        assert end(current, EPOCH, committed=not committed, version=2) == FENCED


def test_end_of_another_producer_id_is_refused() -> None:
    with pytest.raises(TidelogError) as raised:
        transitions.end(metadata(S.ONGOING), EndTxnRequest(ID, Producer(2, EPOCH), True, 2), None, 1_000)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_end_with_an_exhausted_epoch_gives_the_client_a_new_producer_id() -> None:
    current = metadata(S.ONGOING, LAST)
    assert end(current, LAST.epoch, committed=True, version=2) is NEEDS_PRODUCER_ID
    prepared = end(current, LAST.epoch, committed=True, version=2, new_id=9)
    assert isinstance(prepared, TransactionMetadata)
    assert prepared.producer == Producer(1, MAX_PRODUCER_EPOCH)
    assert prepared.client == Producer(9, 0)
    assert end(prepared, LAST.epoch, committed=True, version=2) is IN_PROGRESS
    completed = transitions.complete(prepared, 2_000)
    assert (completed.producer, completed.client, completed.state) == ((9, 0), (9, 0), S.COMPLETE_COMMIT)
    assert end(completed, LAST.epoch, committed=True, version=2) == completed
    assert end(completed, LAST.epoch, committed=False, version=2) == ILLEGAL


def test_complete_forgets_the_partitions_and_keeps_the_producer() -> None:
    completed = transitions.complete(metadata(S.PREPARE_ABORT), 2_000)
    assert (completed.state, completed.partitions, completed.producer) == (S.COMPLETE_ABORT, frozenset(), (1, EPOCH))


def init(
    current: TransactionMetadata | None, producer: Producer = NO_PRODUCER, new_id: int | None = None
) -> TransactionMetadata | transitions.Hindrance | str:
    try:
        return transitions.initialize(current, InitProducerIdRequest(ID, 5_000, producer), new_id, 1_000)
    except TidelogError as error:
        return error.code.name


def test_initialize_of_a_new_id_begins_with_epoch_0_of_a_new_producer_id() -> None:
    assert init(None) is NEEDS_PRODUCER_ID
    made = init(None, new_id=4)
    assert isinstance(made, TransactionMetadata)
    assert (made.client, made.state, made.timeout_ms) == ((4, 0), S.EMPTY, 5_000)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_initialize_raises_the_epoch_and_fences_older_ones(state: TransactionState) -> None:
    current = metadata(state)
    first = init(current)
    assert isinstance(first, TransactionMetadata)
    assert first.client == (1, EPOCH + 1)
    assert init(first, Producer(1, EPOCH)) == FENCED  # another producer initialized in between
    again = init(current, Producer(1, EPOCH))
    assert isinstance(again, TransactionMetadata)
    repeated = init(again, Producer(1, EPOCH))
    assert isinstance(repeated, TransactionMetadata)
    assert repeated.client == again.client == (1, EPOCH + 1)
    assert init(again, Producer(1, EPOCH - 1)) == FENCED
    assert init(again, Producer(2, EPOCH)) == FENCED


def test_initialize_of_a_fenced_producer_leaves_an_open_transaction_alone() -> None:
    with pytest.raises(TidelogError) as raised:
        transitions.check_expected(metadata(S.ONGOING), InitProducerIdRequest(ID, 5_000, Producer(1, EPOCH - 1)))
    assert raised.value.code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_initialize_waits_for_the_markers(state: TransactionState) -> None:
    assert init(metadata(state)) is IN_PROGRESS


def test_initialize_with_an_exhausted_epoch_takes_a_new_producer_id_and_can_be_repeated() -> None:
    current = metadata(S.EMPTY, LAST)
    assert init(current, LAST) is NEEDS_PRODUCER_ID
    rotated = init(current, LAST, new_id=9)
    assert isinstance(rotated, TransactionMetadata)
    assert (rotated.client, rotated.previous_producer_id) == ((9, 0), 1)
    repeated = init(rotated, LAST)
    assert isinstance(repeated, TransactionMetadata)
    assert repeated.client == (9, 0)


def test_partitions_are_added_to_a_new_and_to_the_open_transaction() -> None:
    begun = transitions.add_partitions(metadata(S.COMPLETE_ABORT), ID, Producer(1, EPOCH), [("a", 0)], 2, 1_000)
    assert isinstance(begun, TransactionMetadata)
    assert (begun.state, begun.started_ms, begun.partitions) == (S.ONGOING, 1_000, {("a", 0)})
    more = transitions.add_partitions(begun, ID, Producer(1, EPOCH), [("b", 3)], 2, 2_000)
    assert isinstance(more, TransactionMetadata)
    assert (more.started_ms, more.updated_ms, more.partitions) == (1_000, 2_000, {("a", 0), ("b", 3)})
    assert transitions.add_partitions(more, ID, Producer(1, EPOCH), [("a", 0)], 2, 3_000) is more


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_partitions_of_another_epoch_are_refused(epoch: int) -> None:
    with pytest.raises(TidelogError) as raised:
        transitions.add_partitions(metadata(S.ONGOING), ID, Producer(1, epoch), [("a", 0)], 2, 1_000)
    assert raised.value.code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_abort_of_a_fenced_producer_raises_the_epoch_once(version: int) -> None:
    aborted = transitions.abort_fenced(metadata(S.ONGOING), version, 1_000)
    assert (aborted.state, aborted.producer) == (S.PREPARE_ABORT, (1, EPOCH + 1))


@pytest.mark.parametrize("committed", [False, True])
def test_fenced_producer_of_version_1_cannot_end_its_transaction(committed: bool) -> None:
    aborted = transitions.abort_fenced(metadata(S.ONGOING), 1, 1_000)
    assert end(aborted, EPOCH, committed=committed, version=1) == FENCED


def test_fenced_producer_of_version_2_repeats_the_abort_and_nothing_else() -> None:
    aborted = transitions.complete(transitions.abort_fenced(metadata(S.ONGOING), 2, 1_000), 2_000)
    assert end(aborted, EPOCH, committed=False, version=2) == aborted
    assert end(aborted, EPOCH, committed=True, version=2) == ILLEGAL
    assert end(aborted, EPOCH - 1, committed=False, version=2) == FENCED
    again = init(aborted, Producer(1, EPOCH))
    assert isinstance(again, TransactionMetadata)
    assert again.client == (1, EPOCH + 1)


def test_abort_of_a_fenced_producer_never_exceeds_the_greatest_epoch() -> None:
    assert transitions.abort_fenced(metadata(S.ONGOING, LAST), 2, 1_000).producer.epoch == MAX_PRODUCER_EPOCH


def test_prepared_transaction_is_taken_over_and_ended_with_markers_of_its_own_producer() -> None:
    current = metadata(S.ONGOING, timeout_ms=NO_TIMEOUT_MS)
    taken = init(current)
    assert isinstance(taken, TransactionMetadata)
    assert (taken.state, taken.producer, taken.client) == (S.ONGOING, (1, EPOCH), (1, EPOCH + 1))
    assert taken.times_out_at() is None
    again = init(taken)
    assert isinstance(again, TransactionMetadata)
    assert (again.producer, again.client) == ((1, EPOCH), (1, EPOCH + 2))
    assert end(again, EPOCH + 1, committed=True, version=2) == FENCED
    with pytest.raises(TidelogError) as raised:
        transitions.add_partitions(again, ID, again.client, [("a", 0)], 2, 1_000)
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    prepared = end(again, EPOCH + 2, committed=True, version=2)
    assert isinstance(prepared, TransactionMetadata)
    assert (prepared.producer, prepared.client) == ((1, EPOCH + 1), (1, EPOCH + 3))
    completed = transitions.complete(prepared, 2_000)
    assert completed.producer == completed.client == (1, EPOCH + 3)
    assert end(completed, EPOCH + 2, committed=True, version=2) == completed


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("producer", [CURRENT, LAST])
def test_abort_of_a_transaction_that_was_taken_over_fences_both_its_producers(producer: Producer, version: int) -> None:
    taken = init(metadata(S.ONGOING, producer, timeout_ms=NO_TIMEOUT_MS), new_id=9)
    assert isinstance(taken, TransactionMetadata)
    aborted = transitions.abort_fenced(taken, version, 1_000)
    completed = transitions.complete(aborted, 2_000)
    for current in (aborted, completed):
        assert current.client > taken.client
        for fenced in (producer, taken.client):
            with pytest.raises(TidelogError) as raised:
                transitions.check_producer(current, ID, fenced)
            assert raised.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_fenced_producer_with_the_last_epoch_does_not_get_the_greatest_one() -> None:
    """Kafka takes its request for a repetition, so that two transactions have markers of one epoch."""
    aborted = transitions.complete(transitions.abort_fenced(metadata(S.ONGOING, LAST), 2, 1_000), 2_000)
    assert aborted.client.epoch == MAX_PRODUCER_EPOCH
    assert end(aborted, LAST.epoch, committed=False, version=2) == FENCED
    assert init(aborted, LAST) == FENCED
