"""The output segment of a group of segments: ``*.cleaned`` files, which nobody reads until the swap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import RecordBatchHeader
from tidelog_foundation.records.header import Buffer
from tidelog_node.log.cleaner.job import LogToClean, Throttle
from tidelog_node.log.disk.files import Files
from tidelog_node.log.segments.file_names import CLEANED_SUFFIX
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction

_MAX_SEGMENT_BYTES = 2**31 - 1


class CleanedOutput:
    """One cleaned segment under construction; ends with :meth:`finish` or :meth:`discard`. Methods raise OSError."""

    def __init__(self, files: Files, log: LogToClean, base_offset: int, buffer_bytes: int, throttle: Throttle) -> None:
        self.size = 0
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self._batches: list[Buffer] = []
        self._headers: list[RecordBatchHeader] = []
        self._pending_bytes = 0
        self._segment = Segment.create(files, log.directory, base_offset, log.config, suffix=CLEANED_SUFFIX)

    def append(self, header: RecordBatchHeader, batch: Buffer) -> None:
        """Add a whole batch to the buffer of batches to write.

        Raises:
            TidelogError: RECORD_LIST_TOO_LARGE, the segment would exceed 2 GiB.
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
        """Add entries to the index of aborted transactions, in the order of their markers."""
        for transaction in transactions:
            self._segment.transaction_index.append(transaction)

    def finish(self, modified_ms: int) -> Segment:
        """Put everything on the disk and return the segment; its new owner closes or removes it.

        ``modified_ms`` is the time of the newest source's last write: copying must not make records look younger.
        """
        self._write()
        self._segment.set_modified_ms(modified_ms)
        self._segment.fsync()
        self._segment.indexes.save()
        return self._segment

    def discard(self) -> None:
        """Remove the files as far as the disk permits; the next opening of the log removes the rest."""
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
