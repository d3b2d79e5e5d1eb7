"""The log against a model in memory: any order of what a node does to a log, with any trouble in between.

After each step the log is what the model says, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from log_batches import produced_batch, replicated_batch
from log_machine import DIRECTORY, TroubledLog, run_machine
from log_model import LogState, ModelBatch, content, next_sequence, retained_start, segment_bases, transactions
from seeds import seeds
from timestamp_searches import find_by_timestamp, find_max_timestamp

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import ControlType, control_batch, iter_headers, validate_batch
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.producers.entries import ProducerEntry
from tidelog_node.log.segments.segment import Segment

CONFIG = LogConfig(
    segment_bytes=300,
    index_interval_bytes=90,
    segment_index_bytes=60,
    max_message_bytes=290,
    segment_ms=80,
    retention_ms=60,
    retention_bytes=500,
    file_delete_delay_ms=40,
)
PRODUCERS = (7, 8)
TRANSACTIONAL = (20, 21)


class LogMachine(TroubledLog):
    """The operations of leaders, followers, retention and cleaners."""

    config = CONFIG

    @initialize(epoch=st.integers(0, 3))
    def first_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    # What a leader does.

    @rule(count=st.integers(1, 6), age=st.integers(-20, 150))
    def append_as_leader(self, count: int, age: int) -> None:
        self._lead(produced_batch(*self._values(count), timestamp_ms=self.now - age))

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 4), is_new_epoch=st.booleans(), jump=st.booleans())
    def append_idempotent(self, producer: int, count: int, is_new_epoch: bool, jump: bool) -> None:
        self._lead(self._idempotent(producer, count, is_new_epoch and self.counter % 3 == 0, jump))

    @rule(producer=st.sampled_from(PRODUCERS), which=st.integers(0, 5))
    def send_again(self, producer: int, which: int) -> None:
        """The newest batch is always known; older ones of the last five unless a restart has forgotten them."""
        known = self.state.batches_of(producer)
        known = [b for b in known if b.header.producer_epoch == known[-1].header.producer_epoch][-5:]
        if not known:
            return
        batch = known[-1 - which % len(known)]
        header = batch.header
        again = bytearray(batch.data)
        again[0:8] = bytes(8)
        again[12:16] = b"\xff" * 4
        try:
            info = self.log.append_as_leader(bytes(again), self.epoch, self.now)
        except TidelogError as error:
            refusal = error.code
        else:
            assert info.is_duplicate
            assert (info.first_offset, info.last_offset) == (header.base_offset, header.last_offset)
            self.seen["duplicate"] += 1
            return
        assert refusal is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert batch is not known[-1], "the newest batch of a producer was not recognised"

    @rule(producer=st.sampled_from(PRODUCERS), gap=st.integers(1, 9), is_stale=st.booleans())
    def send_out_of_order(self, producer: int, gap: int, is_stale: bool) -> None:
        known = self.state.batches_of(producer)
        if not known or (is_stale and known[-1].header.producer_epoch == 0):
            return
        epoch = known[-1].header.producer_epoch - (1 if is_stale else 0)
        sequence = (next_sequence(known[-1]) + gap) % 2**31
        batch = produced_batch(*self._values(1), timestamp_ms=self.now, producer=(producer, epoch, sequence))
        with pytest.raises(TidelogError) as caught:
            self.log.append_as_leader(batch, self.epoch, self.now)
        expected = ErrorCode.INVALID_PRODUCER_EPOCH if is_stale else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert caught.value.code is expected, caught.value

    @rule()
    def become_leader(self) -> None:
        self.epoch += 1
        self.do(lambda: self.log.assign_epoch_start(self.epoch, self.log.log_end_offset), self.state)

    # What a follower does.

    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=6),
        gaps=st.lists(st.sampled_from((0, 0, 0, 2, 5)), min_size=6, max_size=6),
        bumps=st.integers(0, 2),
        at=st.integers(0, 6),
        producer=st.sampled_from((-1, *PRODUCERS)),
    )
    def append_as_follower(self, counts: list[int], gaps: list[int], bumps: int, at: int, producer: int) -> None:
        batches: list[bytes] = []
        offset = self.state.end
        for index, count in enumerate(counts):
            self.epoch += bumps if index == at else 0
            offset += gaps[index]
            if producer >= 0 and index == 0:
                data = bytearray(self._idempotent(producer, count, False, False))
                batches.append(_placed(data, offset, self.epoch))
            else:
                batches.append(replicated_batch(offset, self.epoch, *self._values(count), timestamp_ms=self.now))
            offset = ModelBatch(batches[-1]).end
        after = self.state.append(batches)
        self.do(lambda: self.log.append_as_follower(b"".join(batches)), after)

    @rule(producer=st.sampled_from(TRANSACTIONAL), what=st.sampled_from(("write", "write", "commit", "abort")))
    def transact(self, producer: int, what: str) -> None:
        """Append a follower's part of a transaction."""
        if what == "write":
            batch = bytearray(self._idempotent(producer, 2, False, False, is_transactional=True))
        else:
            kind = ControlType.COMMIT if what == "commit" else ControlType.ABORT
            batch = bytearray(control_batch(kind, producer, 0, 1, self.now))
        after = self.state.append([_placed(batch, self.state.end, self.epoch)])
        self.do(lambda: self.log.append_as_follower(after.batches[-1].data), after)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.state.start, self.state.end), label="offset")
        self._truncate(lambda: self.log.truncate_to(offset), self.state.truncate(offset))

    @rule(offset=st.integers(0, 60))
    def truncate_fully(self, offset: int) -> None:
        self.safe_start = min(self.safe_start, offset)
        after = LogState(offset, offset, least_end=min(offset, self.state.start))
        self._truncate(lambda: self.log.truncate_fully_and_start_at(offset), after)

    # What is done by the clock.

    @rule(by_ms=st.integers(1, 60))
    def advance_time(self, by_ms: int) -> None:
        self.now += by_ms
        self.disk.now_ms = self.now

    @rule()
    def roll(self) -> None:
        count, is_empty = self.log.segment_count, self.log.active_base_offset == self.log.log_end_offset
        if self.do(lambda: self.log.roll(self.now), self.state):
            assert self.log.segment_count == count + (0 if is_empty else 1)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.state.end), label="offset")
        is_advanced = self.log.advance_log_start_offset(offset)
        assert is_advanced == (offset > self.state.start)
        self.state = self.state.keep(max(self.state.start, offset), self.state.end)

    @rule(data=st.data())
    def delete_expired(self, data: st.DataObject) -> None:
        end = self.state.end
        high_watermark = data.draw(st.just(end) | st.integers(self.state.start, end), label="high watermark")
        before, bases = self.state, segment_bases(self.log)
        start = retained_start(self.state, bases, CONFIG, self.now, high_watermark)
        after = self.state.keep(start, self.state.end)
        if self.do(lambda: self.log.delete_expired(self.now, high_watermark), after):
            assert segment_bases(self.log)[0] <= start
            self.seen["retention"] += start > before.start

    @rule()
    def remove_deleted_files(self) -> None:
        self.do(lambda: self.log.remove_deleted_files(self.now), self.state)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """Put one segment in the place of some that follow each other, without some of their batches."""
        sealed = self.log.sealed_segments()
        if not sealed or self.disk.capacity is not None:
            return
        first = data.draw(st.integers(0, len(sealed) - 1), label="first")
        sources = sealed[first : data.draw(st.integers(first, len(sealed) - 1), label="last") + 1]
        held = [b for b in self.state.batches if sources[0].base_offset <= b.base < sources[-1].next_offset]
        plain = [batch for batch in held if batch.header.producer_id < 0]
        removed = {b for b in plain if data.draw(st.booleans(), label=f"remove {b}")}
        cleaned = Segment.create(self.disk, DIRECTORY, sources[0].base_offset, CONFIG, suffix=".cleaned")
        kept = [batch for batch in held if batch not in removed]
        if kept:
            cleaned.append(b"".join(batch.data for batch in kept), [batch.header for batch in kept])
        for transaction in [entry for source in sources for entry in source.transaction_index.entries]:
            cleaned.transaction_index.append(transaction)
        cleaned.indexes.save()
        cleaned.transaction_index.flush()
        cleaned.fsync()
        self.is_compacted = True
        before, after = self.state, self.state.without(removed)
        between = [
            LogState(before.start, before.end, tuple(b for b in before.batches if b not in removed or b.base >= cut))
            for cut in [source.base_offset for source in sources[1:]]
        ]
        if self.do(lambda: _require(self.log.replace_segments(cleaned, sources)), after, between):
            self.seen["swap"] += 1

    # What keeps it.

    @rule(is_checkpointed=st.booleans())
    def flush(self, is_checkpointed: bool) -> None:
        end = self.state.end
        if self.do(self.log.flush, self.state):
            assert self.log.recovery_point == end
            self.refused.clear()
            self.safe_end = end
            self.recovery_point = end if is_checkpointed else self.recovery_point
            self.seen["flush"] += 1

    @rule()
    def checkpoint_log_start(self) -> None:
        self.safe_start = self.log.log_start_offset

    @rule()
    def reopen_clean(self) -> None:
        producers = _by_id(self.log.active_producers())
        self.safe_start = self.state.start
        if self.do(self._close_and_open, self.state, is_stop=True):
            self.recovery_point = self.safe_end = self.state.end
            assert self.log.recovery.checked_segments == 0
            assert _by_id(self.log.active_producers()) == producers

    def _close_and_open(self) -> None:
        self.log.close()
        assert self.disk.handle_count == 0
        self.log = self.open_log(self.disk, clean=True)

    @precondition(lambda self: self.state.visible)
    @rule(data=st.data(), is_checked=st.booleans(), bit=st.integers(0, 7))
    def flip_a_bit(self, data: st.DataObject, is_checked: bool, bit: int) -> None:
        """In a copy of the disk: recovery cuts there; without one, a reader can tell that the batch was changed."""
        disk = self.disk.copy()
        visible = self.state.visible
        batch = visible[data.draw(st.integers(0, len(visible) - 1), label="batch")]
        path = DIRECTORY / f"{[b for b in segment_bases(self.log) if b <= batch.base][-1]:020d}.log"
        position = disk.read_bytes(path).index(batch.data)
        # The CRC does not cover base offset and leader epoch, which the leader sets.
        inside = data.draw(st.integers(8, 11) | st.integers(16, len(batch.data) - 1), label="byte")
        disk.flip_bit(path, position + inside, bit)
        point, self.recovery_point = self.recovery_point, 0 if is_checked else self.state.end
        log = self.open_log(disk)
        self.recovery_point = point
        if is_checked:
            assert log.recovery.fault is not None
            cut = self.state.keep(log.log_start_offset, log.log_end_offset)
            assert log.log_end_offset <= max(batch.base, self.safe_start)
            assert content(log) == [b.data for b in cut.visible]
            return
        assert set(_readable(log)) <= {batch.data for batch in self.state.batches}

    @precondition(lambda self: not self.is_compacted)
    @rule()
    def rebuild_from_the_batches_alone(self) -> None:
        """In a copy of the disk, without what can be made anew: the same log, the same producers of what is there."""
        disk = self.disk.copy()
        for path in disk.paths():
            if path.suffix in (".txnindex", ".snapshot"):
                disk.remove(path)
        point, self.recovery_point = self.recovery_point, 0
        log = self.open_log(disk)
        self.recovery_point = point
        log.check_invariants()
        assert log.log_end_offset == self.state.end
        rebuilt = [batch for batch in map(ModelBatch, content(log)) if batch.end > self.state.start]
        assert rebuilt == self.state.visible
        present = {producer for producer in (*PRODUCERS, *TRANSACTIONAL) if self.state.batches_of(producer)}
        told = {e.producer_id: _told(e) for e in log.active_producers() if e.producer_id in present}
        assert told == {e.producer_id: _told(e) for e in self.log.active_producers() if e.producer_id in present}

    # What is asked of it.

    @precondition(lambda self: self.state.visible)
    @rule(data=st.data(), max_bytes=st.integers(0, 900))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.state.start, self.state.end), label="offset")
        end_offset = data.draw(st.integers(offset, self.state.end), label="end offset")
        found = self.log.read(offset, max_bytes, end_offset)
        headers = [header for _, header in iter_headers(found)]
        assert sum(header.size_in_bytes for header in headers) == len(found)
        assert len(found) <= max_bytes or len(headers) == 1
        expected = [batch for batch in self.state.visible if batch.end > offset and batch.end <= end_offset]
        assert found == b"".join(batch.data for batch in expected[: len(headers)])
        assert bool(headers) == bool(expected)

    @rule(data=st.data(), beside=st.integers(-1, 1))
    def find_by_timestamp(self, data: st.DataObject, beside: int) -> None:
        pairs = [(record.timestamp_ms, record.offset) for record in self.state.records]
        timestamp = data.draw(st.sampled_from(pairs or [(0, 0)]), label="timestamp")[0] + beside
        expected = next(((t, o) for t, o in pairs if t >= timestamp), None)
        found = find_by_timestamp(self.log, timestamp)
        assert (found and (found.timestamp_ms, found.offset)) == expected
        newest = find_max_timestamp(self.log)
        best = max(pairs, key=lambda pair: (pair[0], -pair[1]), default=None)
        assert (newest and (newest.timestamp_ms, newest.offset)) == best

    @invariant()
    def log_is_as_the_model(self) -> None:
        self.log.check_invariants()
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.state.start, self.state.end)
        assert content(self.log) == [batch.data for batch in self.state.visible]

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        """The end of an epoch lies between its last batch and the first one of the next; where a gap may be."""
        visible = self.state.visible
        for index, batch in enumerate(visible):
            follower = visible[index + 1] if index + 1 < len(visible) else None
            epoch = batch.header.partition_leader_epoch
            if follower is not None and follower.header.partition_leader_epoch == epoch:
                continue
            found, end = self.log.end_offset_for_epoch(epoch)
            assert found == epoch
            assert batch.end <= end <= (self.state.end if follower is None else follower.base), (batch, follower, end)

    @invariant()
    def transactions_are_those_of_the_batches(self) -> None:
        """Of a transaction that began below the log's start what is left may count, or all of it."""
        start, end = self.state.start, self.state.end
        every = transactions(self.state.batches)
        least, most = end, end
        for transaction in every:
            if transaction.marker is None:
                left = [b.base for b in self.state.batches_of(transaction.producer_id) if b.base >= transaction.first]
                least, most = min(least, max(start, transaction.first)), min([most, *left])
        assert least <= self.log.last_stable_offset(end) <= max(start, most), (least, most, every)
        aborted = {(t.producer_id, t.first, t.marker) for t in every if t.is_abort and t.first >= start}
        found = self.log.aborted_transactions(start, end)
        known = {t.marker for t in every if t.is_abort and t.first < start}
        told = {(t.producer_id, t.first_offset, t.last_offset) for t in found if t.last_offset not in known}
        assert told == aborted, (told, aborted, start, every)

    def _values(self, count: int) -> tuple[bytes, ...]:
        self.counter += 1
        return tuple(b"%d.%d" % (self.counter, index) for index in range(count))

    def _lead(self, batch: bytes) -> None:
        placed = _placed(bytearray(batch), self.state.end, self.epoch)
        after = self.state.append([placed])
        info = self.do(lambda: self.log.append_as_leader(batch, self.epoch, self.now), after)
        if info:
            assert (info.first_offset, info.last_offset) == (after.batches[-1].base, after.end - 1)
            assert not info.is_duplicate

    def _idempotent(
        self, producer: int, count: int, is_new_epoch: bool, jump: bool, is_transactional: bool = False
    ) -> bytes:
        last = next((b for b in reversed(self.sent) if b.header.producer_id == producer), None)
        epoch = last.header.producer_epoch if last else 0
        sequence = next_sequence(last) if last else (2**31 - 3 if jump else 0)
        if is_new_epoch:
            epoch, sequence = epoch + 1, 0
        return produced_batch(
            *self._values(count),
            timestamp_ms=self.now,
            producer=(producer, epoch, sequence),
            is_transactional=is_transactional,
        )

    def _truncate(self, action: Callable[[], object], after: LogState) -> None:
        self.seen["truncation"] += self.do(action, after) is not None
        self.safe_end = min(self.safe_end, self.state.end)


def _placed(batch: bytearray, offset: int, epoch: int) -> bytes:
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    return bytes(batch)


def _by_id(entries: Iterable[ProducerEntry]) -> list[ProducerEntry]:
    return sorted(entries, key=lambda entry: entry.producer_id)


def _told(entry: ProducerEntry) -> tuple[int, ...]:
    """Return a producer's state that follows from the batches alone; its last timestamp may be that of the append."""
    return (entry.producer_epoch, entry.last_sequence, entry.last_offset, entry.offset_delta)


def _readable(log: PartitionLog) -> list[bytes]:
    """Return the batches that a reader gets if it checks each one and continues behind damaged ones."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            chunk = log.read(offset, 1, log.log_end_offset)
            header = validate_batch(chunk)
        except (CorruptRecordError, TidelogError):
            offset += 1
            continue
        found.append(chunk)
        offset = header.next_offset
    return found


def _require(is_done: bool) -> None:
    assert is_done


@pytest.mark.sim
@pytest.mark.parametrize("number", seeds(3, cost=10))
def test_log_is_what_its_model_says_under_any_trouble(number: int) -> None:
    run_machine(LogMachine, number, examples=40)


class _Choices:
    """Stands for ``st.data()`` where a test says what is drawn: these values, then the last one again and again."""

    def __init__(self, *values: object) -> None:
        self._values = list(values)

    def draw(self, strategy: object, label: object = None) -> Any:
        return self._values.pop(0) if len(self._values) > 1 else self._values[0]


def _meet_trouble(machine: LogMachine) -> None:
    machine.fill_disk(room=0, steps=1)
    machine.append_as_leader(count=2, age=0)
    machine.advance_time(1)
    machine.flush(is_checkpointed=True)
    machine.append_as_leader(count=2, age=0)
    machine.plan_trouble("EIO", 0, "fsync", 1)
    machine.flush(is_checkpointed=True)
    machine.kill_process()
    for number in range(20):
        machine.append_as_leader(count=3, age=0)
        machine.crash_machine(number, operation=None)


def _meet_changes(machine: LogMachine) -> None:
    machine.append_idempotent(7, count=2, is_new_epoch=False, jump=False)
    machine.send_again(7, which=0)
    machine.append_as_leader(count=2, age=0)
    machine.truncate(_Choices(machine.state.end - 1))
    for _ in range(3):
        machine.append_as_leader(count=2, age=0)
        machine.roll()
    machine.compact(_Choices(0, 1, True, False))
    machine.advance_time(60)
    machine.advance_time(60)
    machine.delete_expired(_Choices(machine.state.end))
    machine.flush(is_checkpointed=True)


@pytest.mark.parametrize(
    ("meet", "kinds"),
    [
        (_meet_trouble, {"crash", "kill", "full disk", "failure", "offline", "cut by recovery"}),
        (_meet_changes, {"duplicate", "truncation", "swap", "retention", "flush"}),
    ],
)
def test_model_meets_every_kind_of_trouble_and_of_change(
    meet: Callable[[LogMachine], None], kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules do what they are there for; said step by step, since what a random run meets is luck."""
    monkeypatch.setattr(LogMachine, "seen", Counter())
    machine = LogMachine()
    machine.first_epoch(epoch=0)
    meet(machine)
    machine.log_is_as_the_model()
    machine.epochs_are_those_of_the_batches()
    assert not [kind for kind in kinds if not LogMachine.seen[kind]], LogMachine.seen
