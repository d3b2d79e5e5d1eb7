"""Opening of all logs when a node starts, several at a time, and completion of moves that a crash interrupted.

Each directory has its own threads. The first failure of its disk ends only its own work; another error leaves out one
replica. An interrupted move leaves a copy (KIP-113). A ``-moved`` folder is the replica, so its source is removed. A
``-future`` folder is resumed later if its replica exists, and becomes stray if not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.ids import DirectoryId, TopicId
from tidelog_node.hosting import PartitionKey
from tidelog_node.log import Files, LogConfig, LogDirectory, PartitionLog
from tidelog_node.log.directory.partition_folder import PARTITION_NAME, read_topic_id
from tidelog_node.log.disk.disk_errors import is_disk_failure
from tidelog_node.log.disk.files import remove_if_there, storage_errors
from tidelog_node.partitions.directories.closing_logs import close_offline

logger = logging.getLogger(__name__)

_PROGRESS_S = 5.0


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition from a log directory, with its open log and the high watermark of its checkpoint.

    ``rivals`` are copies of the same partition in other directories; the metadata decides between them.
    """

    topic_id: TopicId
    log: PartitionLog
    high_watermark: int
    directory_id: DirectoryId
    rivals: tuple[FoundPartition, ...] = ()

    def choose(self, topic_id: TopicId, assigned: DirectoryId) -> tuple[FoundPartition | None, list[FoundPartition]]:
        """Return the copy that is the replica, None when no copy is of the topic, and the other copies.

        Raises:
            ConfigError: Several copies are of the topic, and none is in the directory that the metadata assigns.
        """
        candidates = [self, *self.rivals]
        right = [c for c in candidates if c.topic_id == topic_id]
        if len(right) > 1:
            assigned_ones = [c for c in right if c.directory_id == assigned]
            if not assigned_ones:
                raise _duplicate_partition(right[0].log.directory, right[1].log.directory)
            right = assigned_ones
        return (right[0] if right else None), [c for c in candidates if not right or c is not right[0]]


@dataclass(frozen=True, slots=True)
class EndedMove:
    """A copy that has replaced its replica and does not have the replica's folder name yet."""

    target: LogDirectory
    key: PartitionKey
    path: Path

    def end(
        self, directories: Sequence[LogDirectory], files: Files, failures: dict[Path, TidelogError] | None = None
    ) -> None:
        """Remove the source of the move and rename the copy; callers may call it again after an error.

        A source on a failed disk does not conflict, since its directory goes offline; ``failures`` receives the error.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
            ConfigError: The target has another folder of that name.
        """
        target, replica = self.target, self.target.partition_path(*self.key)
        with storage_errors("Listing", target.path):
            has_old_name = self.path.name in files.listdir(target.path)
        if has_old_name:
            topic_id = read_topic_id(files, self.path)
            for source in directories:
                self._remove_source(source, topic_id, {} if failures is None else failures)
            if self.key in target:
                raise _duplicate_partition(replica, self.path)
        with storage_errors("Renaming", self.path):
            if has_old_name:
                files.rename(self.path, replica)
            remove_if_there(files, replica / PARTITION_NAME)
            files.fsync_directory(target.path)
        target.adopt(*self.key)

    def _remove_source(
        self, source: LogDirectory, topic_id: TopicId | None, failures: dict[Path, TidelogError]
    ) -> None:
        key = self.key
        try:
            if source is not self.target and key in source and source.topic_id(*key) == topic_id:
                logger.info("%s has moved to %s: the folder is removed", source.partition_path(*key), self.target.path)
                source.delete_partition(*key)
        except TidelogError as error:
            if not is_disk_failure(error):
                raise
            failures[source.path] = error


@dataclass(frozen=True, slots=True)
class LoadedPartitions:
    """The logs of a start, the errors of failed directories, and the logs and moves that failed for another reason."""

    found: dict[PartitionKey, FoundPartition]
    failures: dict[Path, TidelogError]
    unopened: dict[PartitionKey, Path]
    moves: dict[PartitionKey, EndedMove]


@dataclass(slots=True)
class _Progress:
    """A thread-safe count of opened logs, which reports the progress every few seconds."""

    total: int
    lock: threading.Lock
    started_s: float
    logged_s: float
    done: int = 0
    checked: int = 0

    def note(self, log: PartitionLog) -> None:
        with self.lock:
            self.done += 1
            self.checked += log.recovery.checked_segments > 0
            now_s = time.monotonic()
            if now_s - self.logged_s >= _PROGRESS_S:
                self.logged_s = now_s
                logger.info("%d of %d logs are open", self.done, self.total)


def load_partitions(
    directories: Sequence[LogDirectory], files: Files, config: LogConfig, threads: int
) -> LoadedPartitions:
    """Open every log with ``threads`` threads per directory."""
    loaded = LoadedPartitions({}, {}, {}, {})
    _end_moves(directories, files, loaded)
    usable = [d for d in directories if d.path not in loaded.failures]
    now_s = time.monotonic()
    progress = _Progress(sum(map(len, usable)), threading.Lock(), now_s, now_s)
    pools = [ThreadPoolExecutor(threads, thread_name_prefix=f"recovery-{d.path.name}") for d in usable]
    try:
        loads = [_DirectoryLoad(d, pool, config, progress, loaded) for d, pool in zip(usable, pools, strict=True)]
        for load in loads:
            load.wait()
    finally:
        for pool in pools:
            pool.shutdown()
    if progress.total:
        elapsed_s = time.monotonic() - now_s
        text = "Opened %d logs of %d directories in %.1f s; %d had to be checked"
        logger.info(text, progress.done, len(usable), elapsed_s, progress.checked)
    return loaded


class _DirectoryLoad:
    """The opening of one directory's logs, which begins no further log after the first failure of the disk."""

    def __init__(
        self,
        directory: LogDirectory,
        pool: ThreadPoolExecutor,
        config: LogConfig,
        progress: _Progress,
        loaded: LoadedPartitions,
    ) -> None:
        self.directory = directory
        self._config = config
        self._progress = progress
        self._loaded = loaded
        self._has_failed = False
        self._opening: dict[PartitionKey, Future[FoundPartition | None]] = {
            key: pool.submit(self._open, key) for key in directory.partitions() if key not in loaded.moves
        }

    def wait(self) -> None:
        """Add the opened logs to the loaded partitions; after a disk failure, close them and add the failure."""
        opened: dict[PartitionKey, FoundPartition] = {}
        unopened: dict[PartitionKey, Path] = {}
        failure: TidelogError | None = None
        for key, opening in self._opening.items():
            try:
                partition = opening.result()
            except TidelogError as error:
                if is_disk_failure(error):
                    failure = failure or error
                else:
                    logger.error("The log of %s-%d cannot be opened: %s", *key, error.message)
                    unopened[key] = self.directory.path
            else:
                if partition is not None:
                    opened[key] = partition
        if failure is not None:
            for partition in opened.values():
                close_offline(partition.log, failure)
            self._loaded.failures[self.directory.path] = failure
            return
        self._loaded.unopened.update(unopened)
        for key, partition in opened.items():
            self._add(key, partition)

    def _add(self, key: PartitionKey, partition: FoundPartition) -> None:
        found = self._loaded.found
        rival = found.get(key)
        if rival is not None:
            partition = replace(rival, rivals=(*rival.rivals, partition))
        found[key] = partition

    def _open(self, key: PartitionKey) -> FoundPartition | None:
        if self._has_failed:
            return None
        try:
            topic_id = self.directory.topic_id(*key)
            if topic_id is None:
                return None
            log = self.directory.open_log(*key, topic_id, self._config)
        except TidelogError as error:
            self._has_failed = is_disk_failure(error)
            raise
        self._progress.note(log)
        checkpoint = self.directory.checkpoint(key).high_watermark
        high_watermark = min(max(checkpoint, log.log_start_offset), log.log_end_offset)
        return FoundPartition(topic_id, log, high_watermark, self.directory.id)


def _end_moves(directories: Sequence[LogDirectory], files: Files, loaded: LoadedPartitions) -> None:
    for target in directories:
        try:
            moves = [EndedMove(target, copy.key, copy.path) for copy in target.copies() if copy.is_moved]
            for move in moves:
                _end_move(move, directories, files, loaded)
        except ConfigError:
            raise
        except TidelogError as error:
            loaded.failures[target.path] = error


def _end_move(move: EndedMove, directories: Sequence[LogDirectory], files: Files, loaded: LoadedPartitions) -> None:
    """Complete a move; until one that fails is completed, only its partition has no log."""
    try:
        move.end(directories, files, loaded.failures)
    except TidelogError as error:
        if isinstance(error, ConfigError) or is_disk_failure(error):
            raise
        logger.error("The move of %s-%d to %s cannot be completed: %s", *move.key, move.target.path, error.message)
        loaded.moves[move.key] = move


def _duplicate_partition(one: Path, other: Path) -> ConfigError:
    return ConfigError(f"{one} and {other} contain the same partition: move the outdated one out of the log directory")
