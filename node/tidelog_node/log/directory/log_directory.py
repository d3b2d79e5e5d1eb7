"""One entry of ``log.dirs``: its lock, its owner, its checkpoints and the partitions in it.

It guarantees that one process at a time uses a directory; that a directory of another cluster or node is never changed;
that a shutdown counts as clean only if every log was closed first; and that a new partition never gets the checkpoints
of an earlier one with the same name.

Besides the partitions' own folders (``topic-N``) it may contain ``topic-N.<uuid>-delete``, which is removed;
``-future``, the copy that a move makes (KIP-113); ``-moved``, a copy that has replaced the replica, whose folder in
another directory may still exist; and ``-stray``, which is left to the operator.
"""

from __future__ import annotations

import time
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId, TopicId
from tidelog_node.log.config import LogConfig
from tidelog_node.log.directory.deletion import remove_deleted, remove_directory, rename_for_deletion
from tidelog_node.log.directory.meta_properties import (
    META_PROPERTIES,
    NO_BROKER_EPOCH,
    MetaProperties,
    claim_directory,
    take_clean_shutdown,
    write_clean_shutdown,
)
from tidelog_node.log.directory.offset_checkpoint_file import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpointFile,
    TopicPartitionKey,
)
from tidelog_node.log.directory.partition_folder import (
    PARTITION_NAME,
    CopyName,
    NewFolder,
    copy_folder,
    ensure_topic_id,
    parse_copy_folder,
    parse_partition_folder,
    partition_folder,
    read_topic_id,
)
from tidelog_node.log.disk.files import OS_FILES, Files, read_file, replace_file, storage_errors
from tidelog_node.log.disk.moving_files import MovingFiles
from tidelog_node.log.log import PartitionLog

LOCK_FILE = ".lock"
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """A folder that a move made; ``is_moved`` means that it has replaced the replica that it was copied from."""

    key: TopicPartitionKey
    path: Path
    is_moved: bool


@dataclass(frozen=True, slots=True)
class PartitionCheckpoint:
    """The offsets of one partition in the checkpoints of a directory."""

    recovery_point: int
    high_watermark: int
    log_start_offset: int


class LogDirectory:
    """A locked log directory; opened once by the process, closed once after its logs.

    ``clean_shutdown_epoch`` is the broker epoch of the last clean shutdown, -1 if unknown, and None after an unclean
    one. Any thread may open logs and write checkpoints. Losing an entry of ``cleaner_offsets``, the ends of the clean
    parts of the logs, costs a cleaning of the whole log. An entry that is too high would leave keys uncleaned forever,
    so truncating, deleting or moving a log lowers or removes its entry.
    """

    def __init__(self, files: Files, path: Path, lock: int, properties: MetaProperties) -> None:
        self.path = path
        self.properties = properties
        self.producer_id_expiration_ms = DEFAULT_PRODUCER_ID_EXPIRATION_MS
        self._files = files
        self._lock: int | None = lock
        self.clean_shutdown_epoch = take_clean_shutdown(files, path)
        self.recovery_points = OffsetCheckpointFile(files, path / RECOVERY_POINTS)
        self.high_watermarks = OffsetCheckpointFile(files, path / HIGH_WATERMARKS)
        self.log_start_offsets = OffsetCheckpointFile(files, path / LOG_START_OFFSETS)
        remove_deleted(files, path)
        names = _names(files, path)
        self._keys = {key for key in map(parse_partition_folder, names) if key is not None}
        self.cleaner_offsets = OffsetCheckpointFile(files, path / CLEANER_OFFSETS, self._keys)
        self._clean = set() if self.clean_shutdown_epoch is None else set(names)

    @classmethod
    def open(cls, path: Path, *, cluster_id: str, node_id: BrokerId, files: Files = OS_FILES) -> LogDirectory:
        """Lock a directory, creating it if it is missing, and read its properties and checkpoints.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR if another process uses it or the disk refuses; INCONSISTENT_CLUSTER_ID.
            ConfigError: it belongs to another node, or it holds partitions but no properties that name its owner.
        """
        lock = _lock(files, path)
        try:
            _check_owner_is_known(files, path)
            return cls(files, path, lock, claim_directory(files, path, cluster_id, node_id))
        except BaseException:
            files.close(lock)
            raise

    @property
    def id(self) -> DirectoryId:
        """The controller's id of the directory."""
        return self.properties.directory

    def partitions(self) -> list[TopicPartitionKey]:
        """Return the partitions that have a folder here, in order."""
        return sorted(self._keys)

    def copies(self) -> list[CopiedPartition]:
        """Return the folders that moves have left, in order.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        found = [(name, parse_copy_folder(name)) for name in sorted(_names(self._files, self.path))]
        return [self._copy(self.path / name, copy) for name, copy in found if copy is not None]

    def __contains__(self, key: TopicPartitionKey) -> bool:
        """Return whether a partition has its folder here."""
        return key in self._keys

    def __len__(self) -> int:
        """Return the number of partitions with a folder here."""
        return len(self._keys)

    def partition_path(self, topic: str, partition: int) -> Path:
        """Return the directory of a partition."""
        return self.path / partition_folder(topic, partition)

    def copy_path(self, key: TopicPartitionKey) -> Path:
        """Return a new path for the copy that a move makes."""
        return self.path / copy_folder(key)

    def topic_id(self, topic: str, partition: int) -> TopicId | None:
        """Return the topic id in a partition's folder; None if it has none.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        return read_topic_id(self._files, self.partition_path(topic, partition))

    def open_log(
        self, topic: str, partition: int, topic_id: TopicId, config: LogConfig, *, may_create_later: bool = False
    ) -> PartitionLog:
        """Open or create the log of a partition, with recovery unless the last shutdown was clean.

        With ``may_create_later`` the folder of a new log is created later, before its first record.

        Raises:
            TidelogError: INCONSISTENT_TOPIC_ID if the folder belongs to an earlier topic of that name;
                KAFKA_STORAGE_ERROR.
        """
        path, key = self.partition_path(topic, partition), (topic, partition)
        if may_create_later and key not in self._keys and self._has_no_folder(path):
            self._keys.add(key)
            self._forget_checkpoints(key)
            new_folder = NewFolder(self._files, path, topic_id)
            return self._open(path, config, self._files, path.name, PartitionCheckpoint(0, 0, 0), new_folder)
        with storage_errors("Creating", path):
            self._files.mkdir(path)
        self._keys.add(key)
        if read_topic_id(self._files, path) is None:
            self._forget_checkpoints(key)
        ensure_topic_id(self._files, path, topic_id)
        return self._open(path, config, self._files, path.name, self.checkpoint(key))

    def open_copy(
        self, key: TopicPartitionKey, path: Path, topic_id: TopicId, config: LogConfig
    ) -> tuple[PartitionLog, MovingFiles]:
        """Open or create the copy that a move makes; the log uses the path that it will have as the replica.

        Raises:
            TidelogError: INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR.
        """
        files = MovingFiles(self._files, self.partition_path(*key), path)
        with storage_errors("Creating", path):
            self._files.mkdir(path)
            copy = parse_copy_folder(path.name)
            if copy is not None and copy.is_shortened:
                replace_file(self._files, path / PARTITION_NAME, partition_folder(*key).encode())
        ensure_topic_id(files, files.shown, topic_id)
        return self._open(files.shown, config, files, path.name, PartitionCheckpoint(0, 0, 0)), files

    def checkpoint(self, key: TopicPartitionKey) -> PartitionCheckpoint:
        """Return the checkpoints of a partition; zeros where there is none."""
        offsets = (self.recovery_points, self.high_watermarks, self.log_start_offsets)
        return PartitionCheckpoint(*(of_kind.get(key) or 0 for of_kind in offsets))

    def check_folder(self, topic: str, partition: int) -> None:
        """Check that a partition has its folder.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        path = self.partition_path(topic, partition)
        with storage_errors("Opening", path):
            self._files.listdir(path)

    def delete_partition(self, topic: str, partition: int) -> None:
        """Remove the directory of a partition whose log is not open.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        renamed = rename_for_deletion(self._files, self.partition_path(topic, partition))
        self.forget(topic, partition)
        remove_directory(self._files, renamed)

    def forget(self, topic: str, partition: int) -> None:
        """Remove a partition whose folder was deleted or renamed."""
        self._keys.discard((topic, partition))

    def adopt(self, topic: str, partition: int) -> None:
        """Add a partition whose folder was renamed into this directory."""
        self._keys.add((topic, partition))

    def note(self, key: TopicPartitionKey, checkpoint: PartitionCheckpoint) -> None:
        """Add the checkpoints of one partition that was moved here.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self.cleaner_offsets.remove([key])
        self.log_start_offsets.put(key, checkpoint.log_start_offset)
        self.high_watermarks.put(key, checkpoint.high_watermark)
        self.recovery_points.put(key, checkpoint.recovery_point)

    def close(self, *, clean: bool, broker_epoch: BrokerEpoch = NO_BROKER_EPOCH) -> None:
        """Release the lock. ``clean`` means that every log was closed without an error; it leaves the marker.

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

    def _open(
        self,
        path: Path,
        config: LogConfig,
        files: Files,
        name: str,
        checkpoint: PartitionCheckpoint,
        new_folder: NewFolder | None = None,
    ) -> PartitionLog:
        is_clean = name in self._clean
        self._clean.discard(name)
        return PartitionLog.open(
            path,
            config,
            files=files,
            clean=is_clean,
            recovery_point=checkpoint.recovery_point,
            log_start_offset=checkpoint.log_start_offset,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            now_ms=time.time_ns() // 1_000_000,
            new_folder=new_folder,
        )

    def _copy(self, path: Path, name: CopyName) -> CopiedPartition:
        key = name.key
        if name.is_shortened:
            with storage_errors("Reading", path / PARTITION_NAME):
                whole = read_file(self._files, path / PARTITION_NAME)
            # Without the file, a crash has left an empty copy; its key must match no partition.
            key = parse_partition_folder((whole or b"").decode(errors="replace")) or (f"{key[0]}~", key[1])
        return CopiedPartition(key, path, name.is_moved)

    def _has_no_folder(self, path: Path) -> bool:
        with storage_errors("Listing", path):
            try:
                self._files.listdir(path)
            except FileNotFoundError:
                return True
        return False

    def _forget_checkpoints(self, key: TopicPartitionKey) -> None:
        """Remove the checkpoints of an earlier partition of that name: a new one has nothing committed or flushed."""
        for file in (self.recovery_points, self.high_watermarks, self.log_start_offsets, self.cleaner_offsets):
            file.remove([key])


def _check_owner_is_known(files: Files, path: Path) -> None:
    names = _names(files, path)
    held = sorted(filter(parse_partition_folder, names))
    if held and META_PROPERTIES not in names:
        raise ConfigError(
            f"the log directory {path} holds partitions ({held[0]}, ...) but no {META_PROPERTIES}, which identifies "
            "their cluster and node: restore it, or move the partitions away"
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
            text = f"the log directory {path} is in use by another process, which has locked {path / LOCK_FILE}"
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text) from cause
