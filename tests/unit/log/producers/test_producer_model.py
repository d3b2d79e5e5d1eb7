"""The producers of a log against a model that looks through the whole history at every question.

The history is a list of batches, which the model cuts, replays and asks; snapshots are taken at any time, lost by
crashes or flipped bits, and the answers must stay those of the history.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_disk import MemoryFiles
from producer_headers import CONTROL, TRANSACTIONAL, header_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.producers.entries import Duplicate, EndTransactionMarker
from tidelog_node.log.producers.snapshots import ProducerSnapshots, snapshot_path
from tidelog_node.log.producers.verification import NO_GUARD

DIRECTORY = Path("/data/flights-0")
SEQUENCES = 2**31
HALF = SEQUENCES // 2
PRODUCERS = st.integers(0, 1)


class Batch(NamedTuple):
    """A batch of the history; data without a marker."""

    header: RecordBatchHeader
    marker: EndTransactionMarker | None


class History:
    """The content of the log; nothing before ``known_from`` is known.

    The state was loaded from ``pending_from``. It is unknown whether a transaction that ended before it is replicated.
    """

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0
        self.known_from = 0
        self.high_watermark = 0
        self.pending_from = 0
        self.asked: dict[int, dict[int, int]] = {}

    def of(self, producer_id: int) -> list[Batch]:
        return [b for b in self.known() if b.header.producer_id == producer_id]

    def known(self) -> list[Batch]:
        return [b for b in self.batches if b.header.base_offset >= self.known_from]

    def retained(self, producer_id: int) -> list[Batch]:
        """The batches of the latest epoch that a duplicate may be of, oldest first."""
        own = self.of(producer_id)
        epoch = own[-1].header.producer_epoch
        current: list[Batch] = []
        for batch in reversed(own):
            if batch.header.producer_epoch != epoch:
                break
            if batch.marker is None:
                current.insert(0, batch)
        return current[-5:]

    def transactions(self) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """Open transactions, producer to first offset, and the ended ones, (first offset, marker's offset)."""
        opened: dict[int, int] = {}
        ended = []
        for header, marker in self.known():
            if marker is not None and header.producer_id in opened:
                ended.append((opened.pop(header.producer_id), header.base_offset))
            elif marker is None and header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        return opened, ended

    def first_unstable_offset(self) -> int | None:
        opened, ended = self.transactions()
        waiting = [first for first, last in ended if last >= max(self.high_watermark, self.pending_from)]
        return min([*opened.values(), *waiting], default=None)

    def answer(self, header: RecordBatchHeader) -> Duplicate | ErrorCode | None:
        """The answer to a batch; the coordinator has confirmed the transaction of a transactional one."""
        own = self.of(header.producer_id)
        is_open = header.producer_id in self.transactions()[0]
        if not own:
            return self.refusal_of_first(header)
        epoch, retained = own[-1].header.producer_epoch, self.retained(header.producer_id)
        if header.producer_epoch == epoch:
            for batch in retained:
                if (batch.header.base_sequence, batch.header.record_count) == (
                    header.base_sequence,
                    header.record_count,
                ):
                    return Duplicate(batch.header.base_offset, batch.header.last_offset, batch.header.max_timestamp)
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        following = 0
        if header.producer_epoch == epoch and retained:
            last = retained[-1].header
            following = (last.base_sequence + last.record_count) % SEQUENCES
        is_past = header.producer_epoch == epoch and retained and (header.base_sequence - following) % SEQUENCES > HALF
        if not (is_open and header.producer_epoch == epoch) and not is_past:
            refusal = self.refusal_of_first(header)
            if refusal is not None:
                return refusal
        if header.base_sequence != following:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.INVALID_TXN_STATE if is_open and not header.is_transactional else None

    def refusal_of_first(self, header: RecordBatchHeader) -> ErrorCode | None:
        """The first batch of a transaction has the lowest sequence of those that were asked about."""
        if not header.is_transactional:
            return None
        lowest = self.asked.setdefault(header.producer_id, {})
        before = lowest.setdefault(header.producer_epoch, header.base_sequence)
        if (before - header.base_sequence) % SEQUENCES <= HALF:
            lowest[header.producer_epoch] = header.base_sequence
        is_first = lowest[header.producer_epoch] == header.base_sequence
        return None if is_first else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducerMachine(RuleBasedStateMachine):
    """Rules of a partition's life; the history is the truth."""

    @initialize()
    def open(self) -> None:
        self.disk = MemoryFiles()
        self.disk.mkdir(DIRECTORY)
        self.disk.fsync_directory(DIRECTORY.parent)
        self.history = History()
        self.start = 0
        self.snapshots = ProducerSnapshots(self.disk, DIRECTORY, expiration_ms=10**9)
        assert self.snapshots.load(0, 0, now_ms=0) == 0

    def ask(self, header: RecordBatchHeader) -> Duplicate | ErrorCode | None:
        state = self.snapshots.state
        try:
            return state.check(header, state.begin_verification(header) if header.is_transactional else NO_GUARD)
        except TidelogError as error:
            return error.code

    def send(self, header: RecordBatchHeader) -> None:
        """Append as a leader does: only what is not refused and not there yet."""
        expected = self.history.answer(header)
        assert self.ask(header) == expected
        if expected is None:
            self.take_in(header, None)

    def take_in(self, header: RecordBatchHeader, marker: EndTransactionMarker | None) -> None:
        opened = self.history.transactions()[0]
        first_offset = opened.pop(header.producer_id, None)
        completed = self.snapshots.state.append(header, marker)
        if header.is_transactional:
            self.history.asked.pop(header.producer_id, None)
        if marker is None or first_offset is None:
            assert completed is None
        else:
            assert completed is not None
            assert (completed.first_offset, completed.last_offset) == (first_offset, header.base_offset)
            assert completed.last_stable_offset == min(opened.values(), default=header.next_offset)
            assert completed.is_commit == marker.is_commit
            self.snapshots.state.complete(completed)
        self.history.batches.append(Batch(header, marker))
        self.history.end = header.next_offset

    def data(self, producer_id: int, epoch: int, sequence: int, count: int, transactional: bool) -> RecordBatchHeader:
        attributes = TRANSACTIONAL if transactional else 0
        return header_of(
            producer_id, epoch, sequence % SEQUENCES, count, offset=self.history.end, attributes=attributes
        )

    @rule(producer_id=PRODUCERS, count=st.integers(1, 4), transactional=st.booleans(), wraps=st.booleans())
    def produce_next(self, producer_id: int, count: int, transactional: bool, wraps: bool) -> None:
        own = self.history.of(producer_id)
        if not own:
            self.send(self.data(producer_id, 0, -2 if wraps else 0, count, transactional))
            return
        retained = self.history.retained(producer_id)
        sequence = retained[-1].header.base_sequence + retained[-1].header.record_count if retained else 0
        epoch = own[-1].header.producer_epoch
        is_open = producer_id in self.history.transactions()[0]
        lowest = self.history.asked.get(producer_id, {}).get(epoch, sequence)
        may_begin = (lowest - sequence) % SEQUENCES <= HALF
        header = self.data(producer_id, epoch, sequence, count, is_open or (transactional and may_begin))
        before = self.history.end
        self.send(header)
        assert self.history.end == before + count

    @rule(producer_id=PRODUCERS, batches=st.integers(4, 7), back=st.integers(3, 6))
    def produce_burst_and_repeat(self, producer_id: int, batches: int, back: int) -> None:
        for _ in range(batches):
            self.produce_next(producer_id, 2, transactional=False, wraps=False)
        self.produce_again(producer_id, back, change=0)

    @rule(producer_id=PRODUCERS, is_commit=st.booleans(), snapshot=st.booleans())
    def run_transaction(self, producer_id: int, is_commit: bool, snapshot: bool) -> None:
        self.produce_next(producer_id, 1, transactional=True, wraps=False)
        self.end_transaction(producer_id, 0, is_commit)
        if snapshot:
            self.take_snapshot(durable=True)

    @rule(producer_id=PRODUCERS, back=st.integers(0, 7), change=st.sampled_from([0, 0, 0, 1, -1]))
    def produce_again(self, producer_id: int, back: int, change: int) -> None:
        sent = [b for b in self.history.of(producer_id) if b.marker is None]
        if back < len(sent):
            header = sent[-1 - back].header
            count = max(1, header.record_count + change)
            self.send(
                self.data(producer_id, header.producer_epoch, header.base_sequence, count, header.is_transactional)
            )

    @rule(producer_id=PRODUCERS, epoch=st.integers(0, 4), sequence=st.integers(0, 6), transactional=st.booleans())
    def produce_anything(self, producer_id: int, epoch: int, sequence: int, transactional: bool) -> None:
        self.send(self.data(producer_id, epoch, sequence, 1, transactional))

    @rule(producer_id=PRODUCERS, raised=st.integers(0, 1), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, raised: int, is_commit: bool) -> None:
        own = self.history.of(producer_id)
        epoch = own[-1].header.producer_epoch + raised if own else raised
        attributes = TRANSACTIONAL | CONTROL
        header = header_of(producer_id, epoch, -1, offset=self.history.end, attributes=attributes)
        marker = EndTransactionMarker(is_commit, coordinator_epoch=0)
        self.snapshots.state.check_marker(header, marker)
        self.take_in(header, marker)

    @rule()
    def append_without_producer(self) -> None:
        self.take_in(header_of(-1, -1, -1, 2, offset=self.history.end), None)

    @rule(choice=st.randoms(use_true_random=False), beside=st.integers(0, 1))
    def advance_high_watermark(self, choice: random.Random, beside: int) -> None:
        """To the offset of a marker, or just behind one, where there is one ahead; else by any batch."""
        ahead = [b for b in self.history.batches if b.header.base_offset >= self.history.high_watermark]
        markers = [b for b in ahead if b.marker is not None]
        if ahead:
            offset = choice.choice(markers or ahead).header.base_offset + beside
            self.history.high_watermark = max(self.history.high_watermark, offset)
            self.snapshots.state.advance_high_watermark(offset)

    @rule(durable=st.booleans())
    def take_snapshot(self, durable: bool) -> None:
        self.snapshots.take(self.history.end, durable=durable)

    @rule()
    def flush(self) -> None:
        self.snapshots.flush()

    @precondition(lambda self: self.snapshots.offsets)
    @rule(choice=st.randoms(use_true_random=False))
    def delete_oldest(self, choice: random.Random) -> None:
        """Retention: the log begins at a snapshot; what is before is known through it alone."""
        start = choice.choice(self.snapshots.offsets)
        self.snapshots.delete_below(start)
        self.start = start
        self.history.high_watermark = max(self.history.high_watermark, start)
        self.snapshots.state.advance_high_watermark(start)

    @rule(choice=st.randoms(use_true_random=False))
    def truncate(self, choice: random.Random) -> None:
        start = self.start
        ends = [b.header.next_offset for b in self.history.batches if b.header.next_offset >= start]
        end = choice.choice([*ends, start])
        self.history.batches = [b for b in self.history.batches if b.header.next_offset <= end]
        self.history.end = end
        self.history.high_watermark = min(self.history.high_watermark, end)
        self.replay(self.snapshots.load(start, end, now_ms=0))

    @rule(seed=st.integers(0, 1000), flip=st.booleans())
    def crash(self, seed: int, flip: bool) -> None:
        """The log keeps its batches; of the snapshots only the synced ones surely stay, and one may be damaged."""
        self.disk.crash(random.Random(seed))
        self.snapshots = ProducerSnapshots(self.disk, DIRECTORY, expiration_ms=10**9)
        newest = max((p for p in self.disk.paths() if p.name.endswith(".snapshot")), default=None)
        if flip and newest is not None and self.disk.size_of(newest) > 0:
            self.disk.flip_bit(newest, seed % self.disk.size_of(newest))
        replay_from = self.snapshots.load(self.start, self.history.end, now_ms=0)
        self.history.pending_from = replay_from
        self.replay(replay_from)

    def replay(self, replay_from: int) -> None:
        self.history.asked.clear()
        if snapshot_path(DIRECTORY, replay_from) not in self.disk.paths():
            self.history.known_from = replay_from
            self.history.pending_from = replay_from
        self.history.pending_from = min(self.history.pending_from, replay_from)
        for header, marker in self.history.batches:
            if header.base_offset >= replay_from:
                completed = self.snapshots.state.append(header, marker)
                if completed is not None:
                    self.snapshots.state.complete(completed)
        self.snapshots.state.advance_high_watermark(self.history.high_watermark)

    @invariant()
    def everything_is_known(self) -> None:
        self.snapshots.check_invariants()
        assert self.snapshots.state.first_unstable_offset == self.history.first_unstable_offset()
        assert {entry.producer_id for entry in self.snapshots.state.entries()} == {
            batch.header.producer_id for batch in self.history.known() if batch.header.producer_id >= 0
        }


ProducerMachine.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=steps(40), deadline=None)
test_producers_answer_as_the_whole_history_does = ProducerMachine.TestCase
