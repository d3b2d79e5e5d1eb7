"""One entry of ``log.dirs``: the lock, whose it is, its checkpoints and the partitions in it.

Upholds that one process at a time uses a directory, that a directory of another cluster or node is never touched,
that a stop counts as clean only when every log was closed before, and that a partition never gets the checkpoints of an
earlier one of its name.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path

from tidelog.errors import ConfigError, ErrorCode, error_for
from tidelog.ids import BrokerEpoch, BrokerId, TopicId
from tidelog_node.log.checkpoints import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    TopicPartitionKey,
    read_offsets,
    write_offsets,
)
from tidelog_node.log.config import LogConfig
from tidelog_node.log.deletion import delete_directory, remove_deleted
from tidelog_node.log.files import OS_FILES, Files, storage_errors
from tidelog_node.log.log import PartitionLog
from tidelog_node.log.meta_properties import (
    META_PROPERTIES,
    NO_BROKER_EPOCH,
    MetaProperties,
    claim_directory,
    take_clean_shutdown,
    write_clean_shutdown,
)
from tidelog_node.log.partition_metadata import ensure_topic_id, read_topic_id

LOCK_FILE = ".lock"
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")


class LogDirectory:
    """A locked log directory; opened once by the process, closed once after its logs.

    ``clean_shutdown_epoch`` is the broker epoch of the last clean stop, -1 when that is unknown, and None after an
    unclean stop. ``recovery_points`` and ``high_watermarks`` are what the checkpoint files hold. Logs are opened and
    checkpoints written by any thread.
    """

    def __init__(self, files: Files, path: Path, lock: int, properties: MetaProperties) -> None:
        self.path = path
        self.properties = properties
        self._files = files
        self._lock: int | None = lock
        self._writing = threading.Lock()
        self.clean_shutdown_epoch = take_clean_shutdown(files, path)
        self.recovery_points = read_offsets(files, path / RECOVERY_POINTS)
        self.high_watermarks = read_offsets(files, path / HIGH_WATERMARKS)
        remove_deleted(files, path)
        self._clean = set() if self.clean_shutdown_epoch is None else set(self.partitions())

    @classmethod
    def open(cls, path: Path, *, cluster_id: str, node_id: BrokerId, files: Files = OS_FILES) -> LogDirectory:
        """Lock a directory, which is created when missing, and read what it says of itself.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR when it is in use by another process or the disk refuses;
                INCONSISTENT_CLUSTER_ID.
            ConfigError: it is another node's, or it holds partitions and does not say whose it is.
        """
        lock = _lock(files, path)
        try:
            _check_owner_is_told(files, path)
            return cls(files, path, lock, claim_directory(files, path, cluster_id, node_id))
        except BaseException:
            files.close(lock)
            raise

    def partitions(self) -> list[TopicPartitionKey]:
        """Return the partitions that have a directory, in order.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        matches = map(_PARTITION_DIRECTORY.fullmatch, _names(self._files, self.path))
        return sorted((match[1], int(match[2])) for match in matches if match)

    def partition_path(self, topic: str, partition: int) -> Path:
        """Return the directory of a partition."""
        return self.path / f"{topic}-{partition}"

    def topic_id(self, topic: str, partition: int) -> TopicId | None:
        """Return the topic id that a partition's directory is of; None when it does not say.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        return read_topic_id(self._files, self.partition_path(topic, partition))

    def open_log(self, topic: str, partition: int, topic_id: TopicId, config: LogConfig) -> PartitionLog:
        """Open or create the log of a partition, recovering it unless the last stop was clean.

        Raises:
            TidelogError: INCONSISTENT_TOPIC_ID when the directory is of an earlier topic of that name;
                KAFKA_STORAGE_ERROR.
        """
        path = self.partition_path(topic, partition)
        with storage_errors("Creating", path):
            self._files.mkdir(path)
        if read_topic_id(self._files, path) is None:
            self._forget_checkpoints((topic, partition))
        ensure_topic_id(self._files, path, topic_id)
        is_clean = (topic, partition) in self._clean
        self._clean.discard((topic, partition))
        point = self.recovery_points.get((topic, partition), 0)
        return PartitionLog.open(path, config, files=self._files, clean=is_clean, recovery_point=point)

    def delete_partition(self, topic: str, partition: int) -> None:
        """Remove the directory of a partition whose log is not open.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        delete_directory(self._files, self.partition_path(topic, partition))

    def write_recovery_points(self, offsets: Mapping[TopicPartitionKey, int]) -> None:
        """Replace the checkpoint of what each log's ``flush`` returned.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        with self._writing:
            write_offsets(self._files, self.path / RECOVERY_POINTS, offsets)
            self.recovery_points = dict(offsets)

    def write_high_watermarks(self, offsets: Mapping[TopicPartitionKey, int]) -> None:
        """Replace the checkpoint of the high watermarks.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        with self._writing:
            write_offsets(self._files, self.path / HIGH_WATERMARKS, offsets)
            self.high_watermarks = dict(offsets)

    def close(self, *, clean: bool, broker_epoch: BrokerEpoch = NO_BROKER_EPOCH) -> None:
        """Release the lock; ``clean`` says that every log was closed without an error, and leaves the marker.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the lock is released.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if clean:
                write_clean_shutdown(self._files, self.path, broker_epoch)
        finally:
            self._files.close(lock)

    def _forget_checkpoints(self, key: TopicPartitionKey) -> None:
        """Nothing of a new partition is committed or flushed, whatever an earlier one of its name had."""
        if key in self.recovery_points:
            self.write_recovery_points({k: o for k, o in self.recovery_points.items() if k != key})
        if key in self.high_watermarks:
            self.write_high_watermarks({k: o for k, o in self.high_watermarks.items() if k != key})


def _check_owner_is_told(files: Files, path: Path) -> None:
    names = _names(files, path)
    held = sorted(filter(_PARTITION_DIRECTORY.fullmatch, names))
    if held and META_PROPERTIES not in names:
        raise ConfigError(
            f"the log directory {path} holds partitions ({held[0]}, ...) but no {META_PROPERTIES}, which says whose "
            f"they are: restore it, or move the partitions away"
        )


def _names(files: Files, path: Path) -> list[str]:
    with storage_errors("Listing", path):
        return files.listdir(path)


def _lock(files: Files, path: Path) -> int:
    with storage_errors("Locking", path / LOCK_FILE):
        files.mkdir(path)
        try:
            return files.lock(path / LOCK_FILE)
        except BlockingIOError as cause:
            text = f"the log directory {path} is in use by another process, which holds {path / LOCK_FILE}"
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text) from cause
