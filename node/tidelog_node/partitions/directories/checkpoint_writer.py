"""Checkpoint files of a node's logs, which it writes every few seconds for its next start, one set per log directory.

Every log with a folder in a directory must be in its files. The next start would check a missing log from its first
record and show deleted records again. The files therefore include logs from the start that no replica has taken over
yet, logs of replicas that are offline for a while, and copies of moves, which may soon be replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tidelog_foundation.errors import TidelogError
from tidelog_node.hosting import HostedReplicas, LastState, PartitionKey
from tidelog_node.log.directory.log_directory import PartitionCheckpoint
from tidelog_node.log.disk.disk_errors import is_directory_failure
from tidelog_node.partitions.directories.log_manager import LogManager
from tidelog_node.partitions.directories.relocation import Move
from tidelog_node.partitions.directories.replica_logs import ReplicaLogs
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.replica_events import last_state

logger = logging.getLogger(__name__)

ByDirectory = dict[Path, dict[PartitionKey, int]]


class CheckpointWriter:
    """The writer of checkpoint files, which reads the registry's state on the event loop and writes in threads.

    ``fail_directory`` receives each directory whose files cannot be written. If the directory is full, or the process
    has no file handles or memory left, the old files stay in place and the next call writes.
    """

    def __init__(
        self,
        directories: LogManager,
        partitions: Mapping[PartitionKey, Partition],
        logs: ReplicaLogs,
        hosted: HostedReplicas,
        relocations: Iterable[Move],
        fail_directory: Callable[[Path, TidelogError], None],
    ) -> None:
        self._directories = directories
        self._partitions = partitions
        self._logs = logs
        self._hosted = hosted
        self._relocations = relocations
        self._fail_directory = fail_directory
        self._unwritten: set[Path] = set()

    def current(self) -> tuple[ByDirectory, ByDirectory]:
        """Return the high watermarks and recovery points by log directory."""
        high_watermarks: ByDirectory = {}
        recovery_points: ByDirectory = {}
        for key, state in self._states():
            high_watermarks.setdefault(state.directory, {})[key] = state.checkpoint.high_watermark
            recovery_points.setdefault(state.directory, {})[key] = state.checkpoint.recovery_point
        return high_watermarks, recovery_points

    async def write(self) -> None:
        """Write the changed high watermarks and recovery points."""
        self.note_failures(await asyncio.to_thread(self._directories.write_checkpoints, *self.current()))

    async def write_log_start_offsets(self) -> None:
        """Write the log start offsets above 0."""
        self.note_failures(await asyncio.to_thread(self._directories.write_log_start_offsets, self.log_start_offsets()))

    def log_start_offsets(self) -> ByDirectory:
        """Return the log start offsets above 0 by log directory."""
        offsets: ByDirectory = {}
        for key, state in self._states():
            if state.checkpoint.log_start_offset:
                offsets.setdefault(state.directory, {})[key] = state.checkpoint.log_start_offset
        return offsets

    def note_failures(self, failures: Mapping[Path, TidelogError]) -> None:
        """Record the directories whose files were not written, and take failed ones offline."""
        for path, error in failures.items():
            if is_directory_failure(error):
                self._fail_directory(path, error)
            elif path not in self._unwritten:
                logger.error("Writing the checkpoints of %s failed, retrying: %s", path, error.message)
        self._unwritten = set(failures)

    def _states(self) -> Iterator[tuple[PartitionKey, LastState]]:
        for move in self._relocations:
            if move.copy is not None:
                start = move.partition.log.log_start_offset
                checkpoint = PartitionCheckpoint(move.copy.recovery_point, move.partition.high_watermark, start)
                yield move.key, LastState(move.target.path, checkpoint)
        for key, partition in self._partitions.items():
            yield key, last_state(partition.log, partition.high_watermark)
        for key, found in self._logs:
            yield key, last_state(found.log, found.high_watermark)
        for key, offline in self._hosted.offline_states():
            if offline.last_state is not None:
                yield key, offline.last_state
        for key, directory in self._directories.unopened():
            yield key, LastState(directory.path, directory.checkpoint(key))
