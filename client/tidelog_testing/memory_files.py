"""A disk in memory: the log's protocol ``Files`` without access to the real disk."""

from __future__ import annotations

import errno
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tidelog_node.log.disk.files import Buffer


@dataclass(eq=False, slots=True)
class _File:
    data: bytearray = field(default_factory=bytearray)
    modified_ms: int = 0


_Node: TypeAlias = "_File | dict[str, _Node]"


class MemoryFiles:
    """Files that live as long as this object. Safe to use from any thread.

    A sync does nothing, because the files do not survive a crash. :meth:`release_locks` simulates the end of a process.
    """

    def __init__(self) -> None:
        self._root: dict[str, _Node] = {}
        self._handles: dict[int, _File] = {}
        self._numbers = itertools.count(1)
        self._locks: dict[Path, int] = {}
        self._guard = threading.Lock()

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open a file and return a handle."""
        with self._guard:
            parent = self._directory(path.parent)
            file = parent.get(path.name)
            if isinstance(file, dict):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
            if file is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
                file = parent[path.name] = _File(modified_ms=_now_ms())
            handle = next(self._numbers)
            self._handles[handle] = file
            return handle

    def close(self, handle: int) -> None:
        """Close a handle and release its lock."""
        with self._guard:
            del self._handles[handle]
            self._locks = {path: holder for path, holder in self._locks.items() if holder != handle}

    def size(self, handle: int) -> int:
        """Return the file's size in bytes."""
        return len(self._handles[handle].data)

    def pwrite(self, handle: int, data: Buffer, position: int) -> int:
        """Write all bytes at a position. Fill a gap before it with zeros."""
        file = self._handles[handle]
        with self._guard:
            _grow(file.data, position)
            file.data[position : position + len(data)] = data
            file.modified_ms = _now_ms()
        return len(data)

    def pwritev(self, handle: int, parts: Sequence[Buffer], position: int) -> int:
        """Write the parts consecutively."""
        return self.pwrite(handle, b"".join(parts), position)

    def pread(self, handle: int, size: int, position: int) -> bytes:
        """Read at most ``size`` bytes from a position."""
        with self._guard:
            return bytes(memoryview(self._handles[handle].data)[position : position + size])

    def readinto(self, handle: int, buffer: memoryview, position: int) -> int:
        """Fill a buffer from a position and return the number of bytes read."""
        found = self.pread(handle, len(buffer), position)
        buffer[: len(found)] = found
        return len(found)

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        """Return true: all bytes are in memory."""
        return True

    def read_ahead(self, handle: int, size: int, position: int) -> None:
        """Do nothing: all bytes are in memory."""

    def map(self, path: Path) -> memoryview:
        """Return a copy of a file's bytes."""
        with self._guard:
            return memoryview(bytes(self._file(path).data))

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to a size, or extend it with zeros."""
        file = self._handles[handle]
        with self._guard:
            del file.data[size:]
            _grow(file.data, size)
            file.modified_ms = _now_ms()

    def allocate(self, handle: int, size: int) -> None:
        """Extend the file to ``size`` with zeros. Never cut it."""
        with self._guard:
            _grow(self._handles[handle].data, size)

    def modified_ms(self, handle: int) -> int:
        """Return the time of the last write."""
        return self._handles[handle].modified_ms

    def set_modified_ms(self, handle: int, modified_ms: int) -> None:
        """Set the time of the last write."""
        self._handles[handle].modified_ms = modified_ms

    def fsync(self, handle: int) -> None:
        """Do nothing."""

    def fsync_directory(self, path: Path) -> None:
        """Do nothing."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory. Replace a file at the target."""
        with self._guard:
            left, entered = self._directory(source.parent), self._directory(target.parent)
            node = _existing(left.get(source.name), source)
            replaced = entered.get(target.name)
            if isinstance(replaced, dict) and (isinstance(node, _File) or replaced):
                raise OSError(errno.ENOTEMPTY, "Directory not empty", str(source), None, str(target))
            del left[source.name]
            entered[target.name] = node

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory."""
        with self._guard:
            return list(self._directory(path))

    def remove(self, path: Path) -> None:
        """Remove a file. Open handles stay valid."""
        with self._guard:
            self._file(path)
            del self._directory(path.parent)[path.name]

    def mkdir(self, path: Path) -> None:
        """Create a directory and its parents."""
        with self._guard:
            node = self._root
            for name in path.parts[1:]:
                below = node.setdefault(name, {})
                if isinstance(below, _File):
                    raise FileExistsError(errno.EEXIST, "File exists", str(path))
                node = below

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        with self._guard:
            if self._directory(path):
                raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
            del self._directory(path.parent)[path.name]

    def lock(self, path: Path) -> int:
        """Lock a file and return the handle that holds the lock."""
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", str(path))
        self._locks[path] = self.open(path, create=True)
        return self._locks[path]

    def release_locks(self) -> None:
        """Close every handle, as the system does when a process ends."""
        with self._guard:
            self._handles.clear()
            self._locks.clear()

    def _directory(self, path: Path) -> dict[str, _Node]:
        node: _Node | None = self._root
        for name in path.parts[1:]:
            if not isinstance(node, dict):
                break
            node = node.get(name)
        node = _existing(node, path)
        if isinstance(node, _File):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
        return node

    def _file(self, path: Path) -> _File:
        node = _existing(self._directory(path.parent).get(path.name), path)
        if isinstance(node, dict):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        return node


def _existing(node: _Node | None, path: Path) -> _Node:
    if node is None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
    return node


def _grow(data: bytearray, size: int) -> None:
    if size > len(data):
        data.extend(bytes(size - len(data)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
