"""The segment that a group of segments becomes: ``*.cleaned`` files, which nobody reads until they are swapped in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import RecordBatchHeader
from tidelog_foundation.records.header import Buffer
from tidelog_node.log.cleaner.job import LogToClean
from tidelog_node.log.cleaner.throttle import Throttle
from tidelog_node.log.disk.files import Files
from tidelog_node.log.segments.file_names import CLEANED_SUFFIX
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction

_MAX_SEGMENT_BYTES = 2**31 - 1


class CleanedOutput:
    """One cleaned segment in the making; ended by :meth:`finish` or :meth:`discard`. Methods raise OSError."""

    def __init__(self, files: Files, log: LogToClean, base_offset: int, buffer_bytes: int, throttle: Throttle) -> None:
        self.size = 0
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self._batches: list[Buffer] = []
        self._headers: list[RecordBatchHeader] = []
        self._pending_bytes = 0
        self._segment = Segment.create(files, log.directory, base_offset, log.config, suffix=CLEANED_SUFFIX)

    def append(self, header: RecordBatchHeader, batch: Buffer) -> None:
        """Add a whole batch; it is written with those that follow.

        Raises:
            TidelogError: RECORD_LIST_TOO_LARGE, the segment would pass 2 GiB.
        """
        self.size += len(batch)
        if self.size > _MAX_SEGMENT_BYTES:
            text = f"the cleaned segment {self._segment.path} would have {self.size} bytes"
            raise error_for(ErrorCode.RECORD_LIST_TOO_LARGE, text)
        self._batches.append(batch)
        self._headers.append(header)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= self._buffer_bytes:
            self._write()

    def append_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add to the index of aborted transactions, in the order of their markers."""
        for transaction in transactions:
            self._segment.transaction_index.append(transaction)

    def finish(self, modified_ms: int) -> Segment:
        """Put all of it on the disk and return the segment, which its new owner closes or removes.

        ``modified_ms`` is when the newest source was written: a record does not grow younger by being copied.
        """
        self._write()
        self._segment.set_modified_ms(modified_ms)
        self._segment.fsync()
        self._segment.save_indexes()
        return self._segment

    def discard(self) -> None:
        """Remove the files, as far as the disk lets; what stays is removed at the next opening of the log."""
        with contextlib.suppress(OSError):
            self._segment.remove()

    def close(self) -> None:
        """Close the segment's file and leave it where it is."""
        with contextlib.suppress(OSError):
            self._segment.close()

    def _write(self) -> None:
        if not self._headers:
            return
        self._throttle.take(self._pending_bytes)
        self._segment.append(b"".join(self._batches), self._headers)
        self._batches, self._headers, self._pending_bytes = [], [], 0
