"""A transactional batch enters the log only in a transaction that its coordinator knows (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from producer_headers import CONTROL, TRANSACTIONAL, header_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.producers.entries import EndTransactionMarker
from tidelog_node.log.producers.state import ProducerState
from tidelog_node.log.producers.verification import MAX_GUARDED, NO_GUARD

Header = Callable[..., RecordBatchHeader]
COMMIT = EndTransactionMarker(is_commit=True, coordinator_epoch=3)
EXPIRATION_MS = 10_000


@pytest.fixture
def state() -> ProducerState:
    return ProducerState(EXPIRATION_MS)


def refusal(state: ProducerState, header: RecordBatchHeader, guard: int = NO_GUARD) -> ErrorCode:
    with pytest.raises(TidelogError) as caught:
        state.check(header, guard)
    return caught.value.code


def end(state: ProducerState, header: RecordBatchHeader) -> None:
    completed = state.append(header, COMMIT)
    if completed is not None:
        state.complete(completed)


def test_first_batch_of_a_transaction_needs_a_guard(state: ProducerState, transactional: Header) -> None:
    assert refusal(state, transactional(7, 0, 0)) is ErrorCode.INVALID_TXN_STATE
    guard = state.begin_verification(transactional(7, 0, 0))
    assert guard != NO_GUARD
    assert refusal(state, transactional(7, 0, 0), guard + 1) is ErrorCode.INVALID_TXN_STATE
    assert state.check(transactional(7, 0, 0), guard) is None


def test_later_batches_of_the_open_transaction_need_none(state: ProducerState, transactional: Header) -> None:
    guard = state.begin_verification(transactional(7, 0, 0))
    assert state.check(transactional(7, 0, 0), guard) is None
    state.append(transactional(7, 0, 0, offset=0))
    assert state.begin_verification(transactional(7, 0, 1)) == NO_GUARD
    assert state.check(transactional(7, 0, 1)) is None


def test_guard_is_dropped_by_the_marker_that_overtakes_the_answer(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    guard = state.begin_verification(transactional(7, 0, 0))
    end(state, control(7, 0, offset=0))
    assert refusal(state, transactional(7, 0, 0), guard) is ErrorCode.INVALID_TXN_STATE
    again = state.begin_verification(transactional(7, 0, 0))
    assert again != guard
    assert state.check(transactional(7, 0, 0), again) is None


def test_guard_of_one_transaction_is_not_valid_for_the_next(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    guard = state.begin_verification(transactional(7, 0, 0))
    state.append(transactional(7, 0, 0, offset=0))
    end(state, control(7, 0, offset=1))
    assert refusal(state, transactional(7, 0, 1), guard) is ErrorCode.INVALID_TXN_STATE


def test_open_transaction_of_an_older_epoch_does_not_admit_a_newer_one(
    state: ProducerState, transactional: Header
) -> None:
    state.append(transactional(7, 0, 0, offset=0))
    assert refusal(state, transactional(7, 1, 0)) is ErrorCode.INVALID_TXN_STATE
    assert state.begin_verification(transactional(7, 1, 0)) != NO_GUARD


def test_epochs_of_a_producer_have_different_guards(state: ProducerState, transactional: Header) -> None:
    older, newer = (state.begin_verification(transactional(7, epoch, 0)) for epoch in (0, 1))
    assert refusal(state, transactional(7, 1, 0), older) is ErrorCode.INVALID_TXN_STATE
    assert state.check(transactional(7, 1, 0), newer) is None


def test_question_of_a_fenced_epoch_is_refused(state: ProducerState, transactional: Header, control: Header) -> None:
    end(state, control(7, 2, offset=0))
    with pytest.raises(TidelogError) as caught:
        state.begin_verification(transactional(7, 1, 0))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, transactional(7, 1, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_batch_does_not_overtake_an_earlier_one_whose_verification_failed(
    state: ProducerState, transactional: Header
) -> None:
    guard = state.begin_verification(transactional(7, 0, 5))
    assert state.begin_verification(transactional(7, 0, 6)) == guard
    assert refusal(state, transactional(7, 0, 6), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(transactional(7, 0, 5), guard) is None
    assert state.begin_verification(transactional(7, 0, 4)) == guard
    assert refusal(state, transactional(7, 0, 5), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_unknown_producer_of_transaction_version_2_begins_with_sequence_0(
    state: ProducerState, transactional: Header, control: Header
) -> None:
    guard = state.begin_verification(transactional(7, 0, 4), begins_at_zero=True)
    assert refusal(state, transactional(7, 0, 4), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.append(transactional(7, 0, 0, 4, offset=0))
    end(state, control(7, 0, offset=4))
    guard = state.begin_verification(transactional(7, 0, 4), begins_at_zero=True)
    assert state.check(transactional(7, 0, 4), guard) is None


def test_duplicate_is_answered_without_a_guard(state: ProducerState, transactional: Header, control: Header) -> None:
    state.append(transactional(7, 0, 0, offset=0))
    end(state, control(7, 0, offset=1))
    assert state.check(transactional(7, 0, 0)) is not None


def test_guard_expires_with_the_producers(state: ProducerState, transactional: Header) -> None:
    guard = state.begin_verification(transactional(7, 0, 0), now_ms=1_000)
    state.expire(1_000 + EXPIRATION_MS - 1)
    assert state.check(transactional(7, 0, 0), guard) is None
    state.expire(1_000 + EXPIRATION_MS)
    assert refusal(state, transactional(7, 0, 0), guard) is ErrorCode.INVALID_TXN_STATE


def test_guards_are_bounded_and_the_oldest_are_dropped(state: ProducerState, transactional: Header) -> None:
    first = state.begin_verification(transactional(0, 0, 0))
    for producer_id in range(1, MAX_GUARDED):
        state.begin_verification(transactional(producer_id, 0, 0))
    assert state.check(transactional(0, 0, 0), first) is None
    last = state.begin_verification(transactional(MAX_GUARDED, 0, 0))
    assert refusal(state, transactional(0, 0, 0), first) is ErrorCode.INVALID_TXN_STATE
    assert state.check(transactional(MAX_GUARDED, 0, 0), last) is None


class TransactionMachine(RuleBasedStateMachine):
    """A leader, a coordinator that ends transactions at any time, and answers that arrive late.

    The coordinator knows the number of the current transaction. An answer says in which transaction it was given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerState(10**9)
        self.epoch, self.sequence, self.offset = 0, 0, 0
        self.transaction = 0
        """The number of the transaction; its partition is in it once a question was answered."""
        self.has_partition = False
        self.opened_in: int | None = None
        """The transaction of the batches in the log without a marker."""
        self.answers: list[tuple[int, int, RecordBatchHeader]] = []

    def batch(self) -> RecordBatchHeader:
        return header_of(7, self.epoch, self.sequence, offset=self.offset, attributes=TRANSACTIONAL)

    @rule()
    def ask(self) -> None:
        """The coordinator adds the partition to the transaction, and its answer is on the way."""
        guard = self.state.begin_verification(self.batch())
        if guard != NO_GUARD:
            self.has_partition = True
            self.answers.append((guard, self.transaction, self.batch()))

    @precondition(lambda self: self.answers)
    @rule(choice=st.randoms(use_true_random=False))
    def answer(self, choice: object) -> None:
        """An answer, perhaps an old one, arrives, and the leader appends if its rules allow."""
        place = choice.randrange(len(self.answers))  # type: ignore[attr-defined]
        guard, transaction, asked = self.answers.pop(place)
        self.append(asked._replace(base_offset=self.offset), guard, transaction)

    @rule()
    def write(self) -> None:
        """A batch that needs no question, or whose producer skips it."""
        self.append(self.batch(), NO_GUARD, None)

    def append(self, header: RecordBatchHeader, guard: int, transaction: int | None) -> None:
        try:
            duplicate = self.state.check(header, guard)
        except TidelogError:
            return
        if duplicate is not None:
            return
        if self.opened_in is None:
            assert transaction == self.transaction, "a batch of an earlier transaction began the next one"
            self.opened_in = self.transaction
        assert self.opened_in == self.transaction
        assert self.has_partition
        self.state.append(header)
        self.sequence, self.offset = header.base_sequence + 1, self.offset + 1

    @precondition(lambda self: self.has_partition)
    @rule(bumps=st.booleans())
    def finish(self, bumps: bool) -> None:
        """The transaction ends, with or without a higher epoch."""
        if bumps:
            self.epoch, self.sequence = self.epoch + 1, 0
        header = header_of(7, self.epoch, -1, offset=self.offset, attributes=TRANSACTIONAL | CONTROL)
        self.state.check_marker(header, COMMIT, 2 if bumps else 0)
        end(self.state, header)
        self.offset += 1
        self.transaction += 1
        self.has_partition, self.opened_in = False, None

    @precondition(lambda self: not self.has_partition)
    @rule()
    def finish_elsewhere(self) -> None:
        """A transaction without this partition ends: no marker comes here."""
        self.transaction += 1

    @invariant()
    def state_is_sound(self) -> None:
        self.state.check_invariants()


TransactionMachine.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=steps(40), deadline=None
)
test_no_batch_begins_a_transaction_that_its_coordinator_does_not_end = TransactionMachine.TestCase
