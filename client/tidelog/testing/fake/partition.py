"""A partition in memory: whole RecordBatches v2 as a leader stores them, with Kafka's rules of reading.

The owner's lock guards it: nothing here is thread-safe. Offsets: start inclusive, end exclusive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.testing.fake.acceptance import accept_produced
from tidelog.testing.fake.producers import AppendResult, Producers
from tidelog.v1 import log_service_pb2
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.config.topic import LOG_APPEND_TIME
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import UNKNOWN_OFFSET
from tidelog_foundation.records import Record, assign_offsets, iter_records, parse_header


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch as it is served: its bytes, and its first and last offset (both inclusive)."""

    base_offset: int
    last_offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A record found by its timestamp; offset and timestamp are -1 when there is none."""

    offset: int
    timestamp_ms: int


NOT_FOUND = FoundOffset(UNKNOWN_OFFSET, -1)


class FakePartition:
    """The log of one partition and the epochs of its leaders.

    Invariants: batches are contiguous from the first to ``log_end_offset``; epochs and their start
    offsets never decrease.
    """

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.leader_epoch = 0
        self._batches: list[StoredBatch] = []
        self._epoch_starts: list[tuple[int, int]] = [(0, 0)]
        self._log_end_offset = 0
        self._producers = Producers()

    @property
    def log_end_offset(self) -> int:
        """One past the last record; also the high watermark, since the one replica is the whole ISR."""
        return self._log_end_offset

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(len(batch.data) for batch in self._batches)

    def append(self, records: bytes, config: TopicConfig, now_ms: int) -> AppendResult:
        """Append one produced batch as the topic's settings say; one that is there already is not appended again.

        Raises:
            TidelogError: what `accept_produced` and `Producers.find_duplicate` raise.
        """
        batch = bytearray(accept_produced(records, config, now_ms))
        header = parse_header(batch)
        duplicate = self._producers.find_duplicate(header)
        if duplicate is not None:
            return duplicate
        append_time_ms = now_ms if config.message_timestamp_type == LOG_APPEND_TIME else None
        base_offset = self._log_end_offset
        assign_offsets(batch, base_offset, self.leader_epoch, append_time_ms)
        last_offset = base_offset + header.last_offset_delta
        self._batches.append(StoredBatch(base_offset, last_offset, bytes(batch)))
        self._log_end_offset = last_offset + 1
        result = AppendResult(base_offset, -1 if append_time_ms is None else append_time_ms)
        self._producers.take(header, result, now_ms)
        return result

    def active_producers(self) -> list[log_service_pb2.ActiveProducer]:
        """Return the producers with an id."""
        return self._producers.describe()

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        """Return whole batches from the one that holds ``offset`` on, within ``max_bytes``.

        ``at_least_one`` lets the first batch be larger than that.

        Raises:
            TidelogError: OFFSET_OUT_OF_RANGE outside of [log start, log end].
        """
        if not self.log_start_offset <= offset <= self._log_end_offset:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside of [{self.log_start_offset}, {self._log_end_offset}]",
            )
        chunks: list[bytes] = []
        size = 0
        for batch in self._batches[self._index_of(offset) :]:
            if size + len(batch.data) > max_bytes and not (at_least_one and not chunks):
                break
            chunks.append(batch.data)
            size += len(batch.data)
        return b"".join(chunks)

    def find_by_timestamp(self, timestamp_ms: int) -> FoundOffset:
        """Return the first record whose timestamp is at or after ``timestamp_ms``."""
        found = (r for r in self.records() if r.timestamp_ms >= timestamp_ms)
        return next((FoundOffset(r.offset, r.timestamp_ms) for r in found), NOT_FOUND)

    def find_max_timestamp(self) -> FoundOffset:
        """Return the first record of the largest timestamp (KIP-734)."""
        latest = max(self.records(), key=lambda r: r.timestamp_ms, default=None)
        return NOT_FOUND if latest is None else FoundOffset(latest.offset, latest.timestamp_ms)

    def records(self) -> Iterator[Record]:
        """Yield every record from the log start offset on."""
        for batch in self._batches:
            yield from iter_records(batch.data, start_offset=self.log_start_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch under which ``offset`` was or will be written."""
        return self._epoch_starts[bisect_right(self._epoch_starts, offset, key=lambda e: e[1]) - 1][0]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above ``epoch`` and its end offset; (-1, -1) when unknown (KIP-101)."""
        if epoch > self.leader_epoch or epoch < 0:
            return -1, UNKNOWN_OFFSET
        position = bisect_right(self._epoch_starts, epoch, key=lambda e: e[0])
        found = self._epoch_starts[position - 1][0]
        is_last = position == len(self._epoch_starts)
        return found, self._log_end_offset if is_last else self._epoch_starts[position][1]

    def start_next_epoch(self) -> int:
        """Do as if the node had been elected again: the leader epoch grows by one."""
        self.leader_epoch += 1
        self._epoch_starts.append((self.leader_epoch, self._log_end_offset))
        return self.leader_epoch

    def delete_records(self, before_offset: int) -> None:
        """Move the log start offset up, as retention does; whole batches below it are dropped.

        Raises:
            TidelogError: OFFSET_OUT_OF_RANGE above the log end.
        """
        if not 0 <= before_offset <= self._log_end_offset:
            text = f"records below offset {before_offset} cannot be deleted, the high watermark is"
            raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text} {self._log_end_offset}")
        self.log_start_offset = max(self.log_start_offset, before_offset)
        del self._batches[: self._index_of(self.log_start_offset)]

    def check_invariants(self) -> None:
        """Assert that the batches are contiguous and end at the log end offset."""
        next_offset = self._batches[0].base_offset if self._batches else self._log_end_offset
        assert next_offset <= max(self.log_start_offset, next_offset)
        for batch in self._batches:
            assert batch.base_offset == next_offset, f"gap before {batch.base_offset}, expected {next_offset}"
            next_offset = batch.last_offset + 1
        assert next_offset == self._log_end_offset
        assert 0 <= self.log_start_offset <= self._log_end_offset
        assert self._epoch_starts == sorted(self._epoch_starts)

    def _index_of(self, offset: int) -> int:
        return bisect_left(self._batches, offset, key=lambda batch: batch.last_offset)
