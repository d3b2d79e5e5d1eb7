"""The groups' view: the newest committed value of every key of __consumer_offsets, in one RocksDB per node.

It is a cache of the log, never the truth. There is no write-ahead log: after a crash the view is that of some moment
before, whole, since a shard's records and its position are written as one; the log's tail is read again from there.
Where the database cannot be opened or read it is made anew, and the logs are read from their start.

Safe to use from several threads. One shard is used by one at a time.
"""

from __future__ import annotations

import logging
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocksdict import DBCompressionType, Options, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.coordination.view_layout import (
    FORMAT_KEY,
    FORMAT_VERSION,
    ShardName,
    ViewPosition,
    all_positions,
    all_records,
    decode_position,
    encode_position,
    entry_key,
    position_key,
    records_of_group,
    shard_of_position,
    split_entry_key,
)
from tidelog_node.groups.events import GroupRecord

logger = logging.getLogger(__name__)

_MEMTABLE_BYTES = 4 * 1024**2


class ViewFailedError(TidelogError):
    """RocksDB refuses (KAFKA_STORAGE_ERROR): the view is of no use any more, and is to be made anew."""


class GroupView:
    """An open view. Blocking; any method but ``close`` raises :class:`ViewFailedError` when RocksDB refuses."""

    def __init__(self, database: Rdict, directory: Path) -> None:
        self.directory = directory
        self._database = database
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]  # the stub has a method

    @classmethod
    def open(cls, directory: Path) -> GroupView:
        """Open the view in a folder; one that cannot be read, or is of another format, is replaced by an empty one.

        Raises:
            ViewFailedError: not even an empty one can be made.
        """
        try:
            view = cls._open(directory)
            if view._has_known_format():
                return view
            view.close()
            reason = "it is of another format"
        except ViewFailedError as error:
            reason = error.message
        logger.warning("The view of the groups in %s is made anew from the logs: %s", directory, reason)
        return cls.create(directory)

    @classmethod
    def create(cls, directory: Path) -> GroupView:
        """Make an empty view in a folder, in place of what is there.

        Raises:
            ViewFailedError: RocksDB refuses.
        """
        shutil.rmtree(directory, ignore_errors=True)
        view = cls._open(directory)
        view._has_known_format()
        return view

    @classmethod
    def _open(cls, directory: Path) -> GroupView:
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            return cls(Rdict(str(directory), _options()), directory)
        except Exception as error:
            # rocksdict raises bare Exception for whatever RocksDB reports.
            raise _failed(directory, "opened", error) from error

    def shard(self, name: ShardName) -> ShardView:
        """Return the part of one shard."""
        return ShardView(self, name)

    def shards(self) -> list[ShardName]:
        """Return the shards that have a position, in order."""
        return [shard_of_position(key) for key, _ in self.items(*all_positions())]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None when there is none."""
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise _failed(self.directory, "read", error) from error
        return value

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is from ``start`` to before ``end``, in the order of the keys."""
        iterator = self._iterate(start, end)
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        self._check(iterator)

    def first_key(self, start: bytes, end: bytes) -> bytes | None:
        """Return the least key from ``start`` to before ``end``, None when there is none."""
        iterator = self._iterate(start, end)
        if iterator.valid():
            key: bytes = iterator.key()
            return key
        self._check(iterator)
        return None

    def write(self, batch: WriteBatch) -> None:
        """Write all of a batch or nothing, without that it be on the disk."""
        try:
            self._database.write(batch, self._write_options)
        except Exception as error:
            raise _failed(self.directory, "written", error) from error

    def begin_flush(self) -> None:
        """Have what was written until now put on the disk in the background."""
        try:
            self._database.flush(wait=False)
        except Exception as error:
            raise _failed(self.directory, "flushed", error) from error

    def close(self) -> None:
        """Put what was written on the disk and release the folder; what cannot be written is in the logs."""
        try:
            self._database.close()
        except Exception as error:  # noqa: BLE001  # as above
            logger.warning("The view of the groups in %s could not be closed: %s", self.directory, error)

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
        """RocksDB ends an iteration at a block it cannot read as it does at the last key; the status tells which."""
        try:
            iterator.status()
        except Exception as error:
            raise _failed(self.directory, "read", error) from error

    def _has_known_format(self) -> bool:
        """Check the format; an empty database gets the one of this version."""
        known = str(FORMAT_VERSION).encode()
        found = self.get(FORMAT_KEY)
        if found is None and self.first_key(b"", b"\xff") is None:
            batch = WriteBatch(raw_mode=True)
            batch.put(FORMAT_KEY, known)
            self.write(batch)
            return True
        return found == known


class ShardView:
    """What is committed of one shard: the ``GroupStore`` of its groups, and how far the log is in it."""

    def __init__(self, view: GroupView, name: ShardName) -> None:
        self.name = name
        self._view = view

    def position(self) -> ViewPosition | None:
        """Return how far the log is applied; None for a shard of which nothing is here.

        Raises:
            ViewFailedError: RocksDB refuses.
        """
        data = self._view.get(position_key(self.name))
        if data is None:
            return None
        try:
            return decode_position(data)
        except struct.error as error:
            raise _failed(self._view.directory, "read", error) from error

    def records_of(self, group_id: str) -> list[GroupRecord]:
        """Return the records of one group, in the order of their keys.

        Raises:
            ViewFailedError: RocksDB refuses.
        """
        items = self._view.items(*records_of_group(self.name, group_id.encode()))
        return [GroupRecord(split_entry_key(self.name, key)[1], value) for key, value in items]

    def group_ids(self) -> Iterator[str]:
        """Yield the ids of all groups that have a record, each once.

        Raises:
            ViewFailedError: RocksDB refuses.
        """
        start, end = all_records(self.name)
        while (key := self._view.first_key(start, end)) is not None:
            group = split_entry_key(self.name, key)[0]
            yield group.decode(errors="replace")
            start = records_of_group(self.name, group)[1]

    def apply(self, records: Iterable[GroupRecord], position: ViewPosition | None = None) -> None:
        """Take over committed records, in the order of the log, and with them the position behind them.

        What is not a group's record is passed over. Without a position it stays as it is.

        Raises:
            ViewFailedError: nothing is taken over.
        """
        batch = WriteBatch(raw_mode=True)
        for record in records:
            key = entry_key(self.name, record.key)
            if key is None:
                logger.warning("A record of __consumer_offsets-%d is none of a group's", self.name.partition)
            elif record.value is None:
                batch.delete(key)
            else:
                batch.put(key, record.value)
        if position is not None:
            batch.put(position_key(self.name), encode_position(position))
        self._view.write(batch)

    def clear(self) -> None:
        """Forget everything of the shard.

        Raises:
            ViewFailedError: RocksDB refuses.
        """
        batch = WriteBatch(raw_mode=True)
        batch.delete(position_key(self.name))
        batch.delete_range(*all_records(self.name))
        self._view.write(batch)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    # A write that waits for a slow disk would hold Python's lock: there must be room until it has caught up.
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
    text = f"the view of the groups in {directory} cannot be {what}: {error}"
    return ViewFailedError(ErrorCode.KAFKA_STORAGE_ERROR, text)
