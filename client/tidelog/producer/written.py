"""The result of ``produce_batch()``: the place of each row in the log."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

from tidelog.producer.core.engine import columns
from tidelog.producer.core.events import Settle
from tidelog_foundation.errors import KafkaError, TidelogError

NOT_WRITTEN = -1


class WrittenRows(Sequence[int]):
    """The offset of each row, in row order, and its partition.

    ``offsets`` (int64) and ``partitions`` (int32) are buffers: ``numpy.asarray(rows.offsets)`` does not copy. An offset
    is -1 if the cluster did not return one: with ``acks=0``, and for failed rows.
    """

    __slots__ = ("_offsets", "_partitions")

    def __init__(self, offsets: array[int], partitions: array[int]) -> None:
        self._offsets = offsets
        self._partitions = partitions

    @property
    def offsets(self) -> memoryview:
        """The offset of each row."""
        return memoryview(self._offsets).toreadonly()

    @property
    def partitions(self) -> memoryview:
        """The partition of each row; -1 if the row failed before it was chosen."""
        return memoryview(self._partitions).toreadonly()

    def to_arrow(self) -> Any:
        """Return an Arrow table with the columns ``partition`` and ``offset``; needs pyarrow."""
        import pyarrow

        parts = {"partition": (pyarrow.int32(), self._partitions), "offset": (pyarrow.int64(), self._offsets)}
        return pyarrow.table(
            {
                name: pyarrow.Array.from_buffers(kind, len(self), [None, pyarrow.py_buffer(store)])
                for name, (kind, store) in parts.items()
            }
        )

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, row: int) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[int]: ...
    def __getitem__(self, row: int | slice) -> int | Sequence[int]:
        return self._offsets[row]

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, WrittenRows):
            return self._offsets == other._offsets and self._partitions == other._partitions
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._offsets[:8])) + (", ..." if len(self) > 8 else "")
        return f"WrittenRows({len(self)} rows: [{shown}])"


class BatchDeliveryError(TidelogError):
    """The error of ``produce_batch()`` if some rows were not delivered: their offsets in ``rows`` are -1.

    The code is the first failure's. ``failed`` is the number of rows; the text tells if they may be stored.
    """

    def __init__(self, error: KafkaError, rows: WrittenRows, failed: int) -> None:
        super().__init__(error)
        self.rows = rows
        self.failed = failed

    def __reduce__(self) -> tuple[Any, ...]:
        return (TidelogError, (self.error,))


class RowsSink:
    """Collects the outcomes of one call's rows, from the network thread for the application's thread."""

    def __init__(self, rows: int) -> None:
        self.offsets = array("q", [NOT_WRITTEN]) * rows
        self.partitions = array("i", [NOT_WRITTEN]) * rows
        self.fed = 0
        self.failure: TidelogError | None = None
        self._lock = threading.Lock()
        self._settled = 0
        self._failed = 0

    @property
    def is_settled(self) -> bool:
        """True if all submitted rows have an outcome."""
        return self._settled >= self.fed

    def settle(self, settle: Settle, rows: array[int] | None, base_row: int, first: int) -> None:
        """Store the outcome of ``settle.count`` rows: those in ``rows`` from ``first`` on, relative to ``base_row``."""
        with self._lock:
            if settle.error is not None:
                self._failed += settle.count
                self.failure = self.failure or settle.error
            elif settle.base_offset >= 0:
                with memoryview(self.offsets) as view:
                    columns.fill(view[base_row:], rows, first, settle.count, settle.base_offset)
            self._settled += settle.count

    def result(self) -> WrittenRows:
        """Return the place of each row.

        Raises:
            BatchDeliveryError: some rows were not delivered.
        """
        written = WrittenRows(self.offsets, self.partitions)
        if self.failure is not None:
            failed = self._failed + len(self.offsets) - self.fed
            text = f"{failed} of {len(self.offsets)} rows were not delivered: {self.failure.message}"
            error = self.failure.error
            raise BatchDeliveryError(KafkaError(self.failure.code, text, error.fatal()), written, failed)
        return written
