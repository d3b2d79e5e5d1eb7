"""The replicas of this node that cannot be used, and what has to be known of them until they can be.

A replica is offline with its directory, until the next start; by a rule that keeps its records from being lost; or for
a while, because its disk is full or its own files cannot be used. Of the last kind everything that the checkpoints say
stays: a replica that comes back must start where it started, and have no more to be checked than it had.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import BrokerId, TopicId
from tidelog_node.log import PartitionLog
from tidelog_node.log.log_dirs import PartitionCheckpoint
from tidelog_node.partitions.loading import PartitionKey, close_offline


@dataclass(frozen=True, slots=True)
class LastState:
    """In which log directory a replica's log was, and what a checkpoint would have said of it.

    ``has_folder`` says that it had its folder there: it is not the replica if the folder is not there any more.
    """

    directory: Path
    checkpoint: PartitionCheckpoint
    has_folder: bool = True


@dataclass(frozen=True, slots=True)
class OfflineReplica:
    """A replica that cannot be used, and why.

    ``is_retried``: its disk was full or refused its files, which may end; ``last_state`` is then that of its log, None
    when it was never open.
    """

    topic_id: TopicId
    error: TidelogError
    is_retried: bool = False
    last_state: LastState | None = None


class OfflineReplicas:
    """Owned by the registry, on the event loop; files are closed in threads."""

    def __init__(self) -> None:
        self._replicas: dict[PartitionKey, OfflineReplica] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, key: PartitionKey) -> OfflineReplica | None:
        """Return what is known of a replica that is offline, None of one that is not."""
        return self._replicas.get(key)

    def put(self, key: PartitionKey, replica: OfflineReplica) -> None:
        """Count a replica as offline."""
        self._replicas[key] = replica

    def discard(self, key: PartitionKey) -> None:
        """Count it no more."""
        self._replicas.pop(key, None)

    def retried(self) -> list[tuple[PartitionKey, OfflineReplica]]:
        """Return those that may be online again when their disk takes their files."""
        return [(key, replica) for key, replica in self._replicas.items() if replica.is_retried]

    def last_states(self) -> Iterator[tuple[PartitionKey, LastState]]:
        """Yield what checkpoints have to say of replicas whose directories are online."""
        for key, replica in self.retried():
            if replica.last_state is not None:
                yield key, replica.last_state

    def check(self, key: PartitionKey, node: BrokerId) -> None:
        """Raise KAFKA_STORAGE_ERROR when a replica of ``node`` is offline."""
        replica = self._replicas.get(key)
        if replica is not None:
            text = f"{key[0]}-{key[1]} is offline on node {node}: {replica.error.message}"
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)

    def close_soon(self, log: PartitionLog, error: TidelogError, lock: asyncio.Lock | None = None) -> None:
        """Close the files of a log in a thread, when who holds ``lock`` is done with it."""

        async def close() -> None:
            async with lock or contextlib.nullcontext():
                await asyncio.to_thread(close_offline, log, error)

        task = asyncio.get_running_loop().create_task(close(), name=f"close-offline-{log.directory.name}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def closed(self) -> None:
        """Wait until no file is being closed."""
        while self._closing:
            await asyncio.wait(self._closing)


def last_state(log: PartitionLog, high_watermark: int) -> LastState:
    """Return what a checkpoint would say of a log now."""
    checkpoint = PartitionCheckpoint(log.recovery_point, high_watermark, log.log_start_offset)
    return LastState(log.directory.parent, checkpoint, log.is_founded)


def restore(log: PartitionLog, high_watermark: int, checkpoint: PartitionCheckpoint) -> int:
    """Let a log that is open again start where it did, and return its high watermark."""
    end_offset = log.log_end_offset
    log.advance_log_start_offset(min(checkpoint.log_start_offset, end_offset))
    return min(max(high_watermark, checkpoint.high_watermark, log.log_start_offset), end_offset)
