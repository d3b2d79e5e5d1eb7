"""Snapshot files beside a replica's metadata log: written, received, checked, read and removed.

A file is ``<last index, 20 digits>-<last term, 10 digits>.checkpoint``, Kafka's name for it. It gets that name when it
is complete and synced, and is valid once the log's database names it; the previous one is removed after that. So after
any crash the file that the database names is complete, and every other one is a leftover that the next start removes.

Blocking; a disk error is KAFKA_STORAGE_ERROR with the path, after which the replica must stop, as in Kafka: a disk
without space for a snapshot soon has none for the log, whose size only snapshots limit.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import crc32c

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core.messages import Snapshot
from tidelog_quorum.raft.storage.private_folder import FILE_MODE

logger = logging.getLogger(__name__)
SUFFIX = ".checkpoint"
_WRITING_SUFFIX = ".checkpoint.writing"
_RECEIVING_SUFFIX = ".checkpoint.receiving"
_READ_BYTES = 1024 * 1024
_MAX_OPEN = 2
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def snapshot_path(directory: Path, last_index: int, last_term: int) -> Path:
    """Return the path of the snapshot with that end."""
    return directory / f"{last_index:020d}-{last_term:010d}{SUFFIX}"


def write_snapshot(
    directory: Path, last_index: int, last_term: int, chunks: Iterable[bytes], should_stop: Callable[[], bool]
) -> tuple[int, int] | None:
    """Write the chunks to a file; return its size and CRC-32C once it is complete, synced and renamed.

    Return None, and leave no file, if ``should_stop`` returns True between two chunks.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    path = snapshot_path(directory, last_index, last_term)
    temporary = path.with_name(path.name.removesuffix(SUFFIX) + _WRITING_SUFFIX)
    size = checksum = 0
    with _storage_errors("write", temporary), open(temporary, "wb", 0, opener=_open_private) as file:
        for chunk in chunks:
            if should_stop():
                os.unlink(temporary)
                return None
            _write_all(file.fileno(), chunk, size)
            size += len(chunk)
            checksum = crc32c.crc32c(chunk, checksum)
        os.fsync(file.fileno())
    _put_in_place(temporary, path)
    return size, checksum


def check_snapshot(directory: Path, snapshot: Snapshot) -> None:
    """Check that the snapshot exists and is unaltered.

    Raises:
        TidelogError: CORRUPT_MESSAGE, it is missing or damaged; KAFKA_STORAGE_ERROR, it cannot be read.
    """
    path = snapshot_path(directory, snapshot.last_index, snapshot.last_term)
    if not path.exists():
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"the metadata snapshot {path} is missing")
    found = _measure(path)
    if found != (snapshot.size, snapshot.checksum):
        raise error_for(
            ErrorCode.CORRUPT_MESSAGE,
            f"the metadata snapshot {path} is damaged: {found[0]} bytes with CRC-32C {found[1]:#010x}, "
            f"not {snapshot.size} with {snapshot.checksum:#010x}",
        )


def read_snapshot(directory: Path, snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the snapshot's bytes in chunks.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    path = snapshot_path(directory, snapshot.last_index, snapshot.last_term)
    with _storage_errors("read", path), open(path, "rb", buffering=0) as file:
        while chunk := file.read(_READ_BYTES):
            yield chunk


def remove_snapshots(directory: Path, keep: Snapshot | None) -> None:
    """Remove every snapshot file but one, complete or not; call it while nothing is being written.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    kept = None if keep is None else snapshot_path(directory, keep.last_index, keep.last_term)
    for path in sorted(directory.glob(f"*{SUFFIX}*")):
        if path != kept:
            _remove(path)


def remove_snapshot(directory: Path, last_index: int, last_term: int) -> None:
    """Remove a snapshot that is no longer needed; readers that have it open can still read it.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    _remove(snapshot_path(directory, last_index, last_term))


class SnapshotReceiver:
    """The receiver of one snapshot at a time, on the storage's thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path: Path | None = None
        self._descriptor = -1

    def store(self, snapshot: Snapshot, position: int, chunk: bytes) -> None:
        """Write a chunk at its position, unsynced; position 0 starts a new file. Drop a chunk of any other snapshot.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        path = self._temporary(snapshot)
        if position == 0:
            self.close()
            with _storage_errors("write", path):
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
                self._path = path
        if path != self._path:
            return
        with _storage_errors("write", path):
            _write_all(self._descriptor, chunk, position)

    def complete(self, snapshot: Snapshot) -> bool:
        """Sync and rename the received file. If it is damaged, remove it and return False.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        path = self._temporary(snapshot)
        if path != self._path:
            return False
        found = _measure(path)
        if found != (snapshot.size, snapshot.checksum):
            logger.error(
                "the snapshot that was received as %s is damaged: %d bytes with CRC-32C %#010x, not %d with %#010x",
                path,
                *found,
                snapshot.size,
                snapshot.checksum,
            )
            self.close()
            return False
        with _storage_errors("write", path):
            os.fsync(self._descriptor)
        self._release()
        _put_in_place(path, snapshot_path(self._directory, snapshot.last_index, snapshot.last_term))
        return True

    def close(self) -> None:
        """Drop an incomplete snapshot."""
        path = self._path
        self._release()
        if path is not None:
            _remove(path)

    def _release(self) -> None:
        if self._path is not None:
            os.close(self._descriptor)
        self._path, self._descriptor = None, -1

    def _temporary(self, snapshot: Snapshot) -> Path:
        path = snapshot_path(self._directory, snapshot.last_index, snapshot.last_term)
        return path.with_name(path.name.removesuffix(SUFFIX) + _RECEIVING_SUFFIX)


class SnapshotReader:
    """Reads chunks for other replicas, in one thread; keeps files open that it has begun, so they may be removed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[Path, int] = {}

    def read(self, snapshot: Snapshot, position: int, size: int) -> bytes | None:
        """Return at most ``size`` bytes from ``position`` on; None if the file is gone.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, also if the file is too short: its rest could never be sent.
        """
        path = snapshot_path(self._directory, snapshot.last_index, snapshot.last_term)
        wanted = max(0, min(size, snapshot.size - position))
        with _storage_errors("read", path):
            descriptor = self._descriptor(path)
            if descriptor is None:
                return None
            chunk = os.pread(descriptor, wanted, position)
        if wanted and not chunk:
            text = f"the metadata snapshot {path} was cut short: it ends before {position} of {snapshot.size} bytes"
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)
        return chunk

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _descriptor(self, path: Path) -> int | None:
        descriptor = self._open.pop(path, None)
        if descriptor is None:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
        # Last in the order: the first one is the least recently used.
        self._open[path] = descriptor
        if len(self._open) > _MAX_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        return descriptor


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def storage_error(what: str, path: Path, error: OSError) -> TidelogError:
    """Return the error of a disk that failed to do ``what`` with a file."""
    full = ", the disk is full" if error.errno in _NO_ROOM else ""
    return error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {what} {path}: {error.strerror}{full}")


def sync_directory(directory: Path) -> None:
    """Sync the entries of a folder.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    with _storage_errors("sync", directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put_in_place(temporary: Path, path: Path) -> None:
    with _storage_errors("rename", temporary):
        os.rename(temporary, path)
    sync_directory(path.parent)


def _remove(path: Path) -> None:
    # No sync: a file that returns after a crash is a leftover again.
    with _storage_errors("remove", path):
        path.unlink(missing_ok=True)


def _measure(path: Path) -> tuple[int, int]:
    size = checksum = 0
    with _storage_errors("read", path), open(path, "rb", buffering=0) as file:
        while chunk := file.read(_READ_BYTES):
            size += len(chunk)
            checksum = crc32c.crc32c(chunk, checksum)
    return size, checksum


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view = view[written:]
        position += written


@contextmanager
def _storage_errors(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(what, path, error) from error
