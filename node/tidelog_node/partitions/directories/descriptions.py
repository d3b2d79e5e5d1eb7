"""Descriptions of a node's log directories and of the replicas in them (KIP-113, KIP-827)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.partitions.directories.log_manager import LogManager
from tidelog_node.partitions.directories.relocation import Move
from tidelog_node.partitions.partition import Partition


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A replica in a log directory; ``is_future`` marks the copy of a running move.

    ``offset_lag`` is the distance from this log's end to the high watermark, or for a copy to the replica's log end.
    """

    topic: str
    partition: int
    size_in_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirectoryDescription:
    """One of ``log.dirs``; ``error`` is None if it is online. The sizes are its file system's, or -1 if unknown."""

    path: Path
    error: TidelogError | None
    replicas: tuple[ReplicaDescription, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1


async def describe(
    directories: LogManager, partitions: Iterable[Partition], moves: Iterable[Move]
) -> list[LogDirectoryDescription]:
    """Return every directory of ``log.dirs``, the online ones with their replicas."""
    replicas: dict[Path, list[ReplicaDescription]] = {}
    for partition in partitions:
        log = partition.log
        lag = max(partition.high_watermark - log.log_end_offset, 0)
        described = ReplicaDescription(partition.topic, partition.index, log.size_in_bytes, lag)
        replicas.setdefault(log.directory.parent, []).append(described)
    for move in moves:
        if move.copy is not None:
            lag = max(move.partition.log.log_end_offset - move.copy.log_end_offset, 0)
            described = ReplicaDescription(*move.key, move.copy.size_in_bytes, lag, is_future=True)
            replicas.setdefault(move.target.path, []).append(described)
    paths = [directory.path for directory in directories.online]
    spaces = [await asyncio.to_thread(directories.space, path) for path in paths]
    online = [
        LogDirectoryDescription(path, None, tuple(replicas.get(path, ())), *space)
        for path, space in zip(paths, spaces, strict=True)
        if path not in directories.failures
    ]
    return online + [LogDirectoryDescription(path, error) for path, error in directories.failures.items()]
