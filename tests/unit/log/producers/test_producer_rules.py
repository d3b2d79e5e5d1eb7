"""The rules of :class:`ProducerState`, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.producers.entries import CompletedTransaction, Duplicate, EndTransactionMarker, ProducerEntry
from tidelog_node.log.producers.state import ProducerState

Header = Callable[..., RecordBatchHeader]

MAX_SEQUENCE = 2**31 - 1
ABORT = EndTransactionMarker(is_commit=False, coordinator_epoch=3)
COMMIT = EndTransactionMarker(is_commit=True, coordinator_epoch=3)
EXPIRATION_MS = 10_000


@pytest.fixture
def state() -> ProducerState:
    return ProducerState(EXPIRATION_MS)


def refusal(state: ProducerState, header: RecordBatchHeader) -> ErrorCode:
    before = state.entries()
    with pytest.raises(TidelogError) as caught:
        state.check(header)
    assert state.entries() == before
    return caught.value.code


def refusal_of_marker(
    state: ProducerState, header: RecordBatchHeader, marker: EndTransactionMarker, version: int = 0
) -> ErrorCode:
    before = state.entries()
    with pytest.raises(TidelogError) as caught:
        state.check_marker(header, marker, version)
    assert state.entries() == before
    return caught.value.code


@pytest.mark.parametrize("sequence", [0, 1, 77, MAX_SEQUENCE])
def test_producer_begins_with_any_sequence_when_unknown(state: ProducerState, header: Header, sequence: int) -> None:
    assert state.check(header(7, 4, sequence)) is None


@pytest.mark.parametrize(
    ("last", "count", "following"),
    [(0, 1, 1), (10, 5, 15), (MAX_SEQUENCE, 1, 0), (MAX_SEQUENCE - 2, 3, 0), (MAX_SEQUENCE, 3, 2)],
)
def test_producer_goes_on_with_the_sequence_that_follows(
    state: ProducerState, header: Header, last: int, count: int, following: int
) -> None:
    state.append(header(7, 0, last, count))
    assert state.check(header(7, 0, following)) is None
    assert refusal(state, header(7, 0, (following + 1) % 2**31)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 4, 6, 100])
def test_producer_gap_or_old_sequence_is_refused_in_the_same_epoch(
    state: ProducerState, header: Header, sequence: int
) -> None:
    state.append(header(7, 0, 4, offset=20))
    batch = header(7, 0, sequence, 2)
    assert refusal(state, batch) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_duplicate_tells_the_first_offsets_of_any_of_the_last_five(
    state: ProducerState, header: Header
) -> None:
    for number in range(6):
        state.append(header(7, 0, 10 * number, 10, offset=100 + 10 * number, timestamp_ms=1000 + number))
    for number in range(1, 6):
        expected = Duplicate(100 + 10 * number, 109 + 10 * number, 1000 + number)
        assert state.check(header(7, 0, 10 * number, 10)) == expected
    assert refusal(state, header(7, 0, 0, 10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(10, 4), (10, 6), (11, 4), (9, 6)])
def test_producer_duplicate_needs_the_exact_range(
    state: ProducerState, header: Header, sequence: int, count: int
) -> None:
    state.append(header(7, 0, 10, 5))
    assert refusal(state, header(7, 0, sequence, count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_duplicate_is_found_over_the_wrap_of_sequences(state: ProducerState, header: Header) -> None:
    state.append(header(7, 0, MAX_SEQUENCE - 1, 4, offset=50))
    assert state.check(header(7, 0, MAX_SEQUENCE - 1, 4)) == Duplicate(50, 53, 1000)


def test_producer_epoch_that_is_stale_is_refused_also_for_a_sequence_that_would_fit(
    state: ProducerState, header: Header
) -> None:
    state.append(header(7, 5, 0))
    for sequence in (0, 1):
        assert refusal(state, header(7, 4, sequence)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producer_new_epoch_begins_with_zero_and_forgets_the_batches_before(
    state: ProducerState, header: Header
) -> None:
    state.append(header(7, 0, 0, 3, offset=0))
    assert refusal(state, header(7, 1, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(7, 1, 0, 3)) is None
    state.append(header(7, 1, 0, 3, offset=3))
    assert state.check(header(7, 1, 0, 3)) == Duplicate(3, 5, 1000)
    assert refusal(state, header(7, 0, 0, 3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_do_not_touch_each_other(state: ProducerState, header: Header) -> None:
    state.append(header(7, 3, 0, offset=0))
    assert state.check(header(8, 0, 40)) is None
    state.append(header(8, 0, 40, offset=1))
    assert state.check(header(7, 3, 1)) is None
    assert state.check(header(8, 0, 41)) is None


def test_batches_without_a_producer_leave_no_trace(state: ProducerState, header: Header) -> None:
    assert state.check(header(-1, -1, -1)) is None
    assert state.append(header(-1, -1, -1)) is None
    assert len(state) == 0


def test_append_takes_what_a_client_may_not_send(state: ProducerState, header: Header) -> None:
    state.append(header(7, 5, 0, offset=0))
    state.append(header(7, 4, 9, offset=1))
    state.append(header(7, 4, 99, offset=2))
    [entry] = state.entries()
    assert (entry.producer_epoch, entry.last_sequence, entry.last_offset) == (4, 99, 2)
    state.check_invariants()


def test_batch_without_a_sequence_is_followed_by_sequence_zero(state: ProducerState, header: Header) -> None:
    state.append(header(7, 0, -1, 3, offset=0))
    assert state.check(header(7, 0, 0)) is None
    assert state.entries()[0].last_sequence == -1


def test_transaction_holds_the_first_unstable_offset_until_its_marker_is_replicated(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    assert state.first_unstable_offset is None
    state.append(transactional(7, 0, 0, 5, offset=10))
    state.append(transactional(7, 0, 5, 5, offset=15))
    assert state.first_unstable_offset == 10
    completed = state.append(control(7, 0, offset=20), COMMIT)
    assert completed == CompletedTransaction(7, 10, 20, last_stable_offset=21, is_commit=True)
    assert state.first_unstable_offset == 10
    state.complete(completed)
    for high_watermark in (15, 20):
        state.advance_high_watermark(high_watermark)
        assert state.first_unstable_offset == 10
    state.advance_high_watermark(21)
    assert state.first_unstable_offset is None
    state.check_invariants()


def test_transaction_ends_below_an_older_open_one_that_sets_the_last_stable_offset(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    state.append(transactional(7, 0, 0, offset=0))
    state.append(transactional(8, 0, 0, offset=1))
    younger = state.append(control(8, 0, offset=2), ABORT)
    assert younger == CompletedTransaction(8, 1, 2, last_stable_offset=0, is_commit=False)
    state.complete(younger)
    older = state.append(control(7, 0, offset=3), ABORT)
    assert older is not None
    assert older.last_stable_offset == 4
    state.complete(older)
    state.advance_high_watermark(3)
    assert state.first_unstable_offset == 0
    state.advance_high_watermark(4)
    assert state.first_unstable_offset is None


def test_transaction_that_goes_on_is_unstable_before_a_completed_one_that_is_younger(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    state.append(transactional(7, 0, 0, offset=0))
    state.append(transactional(8, 0, 0, offset=1))
    completed = state.append(control(7, 0, offset=2), COMMIT)
    assert completed is not None
    state.complete(completed)
    assert state.first_unstable_offset == 0
    state.advance_high_watermark(3)
    assert state.first_unstable_offset == 1


def test_transaction_that_is_not_open_cannot_be_completed(state: ProducerState) -> None:
    with pytest.raises(ValueError, match="not open"):
        state.complete(CompletedTransaction(7, 0, 1, 2, is_commit=True))


def test_write_outside_of_the_open_transaction_is_refused(
    state: ProducerState, header: Header, transactional: Header
) -> None:
    state.append(transactional(7, 0, 0, offset=0))
    assert refusal(state, header(7, 0, 1)) is ErrorCode.INVALID_TXN_STATE
    assert state.check(transactional(7, 0, 1)) is None


def test_marker_without_a_transaction_completes_nothing_but_raises_the_epochs(
    state: ProducerState, header: Header, control: Header
) -> None:
    state.append(header(7, 0, 0, offset=0))
    assert state.append(control(7, 2, offset=1), COMMIT) is None
    [entry] = state.entries()
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_sequence) == (2, 3, -1)
    assert refusal(state, header(7, 2, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(7, 2, 0)) is None


def test_marker_of_the_same_epoch_leaves_the_sequence_as_it_was(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    state.append(transactional(7, 0, 0, 4, offset=0))
    completed = state.append(control(7, 0, offset=4), COMMIT)
    assert completed is not None
    state.complete(completed)
    assert state.check(transactional(7, 0, 4), state.begin_verification(transactional(7, 0, 4))) is None
    assert state.check(transactional(7, 0, 0, 4)) == Duplicate(0, 3, 1000)


def test_marker_is_checked_by_producer_epoch_and_coordinator_epoch(
    state: ProducerState, header: Header, control: Header
) -> None:
    state.append(header(7, 5, 0, offset=0))
    state.append(control(7, 5, offset=1), COMMIT)
    assert refusal_of_marker(state, control(7, 4), COMMIT) is ErrorCode.INVALID_PRODUCER_EPOCH
    older = EndTransactionMarker(is_commit=True, coordinator_epoch=2)
    assert refusal_of_marker(state, control(7, 5), older) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    state.check_marker(control(7, 5), COMMIT)
    state.check_marker(control(7, 6), COMMIT)
    state.check_marker(control(9, 0), older)


def test_marker_of_transaction_version_2_needs_a_higher_epoch_than_the_transaction(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    state.append(transactional(7, 5, 0, offset=0))
    for epoch in (4, 5):
        assert refusal_of_marker(state, control(7, epoch), COMMIT, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    state.check_marker(control(7, 5), COMMIT, 1)
    state.check_marker(control(7, 6), COMMIT, 2)


def test_repeated_marker_of_transaction_version_2_is_accepted_until_the_next_transaction_begins(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    state.append(transactional(7, 5, 0, offset=0))
    completed = state.append(control(7, 6, offset=1), COMMIT)
    assert completed is not None
    state.complete(completed)
    state.check_marker(control(7, 6), COMMIT, 2)
    state.append(transactional(7, 6, 0, offset=2))
    assert refusal_of_marker(state, control(7, 6), COMMIT, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    state.check_marker(control(7, 7), COMMIT, 2)


def test_control_batch_whose_marker_was_compacted_away_changes_nothing(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    state.append(transactional(7, 0, 0, offset=0))
    before = state.entries()
    assert state.append(control(7, 1, offset=1), None) is None
    assert state.entries() == before


@pytest.mark.parametrize(("now_ms", "expired"), [(10_999, 0), (11_000, 1), (50_000, 1)])
def test_producer_expires_after_the_idle_time(state: ProducerState, header: Header, now_ms: int, expired: int) -> None:
    state.append(header(7, 0, 0, timestamp_ms=1000))
    assert state.expire(now_ms) == expired
    assert len(state) == 1 - expired


def test_producer_of_old_timestamps_expires_by_the_time_of_its_append(state: ProducerState, header: Header) -> None:
    state.append(header(7, 0, 0, timestamp_ms=5), now_ms=500_000)
    assert state.expire(500_000 + EXPIRATION_MS - 1) == 0
    assert state.expire(500_000 + EXPIRATION_MS) == 1


def test_producer_does_not_expire_while_its_transaction_is_open(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    state.append(transactional(7, 0, 0, offset=0))
    assert state.expire(10**15) == 0
    completed = state.append(control(7, 0, offset=1), ABORT)
    assert completed is not None
    state.complete(completed)
    assert state.expire(10**15) == 1
    assert state.first_unstable_offset == 0
    state.check_invariants()


def test_restore_keeps_the_last_five_batches_the_open_transaction_and_the_epochs(
    state: ProducerState, transactional: Header
) -> None:
    sequences = [(MAX_SEQUENCE - 3 + 2 * number) & MAX_SEQUENCE for number in range(6)]
    for number, sequence in enumerate(sequences):
        state.append(transactional(7, 2, sequence, 2, offset=2 * number, timestamp_ms=1000 + number))
    restored = ProducerState(EXPIRATION_MS)
    restored.restore(state.entries(), offset=12, now_ms=0)
    assert restored.entries() == state.entries()
    assert restored.first_unstable_offset == 0
    for number, sequence in enumerate(sequences[1:], start=1):
        known = Duplicate(2 * number, 2 * number + 1, 1000 + number)
        assert restored.check(transactional(7, 2, sequence, 2)) == known
    assert refusal(restored, transactional(7, 2, sequences[0], 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restored.check(transactional(7, 2, 8)) is None
    restored.check_invariants()


def test_restore_of_an_entry_of_kafkas_knows_its_last_batch(state: ProducerState, header: Header) -> None:
    for number in range(3):
        state.append(header(7, 0, MAX_SEQUENCE - 1 + 2 * number & MAX_SEQUENCE, 2, offset=2 * number))
    state.restore([replace(entry, older_batches=()) for entry in state.entries()], offset=6, now_ms=0)
    assert state.check(header(7, 0, 2, 2)) == Duplicate(4, 5, 1000)
    assert refusal(state, header(7, 0, 0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(7, 0, 4)) is None
    state.append(header(7, 0, 4, offset=6))
    assert state.check(header(7, 0, 2, 2)) == Duplicate(4, 5, 1000)
    state.check_invariants()


def test_restore_leaves_expired_producers_out_but_not_those_in_a_transaction(state: ProducerState) -> None:
    idle = ProducerEntry(1, 0, 5, 9, 0, last_timestamp=0, coordinator_epoch=-1, current_txn_first_offset=-1)
    in_transaction = ProducerEntry(2, 0, 5, 8, 0, last_timestamp=0, coordinator_epoch=-1, current_txn_first_offset=8)
    state.restore([idle, in_transaction], offset=10, now_ms=EXPIRATION_MS)
    assert state.entries() == [in_transaction]


def test_restore_keeps_unreplicated_transactions_below_its_offset(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    for number, first in ((7, 0), (8, 2)):
        state.append(transactional(number, 0, 0, offset=first))
        completed = state.append(control(number, 0, offset=first + 1), COMMIT)
        assert completed is not None
        state.complete(completed)
    state.restore([], offset=2, now_ms=0)
    assert state.first_unstable_offset == 0
    state.advance_high_watermark(2)
    assert state.first_unstable_offset is None
