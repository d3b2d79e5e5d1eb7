"""Opens the logs of all directories at the start of a node, some at a time, and ends what a crash left half done.

Each directory has its own threads, and its first error ends only its own work. What a move has left (KIP-113):
a ``-moved`` folder is the replica, so the folder that it was copied from goes; a ``-future`` folder whose replica is
there is resumed later, and set aside when the replica is nowhere.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ConfigError, TidelogError
from tidelog.ids import DirectoryId, TopicId
from tidelog_node.log import Files, LogConfig, LogDirectory, PartitionLog
from tidelog_node.log.files import storage_errors
from tidelog_node.log.partition_metadata import read_topic_id

logger = logging.getLogger(__name__)

PartitionKey = tuple[str, int]
"""A topic's name and a partition's number."""

_PROGRESS_S = 5.0


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition that a log directory has: opened, with the high watermark of its checkpoint.

    ``rivals`` are the copies of the same partition that other directories have; the metadata decides.
    """

    topic_id: TopicId
    log: PartitionLog
    high_watermark: int
    directory_id: DirectoryId
    rivals: tuple[FoundPartition, ...] = ()

    def choose(self, topic_id: TopicId, assigned: DirectoryId) -> tuple[FoundPartition | None, list[FoundPartition]]:
        """Return the one that is the replica, None when none is of the topic, and those that are not.

        Raises:
            ConfigError: several could be, and none is where the metadata says.
        """
        candidates = [self, *self.rivals]
        right = [c for c in candidates if c.topic_id == topic_id]
        if len(right) > 1:
            assigned_ones = [c for c in right if c.directory_id == assigned]
            if not assigned_ones:
                raise _held_twice(right[0].log.directory, right[1].log.directory)
            right = assigned_ones
        return (right[0] if right else None), [c for c in candidates if not right or c is not right[0]]


@dataclass(slots=True)
class _Progress:
    """Counts what is opened, from any thread, and says so every few seconds."""

    total: int
    lock: threading.Lock
    started_s: float
    said_s: float
    done: int = 0
    checked: int = 0

    def note(self, log: PartitionLog) -> None:
        with self.lock:
            self.done += 1
            self.checked += log.recovery.checked_segments > 0
            now_s = time.monotonic()
            if now_s - self.said_s >= _PROGRESS_S:
                self.said_s = now_s
                logger.info("%d of %d logs are open", self.done, self.total)


def load_partitions(
    directories: Sequence[LogDirectory], files: Files, config: LogConfig, threads: int
) -> tuple[dict[PartitionKey, FoundPartition], dict[Path, TidelogError]]:
    """Open every log with ``threads`` threads per directory; returns the partitions and why directories failed."""
    failures = _end_moves(directories, files)
    usable = [d for d in directories if d.path not in failures]
    now_s = time.monotonic()
    progress = _Progress(sum(map(len, usable)), threading.Lock(), now_s, now_s)
    pools = [ThreadPoolExecutor(threads, thread_name_prefix=f"recovery-{d.path.name}") for d in usable]
    try:
        loads = [_DirectoryLoad(d, pool, config, progress) for d, pool in zip(usable, pools, strict=True)]
        found: dict[PartitionKey, FoundPartition] = {}
        for load in loads:
            error = load.wait(found)
            if error is not None:
                failures[load.directory.path] = error
    finally:
        for pool in pools:
            pool.shutdown()
    if progress.total:
        elapsed_s = time.monotonic() - now_s
        text = "Opened %d logs of %d directories in %.1f s; %d had to be checked"
        logger.info(text, progress.done, len(usable), elapsed_s, progress.checked)
    return found, failures


class _DirectoryLoad:
    """The logs of one directory, being opened; after the first error no other one is begun."""

    def __init__(
        self, directory: LogDirectory, pool: ThreadPoolExecutor, config: LogConfig, progress: _Progress
    ) -> None:
        self.directory = directory
        self._config = config
        self._progress = progress
        self._has_failed = False
        self._opening: dict[PartitionKey, Future[FoundPartition | None]] = {
            key: pool.submit(self._open, key) for key in directory.partitions()
        }

    def wait(self, found: dict[PartitionKey, FoundPartition]) -> TidelogError | None:
        """Add what was opened to ``found``, or close it and return the error."""
        opened: dict[PartitionKey, FoundPartition] = {}
        failure: TidelogError | None = None
        for key, opening in self._opening.items():
            try:
                partition = opening.result()
            except TidelogError as error:
                failure = failure or error
            else:
                if partition is not None:
                    opened[key] = partition
        if failure is not None:
            for partition in opened.values():
                close_offline(partition.log, failure)
            return failure
        for key, partition in opened.items():
            rival = found.get(key)
            if rival is not None:
                partition = FoundPartition(
                    rival.topic_id,
                    rival.log,
                    rival.high_watermark,
                    rival.directory_id,
                    (*rival.rivals, partition),
                )
            found[key] = partition
        return None

    def _open(self, key: PartitionKey) -> FoundPartition | None:
        if self._has_failed:
            return None
        try:
            topic_id = self.directory.topic_id(*key)
            if topic_id is None:
                return None
            log = self.directory.open_log(*key, topic_id, self._config)
        except TidelogError:
            self._has_failed = True
            raise
        self._progress.note(log)
        checkpoint = self.directory.high_watermarks.get(key, 0)
        high_watermark = min(max(checkpoint, log.log_start_offset), log.log_end_offset)
        return FoundPartition(topic_id, log, high_watermark, self.directory.id)


def close_offline(log: PartitionLog, failure: TidelogError) -> None:
    """Close the files of a log whose directory is offline; what the disk says to it does not matter any more."""
    log.go_offline(failure)
    try:
        log.close()
    except TidelogError as error:
        logger.debug("Closing %s: %s", log.directory, error)


def _end_moves(directories: Sequence[LogDirectory], files: Files) -> dict[Path, TidelogError]:
    failures: dict[Path, TidelogError] = {}
    for target in directories:
        try:
            moved = [copy for copy in target.copies() if copy.is_moved]
            for copy in moved:
                topic_id = read_topic_id(files, copy.path)
                for source in directories:
                    _remove_source(source, target, copy.key, topic_id, failures)
                _take_place(target, copy.key, copy.path, files)
        except TidelogError as error:
            if isinstance(error, ConfigError):
                raise
            failures[target.path] = error
    return failures


def _remove_source(
    source: LogDirectory,
    target: LogDirectory,
    key: PartitionKey,
    topic_id: TopicId | None,
    failures: dict[Path, TidelogError],
) -> None:
    """Remove what a replica was copied from; where that fails it is no rival, since its directory is offline."""
    try:
        if source is not target and key in source and source.topic_id(*key) == topic_id:
            logger.info("%s has moved to %s: the folder is removed", source.partition_path(*key), target.path)
            source.delete_partition(*key)
    except TidelogError as error:
        failures[source.path] = error


def _take_place(target: LogDirectory, key: PartitionKey, path: Path, files: Files) -> None:
    if key in target:
        raise _held_twice(target.partition_path(*key), path)
    with storage_errors("Renaming", path):
        files.rename(path, target.partition_path(*key))
        files.fsync_directory(target.path)
    target.adopt(*key)


def _held_twice(one: Path, other: Path) -> ConfigError:
    return ConfigError(f"{one} and {other} are the same partition: move the one away that is out of date")
