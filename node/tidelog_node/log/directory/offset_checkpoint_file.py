"""Kafka's text checkpoints: a version line, a count line and one line of fields per entry.

The offset checkpoints of a log directory map partitions to offsets. A missing or damaged file reads as empty, with a
warning; recovery then relies on the log itself, so a bad checkpoint never blocks a start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidelog_node.log.disk.files import Files, read_file, replace_file, storage_errors

logger = logging.getLogger(__name__)

TopicPartitionKey = tuple[str, int]
"""A topic's name and a partition's number."""

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
_VERSION = 0


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
