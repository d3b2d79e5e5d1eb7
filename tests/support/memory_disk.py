"""A disk in memory that crashes, fills up, fails and corrupts data.

:class:`MemoryFiles` implements the protocol ``Files``. It keeps the visible content of a file or directory separate
from the content that a crash would leave: only ``fsync`` and ``fsync_directory`` update the second.
"""

from __future__ import annotations

import copy
import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

Fault = Callable[[str, Path], int | None]
"""Called before each operation with its name and path. Returns the errno with which it fails, or None."""

State = TypeVar("State")

_WriteChange = tuple[str, int, bytes]


_MAX_NAME_BYTES = 255
_FLIPPED = 40
"""A flipped bit is within this many last bytes of a write."""


class MachineCrashed(BaseException):
    """The planned crash. Every later operation raises it until :meth:`MemoryFiles.crash` or ``kill``.

    It is a BaseException, so that no error handler of the tested code can survive it.
    """


@dataclass(eq=False)
class _File:
    """The visible bytes, the durable bytes, and the changes in between, in order."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[_WriteChange] = field(default_factory=list)
    is_linked: bool = True
    handles: int = 0
    modified_ms: int = 0


@dataclass(eq=False)
class _Directory:
    """The entries of a directory, like the bytes of a :class:`_File`.

    A change is (name, new name or None, node): link, rename, unlink.
    """

    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    unsynced: list[tuple[str, str | None, _File | _Directory | None]] = field(default_factory=list)

    def change(self, name: str, new_name: str | None, node: _File | _Directory | None) -> None:
        _apply_entry(self.entries, name, new_name, node)
        self.unsynced.append((name, new_name, node))


def _check_name(path: Path) -> None:
    if len(path.name.encode()) > _MAX_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, "File name too long", str(path))


def _apply_entry(
    entries: dict[str, _File | _Directory], name: str, new_name: str | None, node: _File | _Directory | None
) -> None:
    entries.pop(name, None)
    if node is not None:
        entries[new_name or name] = node


def _apply_write(data: bytearray, change: _WriteChange) -> None:
    kind, position, payload = change
    if kind == "truncate":
        data[position:] = b""
        data.extend(bytes(position - len(data)))
    else:
        data.extend(bytes(max(0, position - len(data))))
        data[position : position + len(payload)] = payload


class MemoryFiles:
    """The protocol ``Files`` in memory, with faults.

    - :meth:`crash` leaves, per file, a prefix of the unsynced changes, the next one perhaps torn or with a hole of
      zeros, and, per directory, a prefix of the unsynced creations, renames and removals. With ``flips``, one bit of a
      surviving unsynced write is wrong in some of the files with ``flips`` as a suffix. :meth:`kill` loses nothing.
    - ``crash_at`` plans a crash: the operation of that number raises :class:`MachineCrashed`. ``operations`` counts
      operations.
    - ``capacity`` is the number of bytes until ENOSPC. Removal, truncation and replacement release bytes.
    - ``fail`` is a :data:`Fault`. A failed ``fsync`` loses the changes that it should have synced, as on Linux: readers
      see them, a later ``fsync`` succeeds, a crash takes them.
    - ``write_limit`` is the maximum number of bytes per write.
    - ``on_read`` may change the result of a read. :meth:`flip_bit` changes stored data.
    - ``now_ms`` is the time that written files get.

    Directories directly below the root count as mounted and are permanent. A rename from one of them to another is
    refused, as between file systems.
    """

    def __init__(self) -> None:
        self.fail: Fault = no_fault
        self.write_limit: int | None = None
        self.on_read: Callable[[Path, int, bytes], bytes] | None = None
        self.now_ms = 0
        self.operations = 0
        self.cached_to: int | None = None
        """The position in each file from which a read would wait for the disk, None if none would."""
        self.read_aheads: list[tuple[int, int]] = []
        self.crash_at: int | None = None
        self.trace: list[tuple[str, Path]] | None = None
        self._is_crashed = False
        self._root = _Directory()
        self._limit: int | None = None
        self._used = 0
        self._handles: dict[int, tuple[_File, Path]] = {}
        self._locks: dict[Path, int] = {}
        self._next_handle = 1000

    @property
    def capacity(self) -> int | None:
        """The number of free bytes, None if unlimited."""
        return None if self._limit is None else max(0, self._limit - self._used)

    @capacity.setter
    def capacity(self, free: int | None) -> None:
        self._limit = None if free is None else self._used + free

    def open(self, path: Path, *, create: bool = False) -> int:
        self._check("open", path)
        _check_name(path)
        parent = self._directory(path.parent)
        node = parent.entries.get(path.name)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            node = _File()
            parent.change(path.name, None, node)
        node.handles += 1
        self._next_handle += 1
        self._handles[self._next_handle] = (node, path)
        return self._next_handle

    def close(self, handle: int) -> None:
        file, path = self._handles[handle]
        self._check("close", path)
        del self._handles[handle]
        file.handles -= 1
        self._release(file)
        self._locks = {path: holder for path, holder in self._locks.items() if holder != handle}

    def size(self, handle: int) -> int:
        file, path = self._handles[handle]
        self._check("size", path)
        return len(file.data)

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, position: int) -> int:
        file, path = self._handles[handle]
        self._check("pwrite", path)
        payload = bytes(data)[: self.write_limit]
        growth = max(0, position + len(payload) - len(file.data))
        free = self.capacity
        if free is not None and growth > free:
            payload = payload[: len(payload) - (growth - free)]
            if not payload:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
        self._change(file, ("write", position, payload))
        return len(payload)

    def pwritev(self, handle: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        return self.pwrite(handle, b"".join(parts), position)

    def pread(self, handle: int, size: int, position: int) -> bytes:
        file, path = self._handles[handle]
        self._check("pread", path)
        data = bytes(file.data[position : position + size])
        return data if self.on_read is None else self.on_read(path, position, data)

    def readinto(self, handle: int, buffer: memoryview, position: int) -> int:
        data = self.pread(handle, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        return self.cached_to is None or position + size <= self.cached_to

    def read_ahead(self, handle: int, size: int, position: int) -> None:
        if handle not in self._handles:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self.read_aheads.append((size, position))
        self.cached_to = position + size

    def map(self, path: Path) -> memoryview:
        """Map a file. The view shows later writes; resizing the file while it is mapped raises BufferError."""
        self._check("map", path)
        return memoryview(self._file(path).data).toreadonly()

    def truncate(self, handle: int, size: int) -> None:
        file, path = self._handles[handle]
        self._check("truncate", path)
        if len(file.data) != size:
            self._change(file, ("truncate", size, b""))

    def allocate(self, handle: int, size: int) -> None:
        file, path = self._handles[handle]
        self._check("allocate", path)
        free = self.capacity
        if free is not None and size - len(file.data) > free:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        if (growth := size - len(file.data)) > 0:
            self._change(file, ("truncate", size, b""))
            self._used += growth

    def modified_ms(self, handle: int) -> int:
        file, path = self._handles[handle]
        self._check("modified_ms", path)
        return file.modified_ms

    def set_modified_ms(self, handle: int, modified_ms: int) -> None:
        file, path = self._handles[handle]
        self._check("set_modified_ms", path)
        file.modified_ms = modified_ms

    def fsync(self, handle: int) -> None:
        file, path = self._handles[handle]
        try:
            self._check("fsync", path)
        except OSError:
            file.unsynced.clear()
            raise
        for change in file.unsynced:
            _apply_write(file.durable, change)
        file.unsynced.clear()

    def fsync_directory(self, path: Path) -> None:
        self._check("fsync_directory", path)
        directory = self._directory(path)
        for change in directory.unsynced:
            _apply_entry(directory.durable, *change)
        directory.unsynced.clear()

    def rename(self, source: Path, target: Path) -> None:
        self._check("rename", source)
        _check_name(target)
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))
        parent = self._directory(source.parent)
        node, replaced = self._node(source), parent.entries.get(target.name)
        if isinstance(replaced, _Directory) and (isinstance(node, _File) or replaced.entries):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(source), None, str(target))
        parent.change(source.name, target.name, node)
        self._unlink(replaced)

    def listdir(self, path: Path) -> list[str]:
        self._check("listdir", path)
        return list(self._directory(path).entries)

    def remove(self, path: Path) -> None:
        self._check("remove", path)
        file = self._file(path)
        self._directory(path.parent).change(path.name, None, None)
        self._unlink(file)

    def mkdir(self, path: Path) -> None:
        self._check("mkdir", path)
        _check_name(path)
        self._make_directory(path)

    def rmdir(self, path: Path) -> None:
        self._check("rmdir", path)
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        self._directory(path.parent).change(path.name, None, None)

    def lock(self, path: Path) -> int:
        self._check("lock", path)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", str(path))
        self._locks[path] = self.open(path, create=True)
        return self._locks[path]

    def kill(self) -> None:
        """Stop the process. Handles and locks are gone, written data is not."""
        self._handles.clear()
        self._locks.clear()
        self._is_crashed, self.crash_at = False, None
        self._used = sum(self._recount(file) for _, file in self._files())

    def crash(self, rng: random.Random, flips: str | None = None) -> None:
        """Stop the machine. Handles and locks are gone, and a part of the unsynced data."""
        self._lose(self._root, rng, flips)
        self.kill()

    def read_bytes(self, path: Path) -> bytes:
        return bytes(self._file(path).data)

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Store a file as if it had always existed."""
        parent = self._make_directory(path.parent)
        replaced = parent.entries.get(path.name)
        parent.entries[path.name] = parent.durable[path.name] = _File(bytearray(data), bytearray(data))
        self._used += len(data)
        self._unlink(replaced)

    def copy(self) -> MemoryFiles:
        """Return a separate disk with the visible content of this one, all of it durable."""
        other = MemoryFiles()
        for path, file in self._files():
            other.write_bytes(path, bytes(file.data))
        return other

    def crashed_copy(self, rng: random.Random, flips: str | None = None) -> MemoryFiles:
        """Return a disk as a crash of this one would leave it."""
        other = MemoryFiles()
        other._root = copy.deepcopy(self._root)
        other.crash(rng, flips)
        return other

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        """Change a bit in the visible and the durable data."""
        file = self._file(path)
        for change in file.unsynced:
            _apply_write(file.durable, change)
        file.unsynced.clear()
        file.data[position] ^= 1 << bit
        if position < len(file.durable):
            file.durable[position] = file.data[position]

    def paths(self) -> list[Path]:
        """Return the paths of all files, in order."""
        return sorted(path for path, _ in self._files())

    def size_of(self, path: Path) -> int:
        """Return the size of a file in bytes."""
        return len(self._file(path).data)

    @property
    def handle_count(self) -> int:
        """The number of open files."""
        return len(self._handles)

    @property
    def unsynced_paths(self) -> list[Path]:
        """The files with changes that a crash can take."""
        return sorted(path for path, file in self._files() if file.unsynced)

    def _check(self, operation: str, path: Path) -> None:
        if self._is_crashed or self.operations == self.crash_at:
            self._is_crashed = True
            raise MachineCrashed(f"at operation {self.operations}: {operation} {path}")
        self.operations += 1
        if self.trace is not None:
            self.trace.append((operation, path))
        number = self.fail(operation, path)
        if number is not None:
            raise OSError(number, f"injected {errno.errorcode[number]}", str(path))

    def _node(self, path: Path) -> _File | _Directory:
        node: _File | _Directory = self._root
        for name in path.parts[1:]:
            found = node.entries.get(name) if isinstance(node, _Directory) else None
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            node = found
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        if isinstance(node, _File):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
        return node

    def _file(self, path: Path) -> _File:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        return node

    def _make_directory(self, path: Path) -> _Directory:
        node = self._root
        for depth, name in enumerate(path.parts[1:]):
            found = node.entries.get(name)
            if found is None:
                found = _Directory()
                node.change(name, None, found)
                if depth == 0:
                    node.durable[name] = found
            if isinstance(found, _File):
                raise FileExistsError(errno.EEXIST, "File exists", str(path))
            node = found
        return node

    def _files(self) -> Iterator[tuple[Path, _File]]:
        pending: list[tuple[Path, _Directory]] = [(Path("/"), self._root)]
        while pending:
            where, directory = pending.pop()
            for name, node in directory.entries.items():
                if isinstance(node, _Directory):
                    pending.append((where / name, node))
                else:
                    yield where / name, node

    def _change(self, file: _File, change: _WriteChange) -> None:
        size = len(file.data)
        _apply_write(file.data, change)
        file.unsynced.append(change)
        file.modified_ms = self.now_ms
        kind, position, _ = change
        # Extending a file creates a hole, which takes no space.
        if kind == "write" or position < size:
            self._used += len(file.data) - size

    def _unlink(self, node: _File | _Directory | None) -> None:
        if isinstance(node, _File):
            node.is_linked = False
            self._release(node)

    def _release(self, file: _File) -> None:
        if not file.is_linked and file.handles == 0:
            self._used -= len(file.data)

    def _recount(self, file: _File) -> int:
        file.handles, file.is_linked = 0, True
        return len(file.data)

    def _lose(self, directory: _Directory, rng: random.Random, flips: str | None) -> None:
        for change in directory.unsynced[: rng.randint(0, len(directory.unsynced))]:
            _apply_entry(directory.durable, *change)
        directory.unsynced.clear()
        directory.entries = dict(directory.durable)
        for name, node in directory.entries.items():
            if isinstance(node, _Directory):
                self._lose(node, rng, flips)
            else:
                self._tear(node, rng, can_flip=flips is not None and name.endswith(flips))

    def _tear(self, file: _File, rng: random.Random, *, can_flip: bool) -> None:
        kept = rng.randint(0, len(file.unsynced))
        data = bytearray(file.durable)
        for change in file.unsynced[:kept]:
            _apply_write(data, change)
        if kept < len(file.unsynced) and file.unsynced[kept][0] == "write" and rng.random() < 0.7:
            _, position, payload = file.unsynced[kept]
            size = rng.randint(0, len(payload))
            hole = bytes(len(payload) - size) if rng.random() < 0.3 else b""
            _apply_write(data, ("write", position, payload[:size] + hole))
        if can_flip:
            _flip_some_bit([change for change in file.unsynced[:kept] if change[0] == "write"], data, rng)
        file.data, file.durable = data, bytearray(data)
        file.unsynced.clear()


def _flip_some_bit(writes: list[_WriteChange], data: bytearray, rng: random.Random) -> None:
    """Flip a bit near the end of one of the writes, unless a later change has cut it off.

    It is not near the beginning, since the checksum of a record batch does not cover the first 21 bytes (offset and
    leader epoch).
    """
    if writes and rng.random() < 0.5:
        _, position, payload = rng.choice(writes)
        at = position + len(payload) - 1 - rng.randrange(_FLIPPED)
        if position <= at < len(data):
            data[at] ^= 1 << rng.randrange(8)


def no_fault(operation: str, path: Path) -> int | None:
    """Allow every operation."""
    return None


def failing(
    number: int, *operations: str, suffix: str = "", name: str = "", after: int = 0, times: int | None = None
) -> Fault:
    """Return a fault in which the named operations, by default all, fail on paths with that suffix or name.

    A suffix is the end of the file's name. The first ``after`` matching operations succeed, then ``times`` of them
    fail, or all.
    """
    count = 0

    def fault(operation: str, path: Path) -> int | None:
        nonlocal count
        is_meant = (not operations or operation in operations) and path.name.endswith(suffix)
        if not is_meant or (name and path.name != name):
            return None
        count += 1
        is_due = count > after and (times is None or count <= after + times)
        return number if is_due else None

    return fault


def crash_at_every_step(
    prepare: Callable[[MemoryFiles], State],
    act: Callable[[MemoryFiles, State], object],
    verify: Callable[[MemoryFiles, State, bool], None],
    *,
    seeds: int = 3,
) -> int:
    """Stop the process and the machine at each operation of ``act``, ``verify`` the result, and return their number.

    ``prepare`` runs on a new disk each time and must be deterministic. ``verify`` receives the disk after the stop and
    whether ``act`` was complete, which it is once, after its last operation. At each operation the process alone is
    killed once, losing nothing, and the machine crashes with ``seeds`` seeds. A failure names the operation and seed.
    """
    operation, total = 0, None
    while total is None or operation <= total:
        for seed in range(-1, seeds):
            disk = MemoryFiles()
            state = prepare(disk)
            first = disk.operations
            disk.trace = []
            disk.crash_at = first + operation
            is_done = _runs_to_the_end(act, disk, state)
            if is_done:
                total = operation
            try:
                _stop(disk, seed)
                verify(disk, state, is_done)
            except BaseException as error:
                last = " ".join(map(str, disk.trace[operation - 1])) if operation else "none"
                how = f"crash with seed {seed}" if seed >= 0 else "kill of the process"
                error.add_note(f"{how} after operation {operation} (last: {last})")
                raise
        operation += 1
    return operation - 1


def _runs_to_the_end(act: Callable[[MemoryFiles, State], object], disk: MemoryFiles, state: State) -> bool:
    try:
        act(disk, state)
    except MachineCrashed:
        return False
    return True


def _stop(disk: MemoryFiles, seed: int) -> None:
    if seed < 0:
        disk.kill()
    else:
        disk.crash(random.Random(seed))
