"""The conversion of one delivery, decoded on demand, into messages or Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.consumer.columns import decode_rows
from tidelog.consumer.core.events import Deliver
from tidelog.message import Message
from tidelog_foundation.records import COMPILED, summarize_batches
from tidelog_foundation.records.reader import RECORDS_AT_ONCE

if TYPE_CHECKING:
    import pyarrow

    from tidelog.consumer._pure_message_reader import MessageReader
else:
    try:
        if not COMPILED:
            raise ImportError("the pure engine is selected")
        from tidelog.consumer._fast_message_reader import MessageReader
    except ImportError:
        from tidelog.consumer._pure_message_reader import MessageReader


class Reading:
    """A delivery read from front to end on the application's thread. ``next_offset`` is the next offset to search.

    ``leader_epoch`` belongs to the record before it. Calls for messages and columns may alternate.
    """

    def __init__(self, item: Deliver) -> None:
        self.item = item
        self.next_offset = item.offset
        self.leader_epoch = -1
        self._messages: MessageReader | None = None
        self._columns: Any = None
        self._row = 0

    def messages(self, most: int) -> list[Message]:
        """Return up to ``most`` messages; none at the end.

        Raises:
            TidelogError: a batch is damaged or cannot be decoded; earlier calls returned the messages before it.
        """
        self._columns = None
        item = self.item
        reader = self._messages
        if reader is None:
            reader = MessageReader(item.topic, item.partition, item.records, item.aborted, self.next_offset)
            self._messages = reader
        found = reader.read(min(most, RECORDS_AT_ONCE))
        if found:
            self.next_offset, self.leader_epoch = reader.next_offset, reader.leader_epoch
        else:
            self._end()
        return found

    def go_back(self, offset: int) -> None:
        """Continue at ``offset``, because the application did not take the later messages."""
        self._messages = None
        self._columns = None
        self.next_offset = offset

    def rows(self, most: int) -> pyarrow.RecordBatch | None:
        """Return up to ``most`` rows in the form of :func:`tidelog.consumer.columns.decode_rows`; None at the end.

        Raises:
            TidelogError: see :meth:`messages`; earlier calls returned the rows before the damage.
            ModuleNotFoundError: pyarrow is not installed.
        """
        self._messages = None
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

    def _end(self) -> None:
        summary = summarize_batches(self.item.records)
        if summary.next_offset > self.next_offset:
            self.next_offset, self.leader_epoch = summary.next_offset, summary.leader_epoch
