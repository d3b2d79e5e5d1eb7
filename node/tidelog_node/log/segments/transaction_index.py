"""The aborted transactions whose markers a segment holds: ``%020d.txnindex`` (Kafka's TransactionIndex).

An entry has 34 bytes: version int16 and four int64: producer id, first offset, last offset (the marker's), last stable
offset. Last offsets ascend. A READ_COMMITTED consumer drops a producer's batches from ``first_offset`` to the marker.
The file exists only when there is an entry. A crash may leave a partial last entry, which is ignored and overwritten.
"""

from __future__ import annotations

import bisect
import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog_node.log.disk.files import Files, read_file, write_fully
from tidelog_node.log.producers.entries import CompletedTransaction

TRANSACTION_INDEX_SUFFIX = ".txnindex"
ENTRY_SIZE = 34
ENTRY_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction; ``last_stable_offset`` is the first undecided offset right after its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def of(cls, completed: CompletedTransaction) -> AbortedTransaction:
        """Return the entry for a transaction that an ABORT marker ended."""
        return cls(completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset)


def encode_aborted(transaction: AbortedTransaction) -> bytes:
    """Return the entry's 34 bytes."""
    return _ENTRY.pack(ENTRY_VERSION, *transaction)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """Return the complete entries of a file, without a partial last one."""
    whole = data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]
    return [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(whole)]


def aborted_fault(data: bytes, base_offset: int) -> str | None:
    """Return the fault in a file's content, for the segment at ``base_offset``; None if the content is valid."""
    if len(data) % ENTRY_SIZE:
        return f"{len(data)} bytes are not a multiple of {ENTRY_SIZE}"
    previous = base_offset - 1
    for position, fields in zip(range(0, len(data), ENTRY_SIZE), _ENTRY.iter_unpack(data), strict=True):
        version, entry = fields[0], AbortedTransaction(*fields[1:])
        if version != ENTRY_VERSION:
            return f"the entry at byte {position} has version {version}, expected {ENTRY_VERSION}"
        if entry.last_offset <= previous:
            return f"the entry at byte {position} ends at offset {entry.last_offset}, not above {previous}"
        if not 0 <= entry.first_offset <= entry.last_offset or entry.producer_id < 0:
            return f"the entry at byte {position} is impossible: {entry}"
        previous = entry.last_offset
    return None


class TransactionIndex:
    """The aborted transactions of one segment; created with it, read from the file at the first use.

    It belongs to the log's thread, except :meth:`flush`. Set ``path`` after a rename of the file. It holds no open
    file. Methods raise OSError like :class:`Files`.
    """

    __slots__ = ("_data", "_files", "_is_dirty", "path")

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._files = files
        self._data: bytearray | None = None
        self._is_dirty = False

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All transactions, by ascending last offset."""
        return decode_aborted(bytes(self._load()))

    def append(self, transaction: AbortedTransaction) -> None:
        """Write an entry to the page cache; :meth:`flush` makes it durable. Raises ValueError if it is not newer."""
        data = self._load()
        if data and transaction.last_offset <= _last_offset(data, len(data) // ENTRY_SIZE - 1):
            raise ValueError(f"{transaction} is not above the last entry of {self.path}")
        entry = encode_aborted(transaction)
        with self._opened(create=True) as handle:
            write_fully(self._files, handle, entry, len(data))
        data += entry
        self._is_dirty = True

    def aborted(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions that overlap [start_offset, end_offset), and whether no later segment has more.

        False means that the caller must search the next segment's index as well.
        """
        data = self._load()
        count = len(data) // ENTRY_SIZE
        first = bisect.bisect_left(range(count), start_offset, key=lambda row: _last_offset(data, row))
        found = []
        for fields in _ENTRY.iter_unpack(memoryview(data)[first * ENTRY_SIZE :]):
            entry = AbortedTransaction(*fields[1:])
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def fault(self, base_offset: int) -> str | None:
        """Return a description of the fault in the file (Kafka's sanityCheck); None if it is valid."""
        return aborted_fault(read_file(self._files, self.path) or b"", base_offset)

    def truncate(self, offset: int) -> None:
        """Remove the transactions whose markers are at ``offset`` or later; durable on return."""
        data = self._load()
        count = bisect.bisect_left(range(len(data) // ENTRY_SIZE), offset, key=lambda row: _last_offset(data, row))
        if count * ENTRY_SIZE == len(data):
            return
        if count == 0:
            self.remove()
            self._files.fsync_directory(self.path.parent)
            return
        with self._opened() as handle:
            self._files.truncate(handle, count * ENTRY_SIZE)
            self._files.fsync(handle)
        del data[count * ENTRY_SIZE :]

    def flush(self) -> None:
        """Sync the file and its directory entry if there are new entries; safe in a thread during appends."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        with contextlib.suppress(FileNotFoundError):
            with self._opened() as handle:
                self._files.fsync(handle)
            self._files.fsync_directory(self.path.parent)

    def remove(self) -> None:
        """Remove the file, if it exists; the index is then empty."""
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self.path)
        self._data = bytearray()
        self._is_dirty = False

    def _load(self) -> bytearray:
        if self._data is None:
            data = bytearray(read_file(self._files, self.path) or b"")
            del data[len(data) // ENTRY_SIZE * ENTRY_SIZE :]
            self._data = data
        return self._data

    @contextlib.contextmanager
    def _opened(self, create: bool = False) -> Iterator[int]:
        handle = self._files.open(self.path, create=create)
        try:
            yield handle
        finally:
            self._files.close(handle)


def _last_offset(data: bytearray, row: int) -> int:
    last_offset: int = _ENTRY.unpack_from(data, row * ENTRY_SIZE)[3]
    return last_offset
