"""The ``log.dirs`` of a node: whose they are, which partition is where, checkpoints and the clean-shutdown marker.

A directory belongs to one node of one cluster (``meta.properties``) and to one process at a time (``.lock``). A
partition is the folder ``topic-N`` with the topic's id in ``partition.metadata``; a folder whose id is another
topic's is set aside, so that a topic that was deleted and created again never inherits records. All methods block:
they run in a thread, or before the event loop has anything else to do.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ConfigError
from tidelog.ids import TopicId, topic_id_text
from tidelog_node.log import OS_FILES, Files, LogConfig, PartitionLog
from tidelog_node.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets, write_offsets
from tidelog_node.log.deletion import remove_deleted
from tidelog_node.log.files import read_file, replace_file, storage_errors

logger = logging.getLogger(__name__)

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
STRAY_SUFFIX = "-stray"
_NO_BROKER_EPOCH = -1

PartitionKey = tuple[str, int]
"""A topic's name and a partition's number."""


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition that a log directory has: opened, with the high watermark of its checkpoint."""

    topic_id_text: str
    log: PartitionLog
    high_watermark: int


class LogDirectories:
    """Opened once by a process, closed once. ``ids`` are the 16-byte ids of the directories, in their order."""

    def __init__(self, paths: Iterable[str], cluster_id: str, node_id: int, files: Files = OS_FILES) -> None:
        self._paths = [Path(p) for p in paths]
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._files = files
        self._locks: list[int] = []
        self.ids: list[bytes] = []
        self.previous_broker_epoch = _NO_BROKER_EPOCH
        """The broker epoch of the last clean shutdown; -1 when any directory was not closed cleanly."""
        self._clean: set[Path] = set()

    def claim(self) -> None:
        """Lock every directory, check whose it is, and take the clean-shutdown markers away.

        The markers are gone before anything is loaded: a crash from here on counts as one.

        Raises:
            ConfigError: a directory cannot be written, is in use, or is another node's or cluster's.
        """
        epochs: list[int] = []
        for path in self._paths:
            try:
                self._files.mkdir(path)
                self._locks.append(self._files.lock(path / LOCK))
                self.ids.append(self._claim_id(path))
                epochs.append(self._take_marker(path))
            except BlockingIOError as error:
                raise ConfigError(f"log.dirs {path} is in use by another process") from error
            except OSError as error:
                raise ConfigError(f"log.dirs {path} cannot be used: {error.strerror or error}") from error
        self.previous_broker_epoch = epochs[0] if len(set(epochs)) == 1 else _NO_BROKER_EPOCH

    def load(self, config: LogConfig) -> dict[PartitionKey, FoundPartition]:
        """Open every partition; those that a crash left are checked from their recovery point on.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        found: dict[PartitionKey, FoundPartition] = {}
        for path in self._paths:
            remove_deleted(self._files, path)
            recovery_points = read_offsets(self._files, path / RECOVERY_POINTS)
            high_watermarks = read_offsets(self._files, path / HIGH_WATERMARKS)
            with storage_errors("Listing", path):
                names = self._files.listdir(path)
            for name, key in sorted((n, k) for n in names if (k := _partition_key(path / n)) is not None):
                if key in found:
                    self.set_aside(path / name)
                    continue
                log = PartitionLog.open(
                    path / name,
                    config,
                    files=self._files,
                    clean=path in self._clean,
                    recovery_point=recovery_points.get(key, 0),
                )
                high_watermark = min(max(high_watermarks.get(key, 0), log.log_start_offset), log.log_end_offset)
                found[key] = FoundPartition(self._read_topic_id(path / name), log, high_watermark)
        return found

    def create(self, key: PartitionKey, topic_id: TopicId, config: LogConfig) -> PartitionLog:
        """Create a partition in the directory that has the fewest.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        path = min(self._paths, key=lambda p: (self._count(p), self._paths.index(p)))
        directory = path / f"{key[0]}-{key[1]}"
        log = PartitionLog.open(directory, config, files=self._files, clean=False, recovery_point=0)
        text = f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n"
        with storage_errors("Writing", directory / PARTITION_METADATA):
            replace_file(self._files, directory / PARTITION_METADATA, text.encode())
        return log

    def set_aside(self, directory: Path) -> None:
        """Rename the folder of a partition that the metadata does not know; its records stay for the operator.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        target = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}{STRAY_SUFFIX}")
        logger.warning("The metadata does not know %s: it is set aside as %s", directory, target.name)
        with storage_errors("Renaming", directory):
            self._files.rename(directory, target)
            self._files.fsync_directory(directory.parent)

    def write_checkpoints(
        self,
        high_watermarks: Mapping[Path, Mapping[PartitionKey, int]],
        recovery_points: Mapping[Path, Mapping[PartitionKey, int]],
    ) -> None:
        """Replace the checkpoints of every directory; the maps go from a directory to its partitions.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        for path in self._paths:
            write_offsets(self._files, path / RECOVERY_POINTS, recovery_points.get(path, {}))
            write_offsets(self._files, path / HIGH_WATERMARKS, high_watermarks.get(path, {}))

    def mark_clean(self, broker_epoch: int) -> None:
        """Write the marker of a clean shutdown: every log is closed, every checkpoint written.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()
        for path in self._paths:
            with storage_errors("Writing", path / CLEAN_SHUTDOWN):
                replace_file(self._files, path / CLEAN_SHUTDOWN, marker)

    def release(self) -> None:
        """Give the locks back."""
        for handle in self._locks:
            self._files.close(handle)
        self._locks.clear()

    def _claim_id(self, path: Path) -> bytes:
        data = read_file(self._files, path / META_PROPERTIES)
        if data is None:
            return self._write_identity(path)
        lines = (line.partition("=") for line in data.decode(errors="replace").splitlines() if "=" in line)
        stored = {key.strip(): value.strip() for key, _, value in lines}
        for key, expected in (("cluster.id", self._cluster_id), ("node.id", str(self._node_id))):
            if stored.get(key) != expected:
                raise ConfigError(f"log.dirs {path} belongs to {key} {stored.get(key)}, this node has {expected}")
        try:
            return uuid.UUID(hex=stored.get("directory.id", "")).bytes
        except ValueError as error:
            raise ConfigError(f"{path / META_PROPERTIES} has no valid directory.id") from error

    def _write_identity(self, path: Path) -> bytes:
        directory_id = uuid.uuid4()
        lines = {
            "version": "1",
            "cluster.id": self._cluster_id,
            "node.id": str(self._node_id),
            "directory.id": directory_id.hex,
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        replace_file(self._files, path / META_PROPERTIES, text.encode())
        return directory_id.bytes

    def _take_marker(self, path: Path) -> int:
        marker = path / CLEAN_SHUTDOWN
        data = read_file(self._files, marker)
        if data is None:
            return _NO_BROKER_EPOCH
        self._clean.add(path)
        self._files.remove(marker)
        self._files.fsync_directory(path)
        try:
            return int(json.loads(data)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            logger.warning("The marker %s is damaged and counts as an unclean shutdown", marker)
            self._clean.discard(path)
            return _NO_BROKER_EPOCH

    def _count(self, path: Path) -> int:
        with storage_errors("Listing", path):
            return Counter(_partition_key(path / name) is not None for name in self._files.listdir(path))[True]

    def _read_topic_id(self, directory: Path) -> str:
        with storage_errors("Reading", directory / PARTITION_METADATA):
            data = read_file(self._files, directory / PARTITION_METADATA)
        for line in (data or b"").decode(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "topic_id":
                return value.strip()
        return ""


def _partition_key(directory: Path) -> PartitionKey | None:
    """Return what ``topic-N`` names; None for a file, or a folder that is set aside or condemned."""
    topic, separator, index = directory.name.rpartition("-")
    if not separator or not topic or not index.isdigit() or not directory.is_dir():
        return None
    return topic, int(index)
