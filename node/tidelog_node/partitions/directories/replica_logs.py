"""The source of a replica's log: a log directory at the start, or a new log that the metadata asks for."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.hosting import PartitionKey
from tidelog_node.hosting.commands import OpenLog
from tidelog_node.log import LogDirectory, PartitionLog
from tidelog_node.log.disk.disk_errors import is_disk_failure
from tidelog_node.partitions.directories.closing_logs import close_offline
from tidelog_node.partitions.directories.loading import FoundPartition
from tidelog_node.partitions.directories.log_manager import LogManager

logger = logging.getLogger(__name__)
_THREADS = 4
_LOGS_PER_CALL = 32


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A replica's log and its high watermark."""

    log: PartitionLog
    high_watermark: int

    @classmethod
    def of(cls, log: PartitionLog, directory: LogDirectory, wanted: OpenLog) -> OpenedLog:
        """Return a log opened in a directory; a reopened log keeps its last log start and high watermark."""
        checkpoint = directory.checkpoint(wanted.key).high_watermark
        high_watermark = min(max(checkpoint, log.log_start_offset), log.log_end_offset)
        if wanted.last_state is None:
            return cls(log, high_watermark)
        before, end_offset = wanted.last_state.checkpoint, log.log_end_offset
        log.advance_log_start_offset(min(before.log_start_offset, end_offset))
        return cls(log, min(max(high_watermark, before.high_watermark, log.log_start_offset), end_offset))


class ReplicaLogs:
    """The logs of an earlier run until the first image names them. Disk operations run in threads.

    ``fail_directory`` receives each directory whose disk failed.
    """

    def __init__(
        self,
        directories: LogManager,
        found: dict[PartitionKey, FoundPartition],
        fail_directory: Callable[[Path, TidelogError], None],
    ) -> None:
        self._directories = directories
        self._found = found
        self._fail_directory = fail_directory

    def __iter__(self) -> Iterator[tuple[PartitionKey, FoundPartition]]:
        """Yield every log that no replica has taken over, including each rival copy of a partition."""
        for key, found in list(self._found.items()):
            for one in (found, *found.rivals):
                yield key, one

    def drop_failed(self, path: Path) -> list[tuple[PartitionKey, FoundPartition]]:
        """Remove and return the logs of partitions with a log in an offline directory."""
        gone = {key for key, one in self if one.log.directory.parent == path}
        dropped = [(key, one) for key, one in self if key in gone]
        for key in gone:
            del self._found[key]
        return dropped

    def drop_all(self) -> list[tuple[PartitionKey, FoundPartition]]:
        """Remove and return all logs."""
        dropped = list(self)
        self._found.clear()
        return dropped

    async def take(self, wanted: OpenLog) -> OpenedLog | None:
        """Remove and return the found log of a replica, or None; the caller takes it over without a pause.

        A folder of an earlier topic with the same name becomes stray.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
            ConfigError: Several directories have the log, and none is the one that the metadata assigns.
        """
        key = wanted.key
        if self._directories.is_moving(key):
            await asyncio.to_thread(self._directories.end_move, key)
        found = self._found.get(key)
        if found is None:
            return None
        chosen, others = found.choose(wanted.topic_id, wanted.assigned)
        del self._found[key]
        for other in others:
            await self._rename_to_stray(other)
        if chosen is None:
            return None
        chosen.log.config = wanted.config
        return OpenedLog(chosen.log, chosen.high_watermark)

    async def open_in(self, directory: LogDirectory, wanted: OpenLog) -> OpenedLog:
        """Open or create the log of a replica in a directory.

        A log that had a folder is never created again, because it had records.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; INCONSISTENT_TOPIC_ID: The folder is of an earlier topic of that name.
        """
        log = await asyncio.to_thread(open_log, directory, wanted)
        self._directories.note_opened(wanted.key)
        return OpenedLog.of(log, directory, wanted)

    async def create_ahead(self, wanted: Sequence[OpenLog]) -> None:
        """Create the logs of many new replicas, several at a time, for :meth:`take` to find.

        A log is on the disk before its first record, not when the method returns. If a log cannot be created,
        :meth:`open_in` tries again and reports the error.
        """
        groups = iter([wanted[i : i + _LOGS_PER_CALL] for i in range(0, len(wanted), _LOGS_PER_CALL)])
        # A directory counts a log only once its thread has created it, so the choices count for themselves.
        placed = Counter({directory.path: len(directory) for directory in self._directories.online})

        async def work() -> None:
            for group in groups:
                await self._create_group(group, placed)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_THREADS):
                tasks.create_task(work(), name="create-logs")

    async def _create_group(self, group: Sequence[OpenLog], placed: Counter[Path]) -> None:
        places: list[tuple[OpenLog, LogDirectory]] = []
        for one in group:
            directory = self._place_of_new(one, placed)
            if directory is not None:
                placed[directory.path] += 1
                places.append((one, directory))
        created = await asyncio.to_thread(_create_logs, places)
        for one, directory, log in created:
            failure = self._directories.failures.get(directory.path)
            if failure is not None:
                close_offline(log, failure)
            else:
                self._found[one.key] = FoundPartition(one.topic_id, log, log.log_start_offset, directory.id)

    def _place_of_new(self, one: OpenLog, placed: Mapping[Path, int]) -> LogDirectory | None:
        if one.key in self._found or self._directories.holding(one.key) is not None:
            return None
        try:
            return self._directories.place(one, placed)
        except TidelogError:
            return None

    async def rename_strays(self) -> None:
        """Rename the folders of the logs that no image has named to stray."""
        for _, unknown in self.drop_all():
            await self._rename_to_stray(unknown)

    async def _rename_to_stray(self, found: FoundPartition) -> None:
        path = found.log.directory
        try:
            await asyncio.to_thread(found.log.close)
            await asyncio.to_thread(self._directories.rename_to_stray, path)
        except TidelogError as error:
            if is_disk_failure(error):
                self._fail_directory(path.parent, error)
            else:
                logger.error("A folder that the metadata has no replica for cannot be renamed: %s", error.message)
            return
        self._directories.forget(path)


def open_log(directory: LogDirectory, wanted: OpenLog) -> PartitionLog:
    """Open or create a log in a directory for :meth:`ReplicaLogs.open_in`; runs in a thread."""
    if wanted.last_state is not None and wanted.last_state.has_folder:
        directory.check_folder(*wanted.key)
    return directory.open_log(*wanted.key, wanted.topic_id, wanted.config)


def _create_logs(
    places: Sequence[tuple[OpenLog, LogDirectory]],
) -> list[tuple[OpenLog, LogDirectory, PartitionLog]]:
    """Create logs one after the other until the disk refuses one."""
    created = []
    for one, directory in places:
        try:
            log = directory.open_log(*one.key, one.topic_id, one.config, may_create_later=True)
        except TidelogError:
            break
        created.append((one, directory, log))
    return created
