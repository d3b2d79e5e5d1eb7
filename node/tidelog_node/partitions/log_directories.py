"""All ``log.dirs`` of a node together: which partition is where, where a new one goes, checkpoints of all of them.

A folder whose topic id is not the one that the metadata has for its name is set aside, never read: a topic that was
deleted and created again must not inherit records. All methods block; they run in a thread, or before the event
loop has anything else to do.
"""

from __future__ import annotations

import base64
import binascii
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ConfigError, TidelogError
from tidelog.ids import BrokerEpoch, BrokerId, TopicId
from tidelog_node.log import OS_FILES, Files, LogConfig, LogDirectory, PartitionLog
from tidelog_node.log.files import storage_errors

logger = logging.getLogger(__name__)

STRAY_SUFFIX = "-stray"
_NO_BROKER_EPOCH = BrokerEpoch(-1)

PartitionKey = tuple[str, int]
"""A topic's name and a partition's number."""


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition that a log directory has: opened, with the high watermark of its checkpoint."""

    topic_id: TopicId
    log: PartitionLog
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A replica in a log directory; ``is_future`` marks the copy that a move under way is making (KIP-113).

    ``offset_lag`` is how far the high watermark, or for a copy the current replica's end, is ahead of this log's end.
    """

    topic: str
    partition: int
    size_in_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirectoryDescription:
    """One of ``log.dirs``; ``error`` says why it is offline. Bytes are those of its file system, -1 if not known."""

    path: Path
    error: TidelogError | None
    replicas: tuple[ReplicaDescription, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1


class LogDirectories:
    """Opened once by a process and closed once, after its logs."""

    def __init__(self, directories: list[LogDirectory], files: Files) -> None:
        self._directories = directories
        self._files = files

    @classmethod
    def open(cls, paths: Iterable[str], cluster_id: str, node_id: BrokerId, files: Files = OS_FILES) -> LogDirectories:
        """Lock every directory and check whose it is.

        Raises:
            TidelogError: a directory is in use, cannot be written, or is another node's or cluster's.
        """
        opened = cls([], files)
        try:
            for path in paths:
                opened._directories.append(
                    LogDirectory.open(Path(path), cluster_id=cluster_id, node_id=node_id, files=files)
                )
        except BaseException:
            opened.close(clean=False)
            raise
        return opened

    @property
    def ids(self) -> list[bytes]:
        """The 16-byte ids of the directories."""
        return [_directory_id(d.properties.directory_id) for d in self._directories]

    @property
    def previous_broker_epoch(self) -> BrokerEpoch:
        """The broker epoch of the last clean stop; -1 when any directory was not closed cleanly (KIP-966)."""
        epochs = {d.clean_shutdown_epoch for d in self._directories}
        epoch = epochs.pop() if len(epochs) == 1 else None
        return _NO_BROKER_EPOCH if epoch is None else epoch

    def load(self, config: LogConfig) -> dict[PartitionKey, FoundPartition]:
        """Open every partition; those that a crash left are checked from their recovery point on.

        A folder that does not say which topic it is of stays as it is; :meth:`open_partition` takes it over.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
            ConfigError: two directories have the same partition, and only the operator knows which one is right.
        """
        found: dict[PartitionKey, FoundPartition] = {}
        for directory in self._directories:
            for key in directory.partitions():
                topic_id = directory.topic_id(*key)
                if topic_id is None:
                    continue
                if key in found:
                    raise _held_twice(found[key].log.directory, directory.partition_path(*key))
                log = directory.open_log(*key, topic_id, config)
                checkpoint = directory.high_watermarks.get(key, 0)
                high_watermark = min(max(checkpoint, log.log_start_offset), log.log_end_offset)
                found[key] = FoundPartition(topic_id, log, high_watermark)
        return found

    def open_partition(self, key: PartitionKey, topic_id: TopicId, config: LogConfig) -> PartitionLog:
        """Open a partition where its folder is, or create it in the directory that has the fewest.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        held = [d.partitions() for d in self._directories]
        chosen = min(range(len(held)), key=lambda i: (key not in held[i], len(held[i])))
        return self._directories[chosen].open_log(*key, topic_id, config)

    def set_aside(self, path: Path) -> None:
        """Rename the folder of a partition that the metadata does not know; its records stay for the operator.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        target = path.with_name(f"{path.name}.{uuid.uuid4().hex}{STRAY_SUFFIX}")
        logger.warning("The metadata does not know %s: it is set aside as %s", path, target.name)
        with storage_errors("Renaming", path):
            self._files.rename(path, target)
            self._files.fsync_directory(path.parent)

    def write_checkpoints(
        self,
        high_watermarks: Mapping[Path, Mapping[PartitionKey, int]],
        recovery_points: Mapping[Path, Mapping[PartitionKey, int]],
    ) -> None:
        """Replace the checkpoints of every directory; the maps go from a directory to its partitions.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        for directory in self._directories:
            directory.write_recovery_points(recovery_points.get(directory.path, {}))
            directory.write_high_watermarks(high_watermarks.get(directory.path, {}))

    def close(self, *, clean: bool, broker_epoch: BrokerEpoch = _NO_BROKER_EPOCH) -> None:
        """Release every directory; ``clean`` says that all logs were closed, and leaves the markers.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        while self._directories:
            self._directories.pop().close(clean=clean, broker_epoch=broker_epoch)


def _held_twice(one: Path, other: Path) -> ConfigError:
    return ConfigError(f"{one} and {other} are the same partition: move the one away that is out of date")


def _directory_id(text: str) -> bytes:
    """Return the 16 bytes of an id; a directory of an older version has none and gets one for this run."""
    try:
        decoded = base64.urlsafe_b64decode(text + "==")
    except binascii.Error:
        decoded = b""
    return decoded if len(decoded) == 16 else uuid.uuid4().bytes
