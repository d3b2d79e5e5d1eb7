"""The file operations of the log as a protocol, and their implementation for the operating system.

Everything in ``tidelog_node.log`` goes through a :class:`Files`, so that tests can replace the disk by one that loses
unsynced writes, runs out of space or flips bits. Handles are plain integers, like file descriptors: an append costs one
system call and no wrapper object.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

TEMPORARY_SUFFIX = ".tmp"
_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""The flag of Linux for reads that fail instead of waiting for the disk."""
_READ_AHEAD_BYTES = 128 << 10
"""The bytes that Linux reads with the first of them, unless the disk has another setting."""
_ADVISED_BYTES = 512 << 10
"""Linux ignores the rest of larger advice."""
Buffer = bytes | bytearray | memoryview
"""Contiguous bytes to write."""


class Files(Protocol):
    """The disk operations of the log. Every method raises OSError.

    A write or a truncation is durable after :meth:`fsync` of the file; a creation, a rename or a removal is durable
    after :meth:`fsync_directory` of its parent.
    """

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing and return a handle; with ``create`` a missing file is created empty."""

    def close(self, handle: int) -> None:
        """Close a handle."""

    def size(self, handle: int) -> int:
        """Return the file's size in bytes."""

    def pwrite(self, handle: int, data: Buffer, position: int) -> int:
        """Write at a position and return the number of bytes written, which may be less than given."""

    def pwritev(self, handle: int, parts: Sequence[Buffer], position: int) -> int:
        """Write the concatenation of the parts, like one :meth:`pwrite`."""

    def pread(self, handle: int, size: int, position: int) -> bytes:
        """Read at most ``size`` bytes from a position; fewer only at the end of the file."""

    def readinto(self, handle: int, buffer: memoryview, position: int) -> int:
        """Fill a buffer from a position and return the number of bytes read; fewer only at the end of the file."""

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        """Return false if a read of these bytes would wait for the disk, as far as the system tells."""

    def read_ahead(self, handle: int, size: int, position: int) -> None:
        """Begin to read these bytes into the system's memory."""

    def map(self, path: Path) -> memoryview:
        """Map a file, which must keep its size while the view lives; an empty file gives an empty view."""

    def truncate(self, handle: int, size: int) -> None:
        """Truncate the file to a size."""

    def allocate(self, handle: int, size: int) -> None:
        """Set the file's size, fill it with zeros where it has no bytes yet, and reserve its disk space."""

    def modified_ms(self, handle: int) -> int:
        """Return the time of the last write to the file, in milliseconds since 1970."""

    def set_modified_ms(self, handle: int, modified_ms: int) -> None:
        """Set the time that :meth:`modified_ms` returns."""

    def fsync(self, handle: int) -> None:
        """Put the file's bytes and size on the disk."""

    def fsync_directory(self, path: Path) -> None:
        """Put the directory's entries on the disk."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory; a file at the target is replaced atomically."""

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def mkdir(self, path: Path) -> None:
        """Create a directory and its missing parents; keep an existing one."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""

    def lock(self, path: Path) -> int:
        """Lock a file for this process and return the handle with the lock. Raises BlockingIOError if it is locked."""


class OperatingSystemFiles:
    """:class:`Files` by direct system calls."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def size(self, handle: int) -> int:
        """Return the file's size in bytes."""
        return os.fstat(handle).st_size

    # These are the plain system calls: a wrapping method would slow down every append.
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    pread = staticmethod(os.pread)
    close = staticmethod(os.close)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.replace)
    listdir = staticmethod(os.listdir)
    remove = staticmethod(os.remove)
    rmdir = staticmethod(os.rmdir)

    def readinto(self, handle: int, buffer: memoryview, position: int) -> int:
        """Read at a position into a buffer."""
        done = 0
        while done < len(buffer):
            count = os.preadv(handle, [buffer[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        """Look for a byte of each step. True also where the system or the file system does not tell."""
        if _NO_WAIT is None:
            return True
        byte = bytearray(1)
        try:
            for each in range(position, position + size, _READ_AHEAD_BYTES):
                os.preadv(handle, (byte,), each, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def read_ahead(self, handle: int, size: int, position: int) -> None:
        """Advise the system, if it takes advice."""
        if hasattr(os, "posix_fadvise"):
            for each in range(position, position + size, _ADVISED_BYTES):
                os.posix_fadvise(handle, each, min(_ADVISED_BYTES, position + size - each), os.POSIX_FADV_WILLNEED)

    def map(self, path: Path) -> memoryview:
        """Map a file for reading; the mapping ends with the last view of it."""
        handle = self.open(path)
        try:
            return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if os.fstat(handle).st_size else b"")
        finally:
            os.close(handle)

    def allocate(self, handle: int, size: int) -> None:
        """Reserve space; a file system without support gets a sparse file, as in Kafka."""
        try:
            os.posix_fallocate(handle, 0, size)
        except (AttributeError, OSError) as cause:
            if isinstance(cause, OSError) and cause.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            os.ftruncate(handle, max(size, os.fstat(handle).st_size))

    def modified_ms(self, handle: int) -> int:
        """Return the time of the last write."""
        return os.fstat(handle).st_mtime_ns // 1_000_000

    def set_modified_ms(self, handle: int, modified_ms: int) -> None:
        """Set the time of the last write."""
        os.utime(handle, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def fsync(self, handle: int) -> None:
        """Flush the file to the disk."""
        os.fsync(handle)

    def fsync_directory(self, path: Path) -> None:
        """Flush the directory's entries to the disk."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def mkdir(self, path: Path) -> None:
        """Create a directory and its parents."""
        os.makedirs(path, exist_ok=True)

    def lock(self, path: Path) -> int:
        """Lock a file, creating it if it is missing, until its handle is closed or the process ends."""
        handle = self.open(path, create=True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        return handle


OS_FILES: Files = OperatingSystemFiles()


def write_fully(files: Files, handle: int, data: Buffer, position: int) -> None:
    """Write all bytes at a position, continuing after short writes. Raises OSError; a part may then be written."""
    written = files.pwrite(handle, data, position)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        step = files.pwrite(handle, view[written:], position + written)
        if step <= 0:
            raise OSError(5, f"write of {len(view) - written} bytes at {position + written} wrote nothing")
        written += step


def write_parts(files: Files, handle: int, parts: Sequence[Buffer], size: int, position: int) -> None:
    """Write the concatenation of all parts, ``size`` bytes. Raises OSError; a part may then be written."""
    written = files.pwritev(handle, parts, position)
    if written != size:
        rest = b"".join(parts)[written:]
        write_fully(files, handle, rest, position + written)


def read_file(files: Files, path: Path) -> bytes | None:
    """Return the content of a small file, or None if it does not exist. Raises OSError for anything else."""
    try:
        handle = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return files.pread(handle, files.size(handle), 0)
    finally:
        files.close(handle)


def remove_if_there(files: Files, path: Path) -> None:
    """Remove a file, if it exists. Raises OSError for anything else."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(path)


def write_file(files: Files, path: Path, data: bytes) -> None:
    """Create or truncate a file, write all of ``data`` and sync it. A crash may leave a part. Raises OSError."""
    handle = files.open(path, create=True)
    try:
        files.truncate(handle, 0)
        write_fully(files, handle, data, 0)
        files.fsync(handle)
    finally:
        files.close(handle)


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: after a crash it has the old bytes or the new ones.

    Raises OSError; the old file is then still in place.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        write_file(files, temporary, data)
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    files.fsync_directory(path.parent)


def storage_error(action: str, path: Path, cause: OSError) -> TidelogError:
    """Return KAFKA_STORAGE_ERROR with the action, the path and the operating system's message."""
    reason = f"[Errno {cause.errno}] {cause.strerror}" if cause.errno is not None else str(cause)
    return error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"{action} {path} failed: {reason}")


@contextlib.contextmanager
def storage_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError of the block into :func:`storage_error`."""
    try:
        yield
    except OSError as cause:
        raise storage_error(action, path, cause) from cause
