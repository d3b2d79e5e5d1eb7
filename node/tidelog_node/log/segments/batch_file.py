"""The ``.log`` file of a segment: whole batches one behind the other (Kafka's FileRecords).

``size`` is where the batches end. The file may be longer: while an append that failed is not cut off, and with
``preallocate``, where the rest are zeros until the segment is sealed. Nothing reads beyond ``size``. The file of a new
partition may be made later than the object, before its first append.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import HEADER_SIZE, RecordBatchHeader, parse_header, scan_batches
from tidelog_node.log.disk.files import Buffer, Files, write_fully, write_parts

_HEADER_WINDOW = 8192
_SCAN_WINDOW = 256 << 10
_CLOSED = -1
_NOT_THERE = -2


class BatchFile:
    """One open file. Methods raise OSError for what the disk refuses; a file that is closed is a bad descriptor."""

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
        """Open a file; what it holds is not looked at."""
        return cls._opened(files, files.open(path), None, 0)

    @classmethod
    def create(cls, files: Files, path: Path, allocated_bytes: int = 0) -> BatchFile:
        """Create an empty file, cutting one of that name to nothing; its space may be taken from the disk at once."""
        return cls._opened(files, files.open(path, create=True), 0, allocated_bytes)

    @classmethod
    def create_later(cls, files: Files, path: Path, allocated_bytes: int = 0) -> BatchFile:
        """Return an empty file that :meth:`make` creates."""
        later = cls(files, _NOT_THERE)
        later._later = (path, allocated_bytes)
        return later

    def make(self) -> None:
        """Create the file, if it is not there yet and was not closed; by one thread, before the first append."""
        if self._later is not None and self._handle == _NOT_THERE:
            made = BatchFile.create(self._files, *self._later)
            self._is_longer, self._handle, self._later = made._is_longer, made._handle, None

    @property
    def is_there(self) -> bool:
        """Whether there is a file."""
        return self._handle != _NOT_THERE

    @property
    def modified_ms(self) -> int:
        """When the file was last written."""
        return self._files.modified_ms(self._handle)

    def set_modified_ms(self, modified_ms: int) -> None:
        """Change :attr:`modified_ms`."""
        self._files.set_modified_ms(self._handle, modified_ms)

    def append(self, data: Buffer) -> None:
        """Write whole batches at the end. When it raises, they are not there, but :meth:`cut_excess` is needed."""
        write_fully(self._files, self._handle, data, self.size)
        self.size += len(data)

    def append_parts(self, parts: Sequence[Buffer], size: int) -> None:
        """Write one batch, ``size`` bytes, that is given in parts. Raises as :meth:`append`."""
        write_parts(self._files, self._handle, parts, size, self.size)
        self.size += size

    def cut_excess(self) -> None:
        """Cut off what is behind the batches."""
        self._files.truncate(self._handle, self.size)
        self._is_longer = False
        self._is_cut = True

    def trim(self) -> bool:
        """Give space back that was allocated and not needed.

        Returns whether anything was cut off, now or after a failed append: a crash may bring it back until the next
        :meth:`fsync`.
        """
        if self._is_longer:
            self.cut_excess()
        return self._is_cut

    def truncate(self, size: int) -> None:
        """Cut the file, durably."""
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

    def headers(self, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader]]:
        """Yield position and header of each batch from a batch's position to the end.

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
            # Where batches are larger than the window, what was read behind the next header would be thrown away.
            wanted = HEADER_SIZE if size > _HEADER_WINDOW else _HEADER_WINDOW

    def scan(self, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader, memoryview]]:
        """Yield position, header and bytes of each batch from a batch's position on, after checking its CRC.

        Reads in one pass, in windows that stay in the processor's cache; the bytes are good until the next step.
        Raises CorruptRecordError where no whole and unchanged batch follows.
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
        """Return whether all bytes from a position on are zeros, as in space that was allocated only."""
        while position < self.size:
            chunk = self.read(min(_SCAN_WINDOW, self.size - position), position)
            if any(chunk):
                return False
            position += len(chunk)
        return True

    def fsync(self) -> None:
        """Return when the batches are on the disk."""
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
