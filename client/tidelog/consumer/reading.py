"""The conversion of one delivery, decoded on demand, into messages or Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.consumer.columns import decode_rows, readable_batches
from tidelog.consumer.core.events import Deliver
from tidelog.message import Message, messages_of
from tidelog_foundation.records import Record, RecordBatchHeader, iter_headers, read_parts

if TYPE_CHECKING:
    import pyarrow


class Reading:
    """A delivery read from front to end on the application's thread. ``next_offset`` is the next offset to search.

    ``leader_epoch`` belongs to the record before it. Calls for messages and columns may alternate.
    """

    def __init__(self, item: Deliver) -> None:
        self.item = item
        self.next_offset = item.offset
        self.leader_epoch = -1
        self._batches: Iterator[tuple[int, RecordBatchHeader]] | None = None
        self._epoch = -1
        self._parts: Iterator[list[Record]] = iter(())
        self._records: Sequence[Record] = ()
        self._at = 0
        self._columns: Any = None
        self._row = 0

    def messages(self, most: int) -> list[Message]:
        """Return up to ``most`` messages of one batch; none at the end.

        Raises:
            TidelogError: a batch is damaged or cannot be decoded.
        """
        self._columns = None
        if self._at >= len(self._records) and not self._next_part():
            self._end()
            return []
        records = self._records[self._at : self._at + most]
        self._at += len(records)
        self.next_offset = records[-1].offset + 1
        self.leader_epoch = self._epoch
        return messages_of(records, self.item.topic, self.item.partition, self._epoch)

    def go_back(self, offset: int) -> None:
        """Continue at ``offset``, because the application did not take the later messages."""
        self._forget_records()
        self._columns = None
        self.next_offset = offset

    def rows(self, most: int) -> pyarrow.RecordBatch | None:
        """Return up to ``most`` rows in the form of :func:`tidelog.consumer.columns.decode_rows`; None at the end.

        Raises:
            TidelogError: see :meth:`messages`; earlier calls returned the rows before the damage.
            ModuleNotFoundError: pyarrow is not installed.
        """
        self._forget_records()
        if self._columns is None or self._row >= self._columns.num_rows:
            # Decode once more after the last row: rows end before damage, which must be reported.
            self._columns, self._row = decode_rows(self.item, self.next_offset), 0
        rows = self._columns.slice(self._row, most)
        if rows.num_rows == 0:
            self._end()
            return None
        self._row += rows.num_rows
        self.next_offset = rows.column("offset")[-1].as_py() + 1
        return rows

    def _next_part(self) -> bool:
        """Decode the next records. A large batch is decoded in parts, because records take many times its bytes."""
        if self._batches is None:
            self._batches = readable_batches(self.item)
        while not (records := next(self._parts, None)):
            header = self._next_batch(self._batches)
            if header is None:
                return False
            self._epoch = header.partition_leader_epoch
        self._records, self._at = records, 0
        return True

    def _next_batch(self, batches: Iterator[tuple[int, RecordBatchHeader]]) -> RecordBatchHeader | None:
        for position, header in batches:
            if header.next_offset > self.next_offset:
                self._parts = read_parts(self.item.records, position, self.next_offset)
                return header
        return None

    def _forget_records(self) -> None:
        self._parts, self._records, self._at, self._batches = iter(()), (), 0, None

    def _end(self) -> None:
        for _, header in iter_headers(self.item.records):
            if header.next_offset > self.next_offset:
                self.next_offset, self.leader_epoch = header.next_offset, header.partition_leader_epoch
