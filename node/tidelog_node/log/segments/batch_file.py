"""The ``.log`` file of a segment: a sequence of whole batches (Kafka's FileRecords).

``size`` is the end of the batches. The file may be longer: until a failed append is cut off, and with ``preallocate``,
which fills the rest with zeros until the segment is sealed. Nothing reads beyond ``size``. The file of a new partition
may be created after the object, before the first append.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import HEADER_SIZE, RecordBatchHeader, parse_header, scan_batches
from tidelog_node.log.disk.files import Buffer, Files, write_fully, write_parts

_HEADER_WINDOW = 8192
_READ_AHEAD = 4
"""The disk works ahead of a reader of records that are on it by so many reads,"""
_MOST_READ_AHEAD = 8 << 20
"""and by at most so many bytes."""
_SCAN_WINDOW = 256 << 10
_CLOSED = -1
_NOT_THERE = -2


class UncachedBytes(NamedTuple):
    """Bytes of a file that a read would wait for, and the number of those behind them to read ahead.

    ``size`` is 0 if the reader need not wait.
    """

    files: Files
    handle: int
    size: int
    position: int
    ahead: int

    def load(self) -> None:
        """Read the bytes into the system's memory, in any thread, and begin to read those behind them.

        Nothing happens if the file was closed meanwhile.
        """
        # The number of a closed file may belong to another by now, which is then read in vain.
        with contextlib.suppress(OSError):
            self.files.read_ahead(self.handle, self.size + self.ahead, self.position)
        if not self.size:
            return
        with contextlib.suppress(OSError):
            # The disk reads the bytes in their order, mostly. One call waits for the interpreter once.
            self.files.pread(self.handle, 1, self.position + self.size - 1)
            if not self.files.is_cached(self.handle, self.size, self.position):
                self.files.pread(self.handle, self.size, self.position)


class BatchFile:
    """One open file. Methods raise OSError when the disk refuses, and EBADF after :meth:`close`."""

    __slots__ = ("_files", "_handle", "_is_cut", "_is_longer", "_later", "size")

    def __init__(self, files: Files, handle: int) -> None:
        self._files = files
        self._handle = handle
        self._is_longer = False
        self._is_cut = False
        self._later: tuple[Path, int] | None = None
        self.size = 0 if handle == _NOT_THERE else files.size(handle)

    @classmethod
    def open(cls, files: Files, path: Path) -> BatchFile:
        """Open a file without reading it."""
        return cls._opened(files, files.open(path), None, 0)

    @classmethod
    def create(cls, files: Files, path: Path, allocated_bytes: int = 0) -> BatchFile:
        """Create an empty file, or truncate an existing one; ``allocated_bytes`` reserves disk space."""
        return cls._opened(files, files.open(path, create=True), 0, allocated_bytes)

    @classmethod
    def create_later(cls, files: Files, path: Path, allocated_bytes: int = 0) -> BatchFile:
        """Return an object for an empty file; :meth:`make` creates the file."""
        later = cls(files, _NOT_THERE)
        later._later = (path, allocated_bytes)
        return later

    def make(self) -> None:
        """Create the file, unless it exists or was closed. Called by one thread, before the first append."""
        if self._later is not None and self._handle == _NOT_THERE:
            made = BatchFile.create(self._files, *self._later)
            self._is_longer, self._handle, self._later = made._is_longer, made._handle, None

    @property
    def is_there(self) -> bool:
        """True if the file exists."""
        return self._handle != _NOT_THERE

    @property
    def modified_ms(self) -> int:
        """The time of the last write to the file."""
        return self._files.modified_ms(self._handle)

    def set_modified_ms(self, modified_ms: int) -> None:
        """Change :attr:`modified_ms`."""
        self._files.set_modified_ms(self._handle, modified_ms)

    def append(self, data: Buffer) -> None:
        """Append whole batches. After an error they are not in the file, but it needs :meth:`cut_excess`."""
        write_fully(self._files, self._handle, data, self.size)
        self.size += len(data)

    def append_parts(self, parts: Sequence[Buffer], size: int) -> None:
        """Append one batch of ``size`` bytes that consists of several parts. Raise the errors of :meth:`append`."""
        write_parts(self._files, self._handle, parts, size, self.size)
        self.size += size

    def cut_excess(self) -> None:
        """Truncate the file behind the last batch."""
        self._files.truncate(self._handle, self.size)
        self._is_longer = False
        self._is_cut = True

    def trim(self) -> bool:
        """Release allocated space that was not needed.

        Return whether anything was cut off, now or after a failed append; a crash may bring it back until the next
        :meth:`fsync`.
        """
        if self._is_longer:
            self.cut_excess()
        return self._is_cut

    def truncate(self, size: int) -> None:
        """Truncate the file, durably."""
        self._files.truncate(self._handle, size)
        self._files.fsync(self._handle)
        self.size = size
        self._is_longer = False

    def read(self, size: int, position: int) -> bytes:
        """Return exactly ``size`` bytes."""
        data = self._files.pread(self._handle, size, position)
        if len(data) != size:
            raise OSError(errno.EIO, f"{len(data)} of {size} bytes could be read at byte {position}")
        return data

    def uncached(self, size: int, position: int) -> UncachedBytes | None:
        """Return at most ``size`` bytes if the system's memory lacks some of them, or those behind them to read ahead.

        Return None if there is nothing to read. Raises OSError.
        """
        files, handle = self._files, self._handle
        size = min(size, self.size - position)
        if size <= 0:
            return None
        end = position + size
        ahead = min(_READ_AHEAD * size, _MOST_READ_AHEAD, self.size - end)
        if not files.is_cached(handle, size, position):
            return UncachedBytes(files, handle, size, position, ahead)
        # The last byte tells whether a former call has read ahead so far.
        if ahead > 0 and not files.is_cached(handle, 1, end + ahead - 1):
            return UncachedBytes(files, handle, 0, end, ahead)
        return None

    def headers(self, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader]]:
        """Yield position and header of each batch, from a batch's position to the end.

        Raises CorruptRecordError where no whole batch follows.
        """
        window, window_start, wanted = b"", position, _HEADER_WINDOW
        while position < self.size:
            if position + HEADER_SIZE > window_start + len(window):
                window, window_start = self.read(min(wanted, self.size - position), position), position
            header = parse_header(window, position - window_start)
            size = header.size_in_bytes
            if size > self.size - position:
                raise CorruptRecordError(f"batch of {size} bytes at byte {position}, {self.size - position} remain")
            yield position, header
            position += size
            # For batches larger than the window, read only the header; the rest of a window would be discarded.
            wanted = HEADER_SIZE if size > _HEADER_WINDOW else _HEADER_WINDOW

    def scan(self, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader, memoryview]]:
        """Yield position, header and bytes of each batch from a batch's position on, after checking its CRC.

        Reads in one pass, in windows that fit the processor's cache; the bytes are valid until the next step. Raises
        CorruptRecordError where no whole and unaltered batch follows.
        """
        buffer = bytearray(min(_SCAN_WINDOW, self.size - position))
        while position < self.size:
            size = min(len(buffer), self.size - position)
            window = memoryview(buffer)[:size]
            if self._files.readinto(self._handle, window, position) != size:
                raise OSError(errno.EIO, f"{size} bytes could not be read at byte {position}")
            found = scan_batches(window, position)
            for batch_position, header in found.batches:
                start = batch_position - position
                yield batch_position, header, window[start : start + header.size_in_bytes]
            if found.fault is not None:
                raise found.fault
            position += found.size
            remaining = self.size - position
            if 0 < remaining < found.wanted:
                raise CorruptRecordError(f"batch of {found.wanted} bytes at byte {position}, {remaining} remain")
            if found.size == 0:
                buffer = bytearray(max(found.wanted, 2 * len(buffer)))

    def is_zero_from(self, position: int) -> bool:
        """Return whether all bytes from a position on are zeros, as in space that is only allocated."""
        while position < self.size:
            chunk = self.read(min(_SCAN_WINDOW, self.size - position), position)
            if any(chunk):
                return False
            position += len(chunk)
        return True

    def fsync(self) -> None:
        """Put the batches on the disk."""
        if self.is_there:
            self._files.fsync(self._handle)

    def close(self) -> None:
        """Close the file, once."""
        handle, self._handle = self._handle, _CLOSED
        if handle not in (_CLOSED, _NOT_THERE):
            self._files.close(handle)

    @classmethod
    def _opened(cls, files: Files, handle: int, cut_to: int | None, allocated_bytes: int) -> BatchFile:
        try:
            if cut_to is not None:
                files.truncate(handle, cut_to)
            if allocated_bytes:
                files.allocate(handle, allocated_bytes)
            opened = cls(files, handle)
        except OSError:
            files.close(handle)
            raise
        if allocated_bytes:
            opened.size, opened._is_longer = 0, True
        return opened
