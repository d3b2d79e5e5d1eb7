"""What was fetched on its way to the application: a queue of batches, decoded one batch at a time on its thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from tidelog.consumer.core import Deliver, Positions, Report
from tidelog.errors import TidelogError
from tidelog.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from tidelog.monitor import Monitor
from tidelog.records import Record, RecordBatchHeader, iter_headers, read_records

_TIMESTAMP_TYPES = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME)


class RecordQueue:
    """Filled on the network thread, emptied by one application thread at a time; ``lock`` guards both ends."""

    def __init__(self, monitor: Monitor, positions: Positions, on_room: Callable[[], None]) -> None:
        """``on_room`` is called when a delivery is used up while the queue counts as full."""
        self._lock = monitor.lock
        self._news = monitor.changed
        self._on_room = on_room
        self._positions = positions
        self._items: deque[Deliver | Report] = deque()
        self._reading: _Reading | None = None
        self._closed = False

    def put(self, item: Deliver | Report) -> None:
        """Add what was fetched. The caller holds the lock."""
        self._items.append(item)
        self._news.notify_all()

    def drop_stale(self) -> None:
        """Drop what was fetched before a seek, pause or assignment. The caller holds the lock."""
        stale = [i for i in self._items if not self._is_current(i)]
        for item in stale:
            self._items.remove(item)
            self._release(item)
        if self._reading is not None and not self._is_current(self._reading.item):
            self._release(self._reading.item)
            self._reading = None

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until there is something to read; returns whether there is. :meth:`close` ends the wait."""
        with self._lock:
            self._news.wait_for(lambda: bool(self._items) or self._closed, timeout_s)
            return bool(self._items)

    def close(self) -> None:
        """Drop everything, and wake those who wait."""
        with self._lock:
            self._closed = True
            self._items.clear()
            self._reading = None
            self._news.notify_all()

    def next_message(self) -> Message | None:
        """Return the next record or event, or None when nothing is there; moves the application's position."""
        while True:
            reading = self._reading
            if reading is None:
                item = self._pop()
                if item is None:
                    return None
                if isinstance(item, Report):
                    return _event(item)
                reading = self._reading = _Reading(item)
            try:
                record = next(reading.records, None)
            except TidelogError as error:
                return self._fail(reading, error)
            if record is None:
                self._finish(reading)
            elif self._consume(reading.item, record.offset + 1):
                return _message(reading.item, record)

    def _pop(self) -> Deliver | Report | None:
        with self._lock:
            while self._items:
                item = self._items.popleft()
                if self._is_current(item):
                    return item
                self._release(item)
        return None

    def _consume(self, item: Deliver, next_offset: int) -> bool:
        with self._lock:
            if self._reading is None or not self._is_current(item):
                return False
            self._positions.consumed(item.topic, item.partition, next_offset)
            return True

    def _finish(self, reading: _Reading) -> None:
        with self._lock:
            if self._reading is reading:
                self._positions.consumed(reading.item.topic, reading.item.partition, reading.next_offset)
                self._release(reading.item)
                self._reading = None
        if self._positions.is_full:
            self._on_room()

    def _fail(self, reading: _Reading, error: TidelogError) -> Message:
        item = reading.item
        with self._lock:
            state = self._positions.state(item.topic, item.partition)
            offset = item.offset if state is None or state.position is None else state.position
            if self._reading is reading:
                self._positions.stop((item.topic, item.partition))
                self.drop_stale()
        return _event(Report(item.topic, item.partition, item.generation, offset, error))

    def _is_current(self, item: Deliver | Report) -> bool:
        return self._positions.is_current(item.topic, item.partition, item.generation)

    def _release(self, item: Deliver | Report) -> None:
        if isinstance(item, Deliver):
            self._positions.released(len(item.records))


class _Reading:
    """One delivery being decoded."""

    __slots__ = ("item", "next_offset", "records")

    def __init__(self, item: Deliver) -> None:
        self.item = item
        self.next_offset = item.offset
        self.records = self._decode()

    def _decode(self) -> Iterator[Record]:
        for position, header in iter_headers(self.item.records):
            if header.next_offset > self.item.offset and not header.is_control:
                yield from self._batch(position, header)
            self.next_offset = max(self.next_offset, header.next_offset)

    def _batch(self, position: int, header: RecordBatchHeader) -> Iterator[Record]:
        records = read_records(self.item.records, position)
        if header.base_offset >= self.item.offset:
            return iter(records)
        return iter([record for record in records if record.offset >= self.item.offset])


def _message(item: Deliver, record: Record) -> Message:
    known = record.timestamp_ms >= 0
    return Message(
        item.topic,
        item.partition,
        record.offset,
        record.key,
        record.value,
        list(record.headers),
        (_TIMESTAMP_TYPES[record.timestamp_type] if known else TIMESTAMP_NOT_AVAILABLE, record.timestamp_ms),
    )


def _event(report: Report) -> Message:
    error = report.error.error
    offset = report.offset if report.offset >= 0 else None
    return Message(report.topic, report.partition, offset, None, error.str().encode(), error=error)
