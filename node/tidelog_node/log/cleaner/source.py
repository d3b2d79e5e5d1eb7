"""Reads the batches of sealed segments through its own file handles, so that the log can read and append meanwhile.

Sealed segments do not change. A file that is missing or shorter than expected means that the log was truncated, deleted
or moved, and the cleaning stops.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import HEADER_SIZE, LOG_OVERHEAD
from tidelog_node.log.cleaner.job import Throttle
from tidelog_node.log.disk.files import Files

_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8


class CleaningAborted(Exception):
    """The log has changed since its cleaning began, or the cleaner is stopping."""


class BatchSource:
    """The input of one cleaner. It buffers at most ``buffer_bytes``, or one batch if that is larger.

    It calls ``check`` before each read; ``check`` raises :class:`CleaningAborted` to stop the cleaning.
    """

    def __init__(self, files: Files, buffer_bytes: int, throttle: Throttle, check: Callable[[], None]) -> None:
        self._files = files
        self._buffer_bytes = max(buffer_bytes, HEADER_SIZE)
        self._throttle = throttle
        self._check = check

    @contextlib.contextmanager
    def batches(self, path: Path, size: int) -> Iterator[Iterator[tuple[bytes, int]]]:
        """Open a file of ``size`` bytes and yield its batches, each as a buffer and the batch's position in it.

        Raises:
            CleaningAborted: the file is missing or shorter than ``size``, or ``check`` raised it.
            CorruptRecordError: a batch's length field is invalid.
            OSError: the disk refuses.
        """
        try:
            handle = self._files.open(path)
        except FileNotFoundError as cause:
            raise CleaningAborted(f"{path} is gone") from cause
        try:
            yield self._batches(handle, path, size)
        finally:
            self._files.close(handle)

    def _batches(self, handle: int, path: Path, size: int) -> Iterator[tuple[bytes, int]]:
        position, wanted = 0, self._buffer_bytes
        while position < size:
            data = self._read(handle, path, min(wanted, size - position), position)
            start, wanted = 0, self._buffer_bytes
            while (end := start + _batch_size(data, start, path, position)) <= len(data):
                yield data, start
                start = end
            if start == 0:
                wanted = max(end, HEADER_SIZE)
                if wanted > size - position:
                    raise CorruptRecordError(
                        f"{path}: the batch at byte {position} has {end} bytes, {size - position} remain"
                    )
            position += start

    def _read(self, handle: int, path: Path, size: int, position: int) -> bytes:
        self._check()
        self._throttle.take(size)
        data = self._files.pread(handle, size, position)
        if len(data) != size:
            raise CleaningAborted(f"{path} ends at byte {position + len(data)}")
        return data


def _batch_size(data: bytes, start: int, path: Path, position: int) -> int:
    """Return the size of the batch at ``start``, or the size of a header when the length field is not in ``data``."""
    if len(data) - start < LOG_OVERHEAD:
        return HEADER_SIZE
    size: int = _LENGTH.unpack_from(data, start + _LENGTH_POSITION)[0] + LOG_OVERHEAD
    if size < HEADER_SIZE:
        raise CorruptRecordError(
            f"{path}: the batch at byte {position + start} has {size} bytes, the minimum is {HEADER_SIZE}"
        )
    return size
