"""A coordinator's view: the newest committed value of every key of its internal topic, in one RocksDB per node.

It is a cache of the log, never the source of truth. There is no write-ahead log. After a crash the view is consistent
but outdated, since a shard's records and its position are written atomically; the tail of the log is then read again. A
database that cannot be opened or read is recreated, and the logs are read from their start.

The view is safe to use from several threads. Each shard is used by one thread at a time.
"""

from __future__ import annotations

import logging
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocksdict import DBCompressionType, Options, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from tidelog_foundation.errors import ErrorCode
from tidelog_node.coordination.view_layout import (
    FORMAT_KEY,
    FORMAT_VERSION,
    ShardName,
    ViewPosition,
    all_pending,
    all_positions,
    all_records,
    decode_pending,
    decode_position,
    encode_pending,
    encode_position,
    entry_key,
    pending_key,
    position_key,
    records_of_owner,
    shard_of_position,
    split_entry_key,
)
from tidelog_node.coordination.views import ViewFailedError
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.pending import PendingRecord, StoredChange

logger = logging.getLogger(__name__)

_MEMTABLE_BYTES = 4 * 1024**2


class RocksView:
    """An open view, with blocking methods. All except ``close`` raise :class:`ViewFailedError` if RocksDB fails."""

    def __init__(self, database: Rdict, directory: Path) -> None:
        self.directory = directory
        self._database = database
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]  # the stub has a method

    @classmethod
    def open(cls, directory: Path) -> RocksView:
        """Open the view in a folder. A view that is unreadable or has another format is replaced by an empty one.

        Raises:
            ViewFailedError: An empty view cannot be created either.
        """
        try:
            view = cls._open(directory)
            if view._has_known_format():
                return view
            view.close()
            reason = "it is of another format"
        except ViewFailedError as error:
            reason = error.message
        logger.warning("The view of a coordinator in %s is recreated from the logs: %s", directory, reason)
        return cls.create(directory)

    @classmethod
    def create(cls, directory: Path) -> RocksView:
        """Create an empty view in a folder and replace its content.

        Raises:
            ViewFailedError: RocksDB failed.
        """
        shutil.rmtree(directory, ignore_errors=True)
        view = cls._open(directory)
        view._has_known_format()
        return view

    @classmethod
    def _open(cls, directory: Path) -> RocksView:
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            return cls(Rdict(str(directory), _options()), directory)
        except Exception as error:
            # rocksdict raises a bare Exception for every error of RocksDB.
            raise _failed(directory, "opened", error) from error

    def shard(self, name: ShardName) -> ShardView:
        """Return the part of one shard."""
        return ShardView(self, name)

    def shards(self) -> list[ShardName]:
        """Return the shards that have a position, in order."""
        return [shard_of_position(key) for key, _ in self.items(*all_positions())]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise _failed(self.directory, "read", error) from error
        return value

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the items from ``start`` to before ``end``, in the order of their keys."""
        iterator = self._iterate(start, end)
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        self._check(iterator)

    def first_key(self, start: bytes, end: bytes) -> bytes | None:
        """Return the least key from ``start`` to before ``end``, or None."""
        iterator = self._iterate(start, end)
        if iterator.valid():
            key: bytes = iterator.key()
            return key
        self._check(iterator)
        return None

    def write(self, batch: WriteBatch) -> None:
        """Write a batch atomically, without waiting for the disk."""
        try:
            self._database.write(batch, self._write_options)
        except Exception as error:
            raise _failed(self.directory, "written", error) from error

    def begin_flush(self) -> None:
        """Begin to flush all writes to the disk in the background."""
        try:
            self._database.flush(wait=False)
        except Exception as error:
            raise _failed(self.directory, "flushed", error) from error

    def close(self) -> None:
        """Flush all writes and release the folder. If that fails, the logs still have the records."""
        try:
            self._database.close()
        except Exception as error:  # noqa: BLE001  # as above
            logger.warning("The view of a coordinator in %s could not be closed: %s", self.directory, error)

    def _iterate(self, start: bytes, end: bytes) -> RdictIter:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        try:
            iterator = self._database.iter(options)
            iterator.seek(start)
        except Exception as error:
            raise _failed(self.directory, "read", error) from error
        return iterator

    def _check(self, iterator: RdictIter) -> None:
        """Raise an error if the iteration stopped at an unreadable block and not after the last key."""
        try:
            iterator.status()
        except Exception as error:
            raise _failed(self.directory, "read", error) from error

    def _has_known_format(self) -> bool:
        """Return whether the format is known. An empty database receives the format of this version."""
        known = str(FORMAT_VERSION).encode()
        found = self.get(FORMAT_KEY)
        if found is None and self.first_key(b"", b"\xff") is None:
            batch = WriteBatch(raw_mode=True)
            batch.put(FORMAT_KEY, known)
            self.write(batch)
            return True
        return found == known


class ShardView:
    """The records of one shard, those of its stored transactions, and the applied position of its log."""

    def __init__(self, view: RocksView, name: ShardName) -> None:
        self.name = name
        self._view = view

    def position(self) -> ViewPosition | None:
        """Return the applied position of the log, or None if the view has none for this shard.

        Raises:
            ViewFailedError: RocksDB failed.
        """
        data = self._view.get(position_key(self.name))
        if data is None:
            return None
        try:
            return decode_position(data)
        except struct.error as error:
            raise _failed(self._view.directory, "read", error) from error

    def records_of(self, owner: str) -> list[ShardRecord]:
        """Return the records of one owner in the order of their keys.

        Raises:
            ViewFailedError: RocksDB failed.
        """
        items = self._view.items(*records_of_owner(self.name, owner.encode()))
        return [ShardRecord(split_entry_key(self.name, key)[1], value) for key, value in items]

    def ids(self) -> Iterator[str]:
        """Yield the ids of all owners that have a record, each once.

        Raises:
            ViewFailedError: RocksDB failed.
        """
        start, end = all_records(self.name)
        while (key := self._view.first_key(start, end)) is not None:
            owner = split_entry_key(self.name, key)[0]
            yield owner.decode(errors="replace")
            start = records_of_owner(self.name, owner)[1]

    def pending(self) -> Iterator[PendingRecord]:
        """Yield the records of the stored transactions.

        Raises:
            ViewFailedError: RocksDB failed.
        """
        for key, value in self._view.items(*all_pending(self.name)):
            try:
                yield decode_pending(key, value)
            except struct.error as error:
                raise _failed(self._view.directory, "read", error) from error

    def apply(
        self,
        records: Iterable[ShardRecord],
        position: ViewPosition | None = None,
        changes: Iterable[StoredChange] = (),
    ) -> None:
        """Apply committed records, in the order of the log, with the position after them, and change stored
        transactions.

        Records without an owner are skipped. Without a position the current one stays.

        Raises:
            ViewFailedError: RocksDB failed and nothing was applied.
        """
        batch = WriteBatch(raw_mode=True)
        for record in records:
            key = entry_key(self.name, record.key)
            if key is None:
                logger.warning("A record of shard %d has no owner in its key", self.name.partition)
            elif record.value is None:
                batch.delete(key)
            else:
                batch.put(key, record.value)
        for change in changes:
            pending = pending_key(self.name, change.producer_id, change.key)
            if change.pending is None:
                batch.delete(pending)
            else:
                batch.put(pending, encode_pending(change.pending))
        if position is not None:
            batch.put(position_key(self.name), encode_position(position))
        self._view.write(batch)

    def clear(self) -> None:
        """Delete all entries of the shard.

        Raises:
            ViewFailedError: RocksDB failed.
        """
        batch = WriteBatch(raw_mode=True)
        batch.delete(position_key(self.name))
        batch.delete_range(*all_records(self.name))
        batch.delete_range(*all_pending(self.name))
        self._view.write(batch)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    # A write that waits for a slow disk holds Python's lock, so there must be enough buffers until the disk catches up.
    options.set_max_write_buffer_number(8)
    options.set_max_background_jobs(2)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_manifest_preallocation_size(64 * 1024)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _failed(directory: Path, what: str, error: Exception) -> ViewFailedError:
    text = f"the view of a coordinator in {directory} cannot be {what}: {error}"
    return ViewFailedError(ErrorCode.KAFKA_STORAGE_ERROR, text)
