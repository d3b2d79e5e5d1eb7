"""The core of ``produce_batch()``: it encodes columns into batches, and gives them to the
accumulator as room allows.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidelog.producer.columns import ANY_PARTITION, Columns, slice_rows
from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import Rows
from tidelog.producer.core.engine import columns as engine
from tidelog.producer.core.events import Settle
from tidelog.producer.core.faults import check_topic, no_partition
from tidelog.producer.core.limits import RECORD_OVERHEAD, AccumulatorLimits
from tidelog.producer.core.partitioner import TopicPartitioner
from tidelog.producer.written import RowsSink, WrittenRows
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder, record_size_upper_bound
from tidelog_foundation.records.sources import ContentSource, content_at


@dataclass(slots=True)
class _Group:
    """The rows of one partition, -1 for sticky rows. Without ``rows``, all rows of the piece from
    ``next`` to ``end``.
    """

    partition: int
    rows: array[int] | None
    next: int
    end: int


class BatchFeed:
    """One call of ``produce_batch()``, on the application's thread."""

    def __init__(
        self,
        topic: str,
        limits: AccumulatorLimits,
        accumulator: Accumulator,
        lock: threading.RLock,
        wait_for: Callable[[Callable[[], bool], float | None], bool],
        check: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """Create a feed.

        ``wait_for(condition, timeout_s)`` evaluates the condition under the lock until it holds. ``check()`` raises if
        the producer is closed. ``wake()`` makes the producer look at the accumulator.
        """
        check_topic(topic)
        self._topic = topic
        self._limits = limits
        self._accumulator = accumulator
        self._lock = lock
        self._wait_for = wait_for
        self._check = check
        self._wake = wake
        # At most half of the queue, so that one batch can be built while another is sent.
        self._most_rows = max(limits.max_messages // 2, 1)
        self._most_bytes = min(limits.batch_size, limits.max_bytes // 2)

    def run(self, pieces: list[Columns]) -> WrittenRows:
        """Send all rows and wait for their outcomes. Raise as ``Producer.produce_batch``."""
        for piece in pieces:
            self._check_sizes(piece)
        sink = RowsSink(sum(piece.rows for piece in pieces))
        partitioner = self._partitioner()
        chosen = [self._chosen(piece, partitioner) for piece in pieces]
        base_row = 0
        try:
            for piece, partitions in zip(pieces, chosen, strict=True):
                self._feed(piece, partitions, partitioner, sink, base_row)
                base_row += piece.rows
        except TidelogError as error:
            sink.failure = sink.failure or error
        self._wake()
        self._wait_for(lambda: sink.is_settled, None)
        return sink.result()

    def _check_sizes(self, piece: Columns) -> None:
        size, row = engine.largest(piece.values, piece.keys)
        if size + RECORD_OVERHEAD > self._limits.message_max_bytes:
            text = f"row {row} has {size} bytes, which exceeds message.max.bytes={self._limits.message_max_bytes}"
            raise error_for(ErrorCode.MESSAGE_TOO_LARGE, text)

    def _partitioner(self) -> TopicPartitioner:
        """Return the topic's partitioner, after waiting for the topic's metadata."""
        accumulator, topic = self._accumulator, self._topic
        with self._lock:
            self._check()
            partitioner = accumulator.partitioner(topic)
            if partitioner is not None:
                return partitioner
            accumulator.awaited[topic] = None
        self._wake()
        try:
            timeout_s = self._limits.message_timeout_ms / 1000
            self._wait_for(lambda: accumulator.awaited.get(topic, _KNOWN) is not None, timeout_s)
            with self._lock:
                self._check()
                error = accumulator.awaited.get(topic)
                partitioner = accumulator.partitioner(topic)
        finally:
            with self._lock:
                accumulator.awaited.pop(topic, None)
        if partitioner is None:
            text = f'the partitions of topic "{topic}" were not learned within {timeout_s:g} s'
            raise error or error_for(ErrorCode._TIMED_OUT, text)
        return partitioner

    def _chosen(self, piece: Columns, partitioner: TopicPartitioner) -> int | array[int]:
        """Return the partition of all rows, or of each; -1 for sticky rows."""
        partitions = piece.partitions
        highest = partitions if isinstance(partitions, int) else max(partitions, default=ANY_PARTITION)
        if highest >= partitioner.count:
            raise no_partition(self._topic, highest, partitioner.count)
        is_open = partitions == ANY_PARTITION if isinstance(partitions, int) else ANY_PARTITION in partitions
        if not is_open:
            return partitions
        if isinstance(partitions, int) and partitioner.is_plain and (piece.keys is None or not partitioner.key_hash):
            return self._keyless(partitioner)
        each = array("i", [ANY_PARTITION]) * piece.rows if isinstance(partitions, int) else partitions
        if not partitioner.is_plain:
            self._ask(piece, partitioner, each)
        elif partitioner.key_hash:
            keys: ContentSource = [None] * piece.rows if piece.keys is None else piece.keys
            rule = (partitioner.key_hash, partitioner.keyless_hash, partitioner.empty_sticks, partitioner.count)
            engine.choose_partitions(keys, *rule, each)
        return each

    def _keyless(self, partitioner: TopicPartitioner) -> int:
        return ANY_PARTITION if partitioner.keyless_hash < 0 else partitioner.keyless_hash % partitioner.count

    def _ask(self, piece: Columns, partitioner: TopicPartitioner, each: array[int]) -> None:
        with self._lock:
            for row, partition in enumerate(each):
                if partition == ANY_PARTITION:
                    each[row] = partitioner.for_key(None if piece.keys is None else content_at(piece.keys, row, "key"))

    def _feed(
        self,
        piece: Columns,
        partitions: int | array[int],
        partitioner: TopicPartitioner,
        sink: RowsSink,
        base_row: int,
    ) -> None:
        """Give the accumulator a batch of each partition in turn, to keep all leaders busy."""
        groups = list(_groups(partitions, piece.rows, partitioner.count))
        if not isinstance(partitions, int):
            sink.partitions[base_row : base_row + piece.rows] = partitions
        while groups:
            for group in groups:
                self._feed_one(piece, group, partitioner, sink, base_row)
            groups = [group for group in groups if group.next < group.end]

    def _feed_one(
        self, piece: Columns, group: _Group, partitioner: TopicPartitioner, sink: RowsSink, base_row: int
    ) -> None:
        builder = self._built(piece, group)
        count, size, first = builder.count, builder.size_in_bytes - HEADER_SIZE, group.next
        told = functools.partial(_settle, sink, group.rows, base_row)
        while True:
            with self._lock:
                self._check()
                if self._accumulator.has_room(count, size):
                    partition = partitioner.sticky if group.partition < 0 else group.partition
                    if group.partition < 0:
                        partitioner.next_sticky()
                    now_ms = time.monotonic() * 1000
                    self._accumulator.append_batch(self._topic, partition, builder, size, Rows(told, first), now_ms)
                    sink.fed += count
                    break
            self._wait_for(lambda: self._accumulator.has_room(count, size), None)
        if group.rows is None or group.partition < 0:
            with memoryview(sink.partitions) as view:
                engine.stamp(view[base_row:], group.rows, first, count, partition)
        group.next += count
        self._wake()

    def _built(self, piece: Columns, group: _Group) -> RecordBatchBuilder:
        """Return a batch of the group's next rows."""
        limits = self._limits
        builder = RecordBatchBuilder(limits.compression, limits.compression_level)
        start, end = group.next, min(group.end, group.next + self._most_rows)
        if piece.headers is not None:
            self._add_with_headers(builder, piece, group, end)
            return builder
        times = piece.timestamps
        if group.rows is None:
            values = slice_rows(piece.values, start, end)
            keys = None if piece.keys is None else slice_rows(piece.keys, start, end)
            times = times if isinstance(times, int) else times[start:end]
        else:
            values = engine.gather(piece.values, group.rows, start, end, self._most_bytes, "value")
            end = start + values.rows
            keys = None
            if piece.keys is not None:
                keys = engine.gather(piece.keys, group.rows, start, end, sys.maxsize, "key")
            times = times if isinstance(times, int) else engine.pick(times, group.rows, start, end)
        builder.extend(values, keys, times, max_bytes=self._most_bytes)
        return builder

    def _add_with_headers(self, builder: RecordBatchBuilder, piece: Columns, group: _Group, end: int) -> None:
        assert piece.headers is not None
        for index in range(group.next, end):
            row = index if group.rows is None else group.rows[index]
            value = content_at(piece.values, row, "value")
            key = None if piece.keys is None else content_at(piece.keys, row, "key")
            headers = piece.headers[row] or ()
            more = record_size_upper_bound(key, value, headers)
            if builder.count and builder.size_in_bytes + more > self._most_bytes:
                return
            timestamp_ms = piece.timestamps if isinstance(piece.timestamps, int) else piece.timestamps[row]
            builder.append(key, value, headers, timestamp_ms)


_KNOWN = error_for(ErrorCode.NONE)


def _settle(sink: RowsSink, rows: array[int] | None, base_row: int, settle: Settle, first: int) -> None:
    sink.settle(settle, rows, base_row, first)


def _groups(partitions: int | array[int], rows: int, count: int) -> Iterator[_Group]:
    if not rows:
        return
    if isinstance(partitions, int):
        yield _Group(partitions, None, 0, rows)
        return
    order, starts = engine.group(partitions, count)
    for partition in range(-1, count):
        start, end = starts[partition + 1], starts[partition + 2]
        if end - start == rows:
            yield _Group(partition, None, 0, rows)
        elif end > start:
            yield _Group(partition, order, start, end)
