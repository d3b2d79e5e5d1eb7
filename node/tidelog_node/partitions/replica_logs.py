"""Where the log of a replica comes from: found by the start in a log directory, or created by the metadata's word."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, DirectoryId, TopicId
from tidelog_node.log import LogConfig, LogDirectory, PartitionLog
from tidelog_node.log.disk_errors import is_disk_failure
from tidelog_node.partitions.loading import FoundPartition, PartitionKey, close_offline
from tidelog_node.partitions.log_directories import LogDirectories
from tidelog_quorum.metadata import PartitionChange

logger = logging.getLogger(__name__)
_THREADS = 4
_LOGS_PER_CALL = 32


@dataclass(frozen=True, slots=True)
class WantedLog:
    """A replica that the metadata gives to this node and that no log is open of; see :meth:`ReplicaLogs.open`."""

    key: PartitionKey
    topic_id: TopicId
    config: LogConfig
    assigned: DirectoryId
    is_in_sync: bool
    is_new: bool

    @classmethod
    def of(cls, change: PartitionChange, config: LogConfig, broker_id: BrokerId) -> WantedLog:
        """Return what a change of the metadata, which gives the replica to this broker, asks for."""
        after = change.after
        assert after is not None
        key, is_in_sync, is_new = (change.topic_name, change.index), broker_id in after.isr, after.partition_epoch == 0
        return cls(key, change.topic_id, config, after.directory_of(broker_id), is_in_sync, is_new)


class ReplicaLogs:
    """Holds what the start has found until the first image names it; on the event loop, the disk's work in threads.

    ``fail_directory`` is told a directory whose disk refused.
    """

    def __init__(
        self,
        directories: LogDirectories,
        found: dict[PartitionKey, FoundPartition],
        fail_directory: Callable[[Path, TidelogError], None],
    ) -> None:
        self._directories = directories
        self._found = found
        self._fail_directory = fail_directory
        self._coming: Counter[Path] = Counter()

    def __iter__(self) -> Iterator[tuple[PartitionKey, FoundPartition]]:
        """Yield every log that nobody has taken over, those of which a partition has several one by one."""
        for key, found in list(self._found.items()):
            for one in (found, *found.rivals):
                yield key, one

    def drop_failed(self, path: Path) -> list[tuple[PartitionKey, FoundPartition]]:
        """Let go of the partitions that have a log in a directory, which is offline."""
        gone = {key for key, one in self if one.log.directory.parent == path}
        dropped = [(key, one) for key, one in self if key in gone]
        for key in gone:
            del self._found[key]
        return dropped

    async def open(
        self,
        key: PartitionKey,
        topic_id: TopicId,
        config: LogConfig,
        assigned: DirectoryId,
        *,
        is_in_sync: bool,
        is_new: bool,
        preferred: Path | None,
        has_folder: bool = False,
    ) -> tuple[PartitionLog, int]:
        """Return a replica's log and its high watermark; one that was found changes hands without a pause.

        A new one whose directory fails goes to another one, where that may be. One that ``has_folder`` is not created
        anew, as it has had records. A folder of an earlier topic of the name is set aside.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, with a cause unless it is :meth:`LogDirectories.check_may_open`'s.
            ConfigError: several directories have it, and none is where the metadata says.
        """
        if self._directories.is_moving(key):
            await asyncio.to_thread(self._directories.end_move, key)
        found = self._found.get(key)
        if found is not None:
            chosen, others = found.choose(topic_id, assigned)
            del self._found[key]
            for other in others:
                await self._set_aside(other)
            if chosen is not None:
                chosen.log.config = config
                return chosen.log, chosen.high_watermark
        while True:
            self._directories.check_may_open(key, assigned, is_in_sync=is_in_sync, is_new=is_new)
            directory = self._directories.directory_for(key, assigned, preferred)
            try:
                log = await asyncio.to_thread(_open_log, directory, key, topic_id, config, has_folder=has_folder)
            except TidelogError as error:
                if error.code is ErrorCode.INCONSISTENT_TOPIC_ID:
                    path = directory.partition_path(*key)
                    await asyncio.to_thread(self._directories.set_aside, path)
                    self._directories.forget(path)
                elif is_disk_failure(error):
                    self._fail_directory(directory.path, error)
                else:
                    raise
            else:
                self._directories.note_opened(key)
                checkpoint = directory.checkpoint(key).high_watermark
                return log, min(max(checkpoint, log.log_start_offset), log.log_end_offset)

    async def create_ahead(self, wanted: Sequence[WantedLog]) -> None:
        """Create the logs of many new replicas, several at a time, for :meth:`open` to find.

        They are on the disk before their first record, not when this returns. What cannot be created is left to
        :meth:`open`, which says why.
        """
        groups = iter([wanted[i : i + _LOGS_PER_CALL] for i in range(0, len(wanted), _LOGS_PER_CALL)])

        async def work() -> None:
            for group in groups:
                await self._create_group(group)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_THREADS):
                tasks.create_task(work(), name="create-logs")

    async def _create_group(self, group: Sequence[WantedLog]) -> None:
        places: list[tuple[WantedLog, LogDirectory]] = []
        for one in group:
            directory = self._place_of_new(one)
            if directory is not None:
                # It is counted by its directory only when its thread comes to it.
                self._coming[directory.path] += 1
                places.append((one, directory))
        try:
            created = await asyncio.to_thread(_create_logs, places)
        finally:
            self._coming.subtract(directory.path for _, directory in places)
        for one, directory, log in created:
            failure = self._directories.failures.get(directory.path)
            if failure is not None:
                close_offline(log, failure)
            else:
                self._found[one.key] = FoundPartition(one.topic_id, log, log.log_start_offset, directory.id)

    def _place_of_new(self, one: WantedLog) -> LogDirectory | None:
        if one.key in self._found or self._directories.holding(one.key) is not None:
            return None
        try:
            self._directories.check_may_open(one.key, one.assigned, is_in_sync=one.is_in_sync, is_new=one.is_new)
        except TidelogError:
            return None
        return self._directories.directory_for(one.key, one.assigned, coming=self._coming)

    async def set_aside_all(self) -> None:
        """Set aside what no image has named."""
        for key in list(self._found):
            found = self._found.pop(key)
            for unknown in (found, *found.rivals):
                await self._set_aside(unknown)

    async def _set_aside(self, found: FoundPartition) -> None:
        path = found.log.directory
        try:
            await asyncio.to_thread(found.log.close)
            await asyncio.to_thread(self._directories.set_aside, path)
        except TidelogError as error:
            if is_disk_failure(error):
                self._fail_directory(path.parent, error)
            else:
                logger.error("A folder that is no replica's stays in its place: %s", error.message)
            return
        self._directories.forget(path)


def _open_log(
    directory: LogDirectory, key: PartitionKey, topic_id: TopicId, config: LogConfig, *, has_folder: bool
) -> PartitionLog:
    if has_folder:
        directory.check_folder(*key)
    return directory.open_log(*key, topic_id, config)


def _create_logs(
    places: Sequence[tuple[WantedLog, LogDirectory]],
) -> list[tuple[WantedLog, LogDirectory, PartitionLog]]:
    """Create logs one after the other, up to the first that the disk refuses."""
    created = []
    for one, directory in places:
        try:
            log = directory.open_log(*one.key, one.topic_id, one.config, may_found_later=True)
        except TidelogError:
            break
        created.append((one, directory, log))
    return created
