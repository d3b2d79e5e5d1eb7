"""Collection of fetched records into one Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.consumer.columns import import_arrow, row_schema
from tidelog.consumer.records import RecordQueue
from tidelog.message import Message
from tidelog_foundation.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    import pyarrow


class RowGatherer:
    """One call of consume_arrow()."""

    def __init__(self, queue: RecordQueue, most: int) -> None:
        """Gather up to ``most`` rows.

        Raises:
            ValueError: ``most`` is negative.
            ModuleNotFoundError: pyarrow is not installed.
        """
        if most < 0:
            raise ValueError(f"max_records must be at least 0, not {most}")
        self._arrow = import_arrow()
        self._queue = queue
        self._most = most
        self._batches: list[pyarrow.RecordBatch] = []
        self.count = 0

    def take(self, at_once: int | None = None) -> bool:
        """Take up to ``at_once`` available rows; return True if the call must return what it has.

        Raises:
            TidelogError: an event that precedes all rows.
        """
        end = self._most if at_once is None else min(self._most, self.count + at_once)
        while self.count < end:
            found = self._queue.take_rows(end - self.count)
            if found is None:
                return False
            if not isinstance(found, Message):
                self._batches.append(found)
                self.count += found.num_rows
            elif self._ends_at(found):
                return True
        return self.count >= self._most

    def first_offsets(self) -> dict[tuple[str, int], int]:
        """Return the first offset taken from each partition."""
        found: dict[tuple[str, int], int] = {}
        for batch in self._batches:
            topic, partition, offset = (batch.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
            found.setdefault((topic, partition), offset)
        return found

    def table(self) -> pyarrow.Table:
        """Return all rows taken."""
        table: pyarrow.Table = self._arrow.Table.from_batches(self._batches, schema=row_schema(self._arrow))
        return table

    def _ends_at(self, event: Message) -> bool:
        error = event.error()
        assert error is not None
        if error.error_code() is ErrorCode._PARTITION_EOF:
            return False
        if not self.count:
            raise TidelogError(error)
        self._queue.put_back(event)
        return True
