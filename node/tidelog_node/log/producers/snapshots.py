"""Snapshot files of a log's producer state, and the state itself, as a :class:`PartitionLog` uses them.

Owns the ``%020d.snapshot`` files of a partition's directory; the rules are in :class:`ProducerState`. The snapshot
named ``offset`` has the producer state after the batches below ``offset``. A loaded snapshot always describes the
current log, because one above the log's end is removed, durably, before anything else is appended there. A snapshot may
be lost at any time: an older one and a longer replay give the same state.

Usage::

    snapshots = ProducerSnapshots(files, directory, expiration_ms)
    replay_from = snapshots.load(start_offset, end_offset, now_ms)    # at open, once the log's end is known
    for each batch with header.producer_id >= 0 in [replay_from, end_offset):
        snapshots.state.append(header, read_marker(batch))
    snapshots.retain(segment base offsets)                  # at open: removes those of earlier shutdowns

    leader:   duplicate = snapshots.state.check(header)     # before offsets are assigned; if header.producer_id >= 0
              ... write the batch ...
    all:      ended = snapshots.state.append(header, read_marker(batch) if header.is_control else None, now_ms)
              if ended is not None:
                  if not ended.is_commit:
                      transaction_index.append(AbortedTransaction.of(ended))
                  snapshots.state.complete(ended)
    lso:      snapshots.state.advance_high_watermark(high_watermark)
              unstable = snapshots.state.first_unstable_offset    # may lie below the log start
    roll:     snapshots.take(new_base_offset)               # page cache only; snapshots.flush() makes it durable
    close:    snapshots.take(log_end_offset, durable=True)
    truncate: replay_from = snapshots.load(start_offset, new_end_offset, now_ms), then replay as at open
    retention: snapshots.delete_below(first segment's base offset)
    start anew: snapshots.clear()
"""

from __future__ import annotations

import bisect
import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

from tidelog_node.log.disk.files import TEMPORARY_SUFFIX, Files, read_file, replace_file, storage_errors, write_fully
from tidelog_node.log.producers.entries import ProducerEntry
from tidelog_node.log.producers.snapshot_format import decode_snapshot, encode_snapshot
from tidelog_node.log.producers.state import ProducerState

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
_OFFSET_DIGITS = 20


def snapshot_path(directory: Path, offset: int) -> Path:
    """Return the path of the snapshot at an offset."""
    return directory / f"{offset:0{_OFFSET_DIGITS}d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """Return the offset in the name of a snapshot file; None for any other name."""
    stem = name.removesuffix(SNAPSHOT_SUFFIX)
    is_snapshot = stem != name and len(stem) == _OFFSET_DIGITS and stem.isascii() and stem.isdigit()
    return int(stem) if is_snapshot else None


class ProducerSnapshots:
    """The snapshots of one partition's producers; on the log's thread, except :meth:`flush`.

    ``state`` is the current state of the producers, and ``offsets`` those of the existing snapshots, ascending.

    Methods that use the disk raise KAFKA_STORAGE_ERROR. Set ``directory`` when the log moves.
    """

    __slots__ = ("_files", "_has_unsynced_removals", "_unsynced", "directory", "offsets", "state")

    def __init__(self, files: Files, directory: Path, expiration_ms: int) -> None:
        self.directory = directory
        self._files = files
        self.state = ProducerState(expiration_ms)
        self.offsets: list[int] = []
        self._unsynced: list[int] = []
        self._has_unsynced_removals = False

    def load(self, log_start_offset: int, log_end_offset: int, now_ms: int, names: Iterable[str] | None = None) -> int:
        """Load the newest valid snapshot between the log's start and its end, and return the offset to replay from.

        ``log_start_offset`` is the first offset whose batches can be replayed, which may be the first segment's base;
        it is the result if no snapshot is valid. Snapshots that are corrupt or outside of the range are removed.
        ``names`` is the content of the directory, if the caller has listed it already.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors("Reading the producer snapshots of", self.directory):
            self._list_snapshots(self._files.listdir(self.directory) if names is None else names)
            self._delete(o for o in self.offsets if o < log_start_offset)
            self._delete_durably(o for o in self.offsets if o > log_end_offset)
            while self.offsets:
                entries = self._read(self.offsets[-1])
                if entries is not None:
                    self.state.restore(entries, self.offsets[-1], now_ms)
                    return self.offsets[-1]
                self._delete(self.offsets[-1:])
        self.state.restore((), log_start_offset, now_ms)
        return log_start_offset

    def take(self, offset: int, *, durable: bool = False) -> None:
        """Write the snapshot at ``offset``, the log's end, atomically; an existing one is left as it is.

        It is on the disk after :meth:`flush`, or at once if ``durable``.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; there is no snapshot, or a complete one.
        """
        if offset in self.offsets:
            return
        path = snapshot_path(self.directory, offset)
        data = encode_snapshot(self.state.entries())
        with storage_errors("Writing", path):
            if durable:
                replace_file(self._files, path, data)
            else:
                self._write(path, data)
                self._unsynced.append(offset)
        bisect.insort(self.offsets, offset)

    def flush(self) -> None:
        """Put the snapshots on the disk; safe in a thread during any other call.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        unsynced, self._unsynced = self._unsynced, []
        if not unsynced:
            return
        with storage_errors("Flushing the producer snapshots of", self.directory):
            for offset in unsynced:
                with contextlib.suppress(FileNotFoundError):
                    self._fsync(snapshot_path(self.directory, offset))
            self._files.fsync_directory(self.directory)

    def retain(self, base_offsets: Iterable[int]) -> None:
        """Remove the snapshots that are not at a segment's base offset, except the newest.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        kept = {*base_offsets, *self.offsets[-1:]}
        with storage_errors("Removing producer snapshots of", self.directory):
            self._delete(o for o in self.offsets if o not in kept)

    def delete_below(self, offset: int) -> None:
        """Remove the snapshots below ``offset``, after the segments there are gone.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors("Removing producer snapshots of", self.directory):
            self._delete(o for o in self.offsets if o < offset)

    def delete_from(self, offset: int) -> None:
        """Remove the snapshots at ``offset`` and above, durably.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors("Removing producer snapshots of", self.directory):
            self._delete_durably(o for o in self.offsets if o >= offset)

    def clear(self) -> None:
        """Remove all producers and all snapshots.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self.state.clear()
        self.delete_from(0)

    def take_over(self, original: ProducerSnapshots, offset: int) -> None:
        """Take the state of another log with the same end, which must not be used any more.

        It may know producers whose records were deleted, which a replay cannot restore.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self.state = original.state
        with storage_errors("Removing producer snapshots of", self.directory):
            self._delete(o for o in list(self.offsets) if o == offset)
        self.take(offset)

    def check_invariants(self) -> None:
        """Assert that the files match the known snapshots, and the invariants of :class:`ProducerState`."""
        self.state.check_invariants()
        names = self._files.listdir(self.directory)
        there = sorted(offset for offset in map(snapshot_offset, names) if offset is not None)
        assert there == self.offsets, (there, self.offsets)

    def _list_snapshots(self, names: Iterable[str]) -> None:
        offsets = []
        for name in names:
            if name.endswith(SNAPSHOT_SUFFIX + TEMPORARY_SUFFIX):
                self._files.remove(self.directory / name)
            elif (offset := snapshot_offset(name)) is not None:
                offsets.append(offset)
        self.offsets = sorted(offsets)

    def _read(self, offset: int) -> list[ProducerEntry] | None:
        path = snapshot_path(self.directory, offset)
        data = read_file(self._files, path)
        try:
            return decode_snapshot(data or b"")
        except ValueError as cause:
            logger.warning("The producer snapshot %s is damaged and is removed: %s", path, cause)
            return None

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        try:
            handle = self._files.open(temporary, create=True)
            try:
                self._files.truncate(handle, 0)
                write_fully(self._files, handle, data, 0)
            finally:
                self._files.close(handle)
            self._files.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.remove(temporary)
            raise

    def _fsync(self, path: Path) -> None:
        handle = self._files.open(path)
        try:
            self._files.fsync(handle)
        finally:
            self._files.close(handle)

    def _delete_durably(self, offsets: Iterable[int]) -> None:
        """Remove snapshots so that neither they nor those removed earlier return after a crash."""
        self._delete(offsets)
        if self._has_unsynced_removals:
            self._files.fsync_directory(self.directory)
            self._has_unsynced_removals = False

    def _delete(self, offsets: Iterable[int]) -> None:
        for offset in sorted(offsets, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(snapshot_path(self.directory, offset))
            self.offsets.remove(offset)
            self._has_unsynced_removals = True
