"""A sequential reader of the batches of one ``.log`` file, also on the disk of a running node.

The file is read in chunks and never mapped, since a file that shrinks meanwhile must not crash the process. After the
last whole batch there is nothing, or zeros, which a preallocated segment has, or bytes that are not a batch. A recently
changed file may end in a write in progress, so its end is read again before it is reported as torn. Memory use is one
chunk or the largest batch.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from crc32c import crc32c

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import HEADER_SIZE, RecordBatchHeader, parse_header

CHUNK_SIZE = 4 * 1024 * 1024
_COVERED = 21
_RECENT_S = 5.0
_RETRY_PAUSE_S = 0.05
_LOOKS = 4


class ScannedBatch(NamedTuple):
    """A complete batch with a valid header. ``data`` is valid until the next batch is read."""

    position: int
    header: RecordBatchHeader
    is_valid: bool
    data: memoryview


class SegmentScan:
    """One pass over a segment. It is a context manager that keeps the file open.

    After the pass ``fault`` describes the problem after the last batch, which ends at ``end``, and ``preallocated`` is
    the number of zeros there.
    """

    def __init__(self, path: Path, check_crc: bool = True) -> None:
        self.path = path
        self.end = 0
        self.preallocated = 0
        self.fault: str | None = None
        self._check_crc = check_crc
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._handle).st_size
        self._buffer = memoryview(bytearray(min(CHUNK_SIZE, max(self._size, HEADER_SIZE))))
        self._start, self._length = 0, 0

    def __enter__(self) -> SegmentScan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    @property
    def size(self) -> int:
        """The file's size in bytes when it was last checked."""
        return self._size

    def batches(self) -> Iterator[ScannedBatch]:
        """Yield the batches in order up to the last whole one.

        Raises:
            OSError: The file cannot be read.
        """
        while True:
            batch = self._next()
            if batch is None:
                return
            yield batch
            self.end += batch.header.size_in_bytes

    def _next(self) -> ScannedBatch | None:
        for look in range(_LOOKS):
            if look:
                time.sleep(_RETRY_PAUSE_S)
                self._size, self._length = os.fstat(self._handle).st_size, 0
            batch = self._batch_at(self.end)
            is_whole = batch is not None and batch.is_valid
            if is_whole or (batch is None and self.fault is None) or not self._is_being_written():
                return batch
        return batch

    def _batch_at(self, position: int) -> ScannedBatch | None:
        self.fault = None
        remaining = self._size - position
        if remaining <= 0:
            return None
        if self._is_zero_from(position):
            self.preallocated = remaining
            return None
        try:
            header = parse_header(self._view(position, HEADER_SIZE))
        except CorruptRecordError as error:
            self.fault = f"{remaining} bytes that are not a batch: {error.message or error}"
            return None
        if header.size_in_bytes > remaining:
            self.fault = (
                f"a torn batch with base offset {header.base_offset}: it has {header.size_in_bytes} bytes,"
                f" {remaining} are there"
            )
            return None
        data = self._view(position, header.size_in_bytes)
        if len(data) < header.size_in_bytes:
            self.fault = f"the file ended at byte {position + len(data)} while it was read"
            return None
        is_valid = not self._check_crc or crc32c(data[_COVERED:]) == header.crc
        return ScannedBatch(position, header, is_valid, data)

    def _is_being_written(self) -> bool:
        return time.time() - os.fstat(self._handle).st_mtime < _RECENT_S

    def _is_zero_from(self, position: int) -> bool:
        """Return whether only zeros, or holes, follow. The check is cheap unless they do."""
        if bytes(self._view(position, HEADER_SIZE)).strip(b"\0"):
            return False
        while position < self._size:
            view = self._view(position, min(CHUNK_SIZE, self._size - position))
            if bytes(view).strip(b"\0"):
                return False
            if len(view) == 0:
                return True
            position = self._next_data(position + len(view))
        return True

    def _next_data(self, position: int) -> int:
        try:
            return os.lseek(self._handle, position, os.SEEK_DATA)
        except OSError as error:
            return self._size if error.errno == errno.ENXIO else position

    def _view(self, position: int, size: int) -> memoryview:
        """Return ``size`` bytes at a position, fewer only at the end of the file."""
        start = position - self._start
        if start < 0 or start + size > self._length:
            self._read(position, size)
            start = 0
        return self._buffer[start : min(start + size, self._length)]

    def _read(self, position: int, size: int) -> None:
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._start, self._length = position, 0
        wanted = min(len(self._buffer), max(self._size - position, 0))
        while self._length < wanted:
            count = os.preadv(self._handle, [self._buffer[self._length : wanted]], position + self._length)
            if count == 0:
                return
            self._length += count
