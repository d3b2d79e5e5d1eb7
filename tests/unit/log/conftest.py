"""A disk in memory that can crash, fill up and fail, and the batches that the tests write to it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidelog.records import RecordBatchBuilder, assign_offsets
from tidelog_node.log import LogConfig


@dataclass
class _Inode:
    """A file: what a reader sees, what the disk surely has, and the changes in between, in order."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[str, int, bytes]] = field(default_factory=list)


def _apply(data: bytearray, change: tuple[str, int, bytes]) -> None:
    kind, position, payload = change
    if kind == "truncate":
        data[position:] = b""
        data.extend(bytes(position - len(data)))
    else:
        data.extend(bytes(max(0, position - len(data))))
        data[position : position + len(payload)] = payload


class MemoryFiles:
    """The protocol ``Files`` in memory, with faults.

    :meth:`crash` leaves, per file, a prefix of the un-synced changes, the last of them perhaps torn or with a hole of
    zeros, and, per directory, a prefix of the un-synced creations, renames and removals. ``capacity`` is the number of
    bytes until ENOSPC. ``fail`` is asked before each operation and may return an errno.
    """

    def __init__(self) -> None:
        self.capacity: int | None = None
        self.fail: Callable[[str, Path], int | None] = lambda operation, path: None
        self._inodes: dict[Path, _Inode] = {}
        self._directories: set[Path] = {Path("/")}
        self._unsynced: dict[Path, list[tuple[str, Path, Path | None, _Inode | None]]] = {}
        self._durable: dict[Path, _Inode] = {}
        self._handles: dict[int, tuple[_Inode, Path]] = {}
        self._locks: dict[Path, int] = {}
        self._next_handle = 1000
        self.open_count = 0

    def open(self, path: Path, *, create: bool = False) -> int:
        self._check("open", path)
        inode = self._inodes.get(path)
        if inode is None:
            if not create or path.parent not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            inode = self._inodes[path] = _Inode()
            self._note("create", path, None, inode)
        self._next_handle += 1
        self._handles[self._next_handle] = (inode, path)
        return self._next_handle

    def close(self, handle: int) -> None:
        del self._handles[handle]
        self._locks = {path: holder for path, holder in self._locks.items() if holder != handle}

    def size(self, handle: int) -> int:
        return len(self._handles[handle][0].data)

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, position: int) -> int:
        inode, path = self._handles[handle]
        self._check("pwrite", path)
        payload = bytes(data)
        growth = max(0, position + len(payload) - len(inode.data))
        if self.capacity is not None and growth > self.capacity:
            payload = payload[: len(payload) - (growth - self.capacity)]
            growth = self.capacity
            if not payload:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
        if self.capacity is not None:
            self.capacity -= growth
        self._change(inode, ("write", position, payload))
        return len(payload)

    def pread(self, handle: int, size: int, position: int) -> bytes:
        inode, path = self._handles[handle]
        self._check("pread", path)
        return bytes(inode.data[position : position + size])

    def truncate(self, handle: int, size: int) -> None:
        inode, path = self._handles[handle]
        self._check("truncate", path)
        if len(inode.data) != size:
            self._change(inode, ("truncate", size, b""))

    def fsync(self, handle: int) -> None:
        inode, path = self._handles[handle]
        self._check("fsync", path)
        inode.durable = bytes(inode.data)
        inode.unsynced.clear()

    def fsync_directory(self, path: Path) -> None:
        self._check("fsync_directory", path)
        for change in self._unsynced.pop(path, []):
            self._settle(self._durable, change)

    def rename(self, source: Path, target: Path) -> None:
        self._check("rename", source)
        if source in self._directories:
            self._rename_directory(source, target)
            return
        inode = self._inodes.pop(source)
        self._inodes[target] = inode
        self._note("rename", source, target, inode)

    def listdir(self, path: Path) -> list[str]:
        self._check("listdir", path)
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return [p.name for p in (*self._inodes, *self._directories) if p.parent == path and p != path]

    def remove(self, path: Path) -> None:
        self._check("remove", path)
        if path not in self._inodes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        del self._inodes[path]
        self._note("remove", path, None, None)

    def mkdir(self, path: Path) -> None:
        self._check("mkdir", path)
        self._directories.update((path, *path.parents))

    def rmdir(self, path: Path) -> None:
        self._check("rmdir", path)
        if any(p.parent == path for p in self._inodes):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        self._directories.remove(path)

    def lock(self, path: Path) -> int:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", str(path))
        self._locks[path] = self.open(path, create=True)
        return self._locks[path]

    def kill(self) -> None:
        """Stop the process: handles and locks are gone, what was written is not."""
        self._handles.clear()
        self._locks.clear()

    def crash(self, rng: random.Random) -> None:
        """Stop the machine: handles and locks are gone, and of what was not synced a part is."""
        for directory, changes in self._unsynced.items():
            assert directory in self._directories
            for change in changes[: rng.randint(0, len(changes))]:
                self._settle(self._durable, change)
        self._inodes = dict(self._durable)
        for inode in self._inodes.values():
            self._tear(inode, rng)
        self._unsynced.clear()
        self.kill()
        self.capacity = None

    def read_bytes(self, path: Path) -> bytes:
        return bytes(self._inodes[path].data)

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Put a file there as if it had always been."""
        self._directories.update(path.parents)
        inode = self._inodes[path] = self._durable[path] = _Inode(bytearray(data), data)
        assert not inode.unsynced

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        inode = self._inodes[path]
        inode.data[position] ^= 1 << bit
        inode.durable = bytes(inode.data)
        inode.unsynced.clear()

    def paths(self) -> list[Path]:
        return sorted(self._inodes)

    @property
    def handle_count(self) -> int:
        return len(self._handles)

    def _check(self, operation: str, path: Path) -> None:
        number = self.fail(operation, path)
        if number is not None:
            raise OSError(number, f"injected {errno.errorcode[number]}", str(path))

    def _change(self, inode: _Inode, change: tuple[str, int, bytes]) -> None:
        _apply(inode.data, change)
        inode.unsynced.append(change)

    def _note(self, kind: str, path: Path, target: Path | None, inode: _Inode | None) -> None:
        self._unsynced.setdefault(path.parent, []).append((kind, path, target, inode))

    def _settle(self, entries: dict[Path, _Inode], change: tuple[str, Path, Path | None, _Inode | None]) -> None:
        kind, path, target, inode = change
        if kind == "create" and inode is not None:
            entries[path] = inode
        elif kind == "rename" and target is not None and inode is not None:
            entries.pop(path, None)
            entries[target] = inode
        elif kind == "remove":
            entries.pop(path, None)

    def _rename_directory(self, source: Path, target: Path) -> None:
        for entries in (self._inodes, self._durable):
            for path in [p for p in entries if p.parent == source]:
                entries[target / path.name] = entries.pop(path)
        self._unsynced.pop(source, None)
        self._directories.remove(source)
        self._directories.add(target)

    def _tear(self, inode: _Inode, rng: random.Random) -> None:
        kept = rng.randint(0, len(inode.unsynced))
        data = bytearray(inode.durable)
        for change in inode.unsynced[:kept]:
            _apply(data, change)
        if kept < len(inode.unsynced) and inode.unsynced[kept][0] == "write" and rng.random() < 0.7:
            _, position, payload = inode.unsynced[kept]
            size = rng.randint(0, len(payload))
            hole = bytes(len(payload) - size) if rng.random() < 0.3 else b""
            _apply(data, ("write", position, payload[:size] + hole))
        inode.data, inode.durable = data, bytes(data)
        inode.unsynced.clear()


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def config() -> LogConfig:
    """Segments of a few batches and an index entry for about every second one."""
    return LogConfig(segment_bytes=600, index_interval_bytes=100, segment_index_bytes=1024, max_message_bytes=500)


@pytest.fixture
def batch_of() -> Callable[..., bytes]:
    return produced_batch


def produced_batch(*values: bytes, timestamp_ms: int = 1000) -> bytes:
    """A batch as a producer sends it; record i has the timestamp ``timestamp_ms + i``."""
    builder = RecordBatchBuilder()
    for index, value in enumerate(values):
        builder.append(None, value, (), timestamp_ms + index)
    return builder.build()


@pytest.fixture
def replicated() -> Callable[..., bytes]:
    return replicated_batch


def replicated_batch(base_offset: int, epoch: int, *values: bytes, timestamp_ms: int = 1000) -> bytes:
    """A batch as a leader of that epoch has it in its log."""
    batch = bytearray(produced_batch(*values, timestamp_ms=timestamp_ms))
    assign_offsets(batch, base_offset, epoch)
    return bytes(batch)
