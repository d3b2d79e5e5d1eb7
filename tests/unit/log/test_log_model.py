"""The log against a model in memory, with crashes of the machine at any point."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import memory_disk as support
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.records import iter_headers, read_records
from tidelog_node.log import LogConfig, PartitionLog

DIRECTORY = Path("/data/topic-0")
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=90, segment_index_bytes=64, max_message_bytes=380)


class LogMachine(RuleBasedStateMachine):
    """``batches`` is what the log should hold: (base offset, epoch, values). ``safe_end`` is what no crash may take."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = support.MemoryFiles()
        self.batches: list[tuple[int, int, tuple[bytes, ...]]] = []
        self.start = 0
        self.epoch = 0
        self.safe_end = 0
        self.checkpoint = 0
        self.counter = 0
        self.log = self._open(clean=False)

    @property
    def end(self) -> int:
        return self.batches[-1][0] + len(self.batches[-1][2]) if self.batches else self.start

    def _open(self, clean: bool) -> PartitionLog:
        return PartitionLog.open(DIRECTORY, CONFIG, files=self.disk, clean=clean, recovery_point=self.checkpoint)

    def _values(self, count: int) -> tuple[bytes, ...]:
        self.counter += 1
        return tuple(b"%d.%d" % (self.counter, index) for index in range(count))

    @initialize(epoch=st.integers(0, 3))
    def first_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @rule(count=st.integers(1, 6), timestamp=st.integers(0, 50))
    def append_as_leader(self, count: int, timestamp: int) -> None:
        values = self._values(count)
        info = self.log.append_as_leader(support.produced_batch(*values, timestamp_ms=timestamp), self.epoch, 0)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        self.batches.append((self.end, self.epoch, values))

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6), bumps=st.integers(0, 2), at=st.integers(0, 6))
    def append_as_follower(self, counts: list[int], bumps: int, at: int) -> None:
        buffer = b""
        for index, count in enumerate(counts):
            self.epoch += bumps if index == at else 0
            values = self._values(count)
            buffer += support.replicated_batch(self.end, self.epoch, *values, timestamp_ms=self.counter % 30)
            self.batches.append((self.end, self.epoch, values))
        self.log.append_as_follower(buffer)

    @rule()
    def become_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.log.log_end_offset)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end), label="offset")
        self.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch[0] + len(batch[2]) <= offset]
        self.safe_end = min(self.safe_end, self.end)
        self.epoch = max(self.epoch, self.log.latest_epoch)

    @rule(offset=st.integers(0, 40))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.batches, self.start, self.safe_end = [], offset, offset

    @rule(is_checkpointed=st.booleans())
    def flush(self, is_checkpointed: bool) -> None:
        point = self.log.flush()
        assert point == self.end == self.log.recovery_point
        self.safe_end = self.end
        self.checkpoint = point if is_checkpointed else self.checkpoint

    @rule()
    def reopen_clean(self) -> None:
        self.log.close()
        assert self.disk.handle_count == 0
        self.checkpoint = self.safe_end = self.end
        self.log = self._open(clean=True)
        assert self.log.recovery.checked_segments == 0

    @rule()
    def kill_process(self) -> None:
        self.disk.kill()
        self.log = self._open(clean=False)
        assert self.log.recovery.fault is None

    @rule(seed=st.integers(0, 2**32))
    def crash_machine(self, seed: int) -> None:
        self.disk.crash(random.Random(seed))
        self.log = self._open(clean=False)
        assert self.safe_end <= self.log.log_end_offset <= self.end, (self.safe_end, self.log.log_end_offset, self.end)
        self.batches = [batch for batch in self.batches if batch[0] < self.log.log_end_offset]
        assert self.end == self.log.log_end_offset, "a batch was cut in two"
        assert not self.log.recovery.is_below_recovery_point or self.end < self.checkpoint

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.integers(0, 900))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end), label="offset")
        end_offset = data.draw(st.integers(offset, self.end), label="end offset")
        found = self.log.read(offset, max_bytes, end_offset)
        headers = [header for _, header in iter_headers(found)]
        assert sum(header.size_in_bytes for header in headers) == len(found)
        assert len(found) <= max_bytes or len(headers) == 1
        expected = [b for b in self.batches if b[0] + len(b[2]) > offset and b[0] + len(b[2]) <= end_offset]
        assert [h.base_offset for h in headers] == [b[0] for b in expected[: len(headers)]]
        assert bool(headers) == bool(expected)

    @rule(timestamp=st.integers(-1, 60))
    def find_by_timestamp(self, timestamp: int) -> None:
        records = [(r.timestamp_ms, r.offset) for r in self._records()]
        expected = next(((t, o) for t, o in records if t >= timestamp), None)
        found = self.log.find_by_timestamp(timestamp)
        assert (found and (found.timestamp_ms, found.offset)) == expected
        newest = self.log.find_max_timestamp()
        best = max(records, key=lambda pair: (pair[0], -pair[1]), default=None)
        assert (newest and (newest.timestamp_ms, newest.offset)) == best

    @invariant()
    def log_is_as_the_model(self) -> None:
        self.log.check_invariants()
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        expected = [(base + i, value) for base, _, values in self.batches for i, value in enumerate(values)]
        assert [(record.offset, record.value) for record in self._records()] == expected

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        for base, epoch, values in self.batches:
            later = [b for b in self.batches if b[1] > epoch]
            ahead = [entry.start_offset for entry in self.log.epoch_entries if entry.start_offset >= self.end]
            end = later[0][0] if later else (ahead or [self.end])[0]
            assert self.log.end_offset_for_epoch(epoch) == (epoch, end), (base, values)

    def _records(self) -> list[Any]:
        records, offset = [], self.start
        while offset < self.end:
            chunk = self.log.read(offset, 500, self.end)
            for position, header in iter_headers(chunk):
                records += read_records(chunk, position)
                offset = header.next_offset
        return records


LogMachine.TestCase.settings = settings(
    max_examples=400, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogModel = LogMachine.TestCase
