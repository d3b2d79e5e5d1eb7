"""Kafka's text checkpoints: a version line, a count line and one line of fields per entry.

The offset checkpoints of a log directory map partitions to offsets. A missing or damaged file reads as empty, with a
warning; recovery then relies on the log itself, so a bad checkpoint never blocks a start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from tidelog_node.log.disk.files import Files, read_file, replace_file, storage_errors

logger = logging.getLogger(__name__)

TopicPartitionKey = tuple[str, int]
"""A topic's name and a partition's number."""

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
_VERSION = 0


class OffsetCheckpointFile:
    """An offset checkpoint of a log directory with its content in memory, loaded on creation. Thread-safe.

    Only entries of partitions in ``known`` are loaded, if given. A change is on the disk when the call returns, and
    nothing is written if nothing changes. The changing methods raise KAFKA_STORAGE_ERROR if the disk refuses; the
    change is then not in memory, and may or may not be on the disk.
    """

    def __init__(self, files: Files, path: Path, known: Container[TopicPartitionKey] | None = None) -> None:
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        offsets = read_offsets(files, path)
        self._offsets = {key: offset for key, offset in offsets.items() if known is None or key in known}

    def get(self, key: TopicPartitionKey) -> int | None:
        """Return the offset of a partition; None if it has none."""
        return self._offsets.get(key)

    def put(self, key: TopicPartitionKey, offset: int) -> None:
        """Set the offset of a partition."""
        with self._lock:
            self._write({**self._offsets, key: offset})

    def lower(self, key: TopicPartitionKey, offset: int) -> None:
        """Lower the offset of a partition to ``offset``, if it has a larger one."""
        with self._lock:
            if self._offsets.get(key, 0) > offset:
                self._write({**self._offsets, key: offset})

    def remove(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Remove the entries of partitions."""
        gone = set(keys)
        with self._lock:
            self._write({key: offset for key, offset in self._offsets.items() if key not in gone})

    def replace(self, offsets: Mapping[TopicPartitionKey, int]) -> None:
        """Replace all entries."""
        with self._lock:
            self._write(offsets)

    def _write(self, offsets: Mapping[TopicPartitionKey, int]) -> None:
        if offsets != self._offsets:
            write_offsets(self._files, self._path, offsets)
            self._offsets = dict(offsets)


def format_checkpoint(rows: Iterable[tuple[object, ...]]) -> bytes:
    """Return the bytes of a checkpoint file (Kafka's CheckpointFile, version 0)."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in (_VERSION, len(lines), *lines)).encode()


def parse_checkpoint(data: bytes, fields: int) -> list[list[str]]:
    """Return the rows of a checkpoint file; each has ``fields`` fields.

    Raises:
        ValueError: the version is unknown, or the number of rows or of a row's fields is wrong.
    """
    lines = data.decode().splitlines()
    if len(lines) < 2 or lines[0].strip() != str(_VERSION):
        raise ValueError(f"not a checkpoint of version {_VERSION}, it begins with {data[:20]!r}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if int(lines[1]) != len(rows):
        raise ValueError(f"{len(rows)} entries, where the second line has {lines[1]}")
    for row in rows:
        if len(row) != fields:
            raise ValueError(f"{' '.join(row)!r} has {len(row)} fields, expected {fields}")
    return rows


def read_offsets(files: Files, path: Path) -> dict[TopicPartitionKey, int]:
    """Return the offset of each partition in an offset checkpoint; empty if the file is missing or damaged.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR, the disk refused to read.
    """
    with storage_errors("Reading", path):
        data = read_file(files, path)
    if data is None:
        return {}
    try:
        offsets = {(row[0], int(row[1])): int(row[2]) for row in parse_checkpoint(data, fields=3)}
        if any(offset < 0 for offset in offsets.values()):
            raise ValueError("an offset is negative")
    except ValueError as cause:
        logger.warning("The checkpoint %s is damaged and is ignored: %s", path, cause)
        return {}
    return offsets


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartitionKey, int]) -> None:
    """Replace an offset checkpoint in one durable step.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR; the old checkpoint is still in place.
    """
    rows = ((topic, partition, offset) for (topic, partition), offset in sorted(offsets.items()))
    with storage_errors("Writing", path):
        replace_file(files, path, format_checkpoint(rows))
