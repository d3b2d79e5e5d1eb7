"""The log directories of a node (``log.dirs``): the place of each partition, and the checkpoints of all directories.

A directory that cannot be used at the start, or that fails later, is offline until the next start. The others go on
(KIP-112). If the topic id of a folder differs from the metadata's id for its name, the folder becomes stray and never
read, because a topic that was deleted and created again must not inherit records. All methods that touch a disk block.
They run in a thread, or before the event loop has other work.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId
from tidelog_node.hosting import PartitionKey
from tidelog_node.hosting.commands import OpenLog
from tidelog_node.hosting.placement import Candidate, place
from tidelog_node.log import OS_FILES, Files, LogConfig, LogDirectory
from tidelog_node.log.directory.deletion import rename_for_deletion
from tidelog_node.log.directory.partition_folder import STRAY_SUFFIX, suffixed_folder
from tidelog_node.log.disk.files import storage_errors
from tidelog_node.partitions.directories.loading import EndedMove, FoundPartition, load_partitions

__all__ = ["FoundPartition", "LogManager", "PartitionKey"]

logger = logging.getLogger(__name__)

_NO_BROKER_EPOCH = BrokerEpoch(-1)

Offsets = Mapping[PartitionKey, int]


class LogManager:
    """The log directories of one process, opened once and closed once, after the logs."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._online: dict[Path, LogDirectory] = {}
        self._failures: dict[Path, TidelogError] = {}
        self._offline_ids: list[DirectoryId] = []
        self._unclean: set[Path] = set()
        self._unopened: dict[PartitionKey, Path] = {}
        self._moves: dict[PartitionKey, EndedMove] = {}

    @classmethod
    def open(
        cls,
        paths: Iterable[str],
        cluster_id: str,
        node_id: BrokerId,
        files: Files = OS_FILES,
        producer_id_expiration_ms: int | None = None,
    ) -> LogManager:
        """Lock every directory and check its owner. A directory that cannot be used is offline, with a logged error.

        Raises:
            ConfigError: No directory can be used; one is named twice, is another node's, or has the id of another.
            TidelogError: INCONSISTENT_CLUSTER_ID.
        """
        opened = cls(files)
        try:
            for path in _distinct(paths):
                opened._claim(path, cluster_id, node_id)
            opened._check_ids()
        except BaseException:
            opened.close(clean=False)
            raise
        for directory in opened._online.values():
            if producer_id_expiration_ms is not None:
                directory.producer_id_expiration_ms = producer_id_expiration_ms
        return opened

    @property
    def ids(self) -> list[DirectoryId]:
        """The ids of the directories that are online."""
        return [d.id for d in self._online.values()]

    @property
    def offline_ids(self) -> list[DirectoryId]:
        """The ids of the directories that have failed since :meth:`open`."""
        return list(self._offline_ids)

    @property
    def failures(self) -> Mapping[Path, TidelogError]:
        """The errors of the offline directories, including those that could not be opened."""
        return self._failures

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that can be used."""
        return list(self._online.values())

    @property
    def previous_broker_epoch(self) -> BrokerEpoch:
        """The broker epoch of the last clean stop; -1 when any directory was not closed cleanly (KIP-966)."""
        epochs = {d.clean_shutdown_epoch for d in self._online.values()}
        epoch = epochs.pop() if len(epochs) == 1 and not self._failures else None
        return _NO_BROKER_EPOCH if epoch is None else epoch

    def find(self, path: str | Path) -> LogDirectory:
        """Return the online directory at a path.

        Raises:
            TidelogError: LOG_DIR_NOT_FOUND: It is not in ``log.dirs``. KAFKA_STORAGE_ERROR: It is offline.
        """
        wanted = Path(path)
        if wanted in self._online:
            return self._online[wanted]
        if wanted in self._failures:
            text = f"the log directory {wanted} is offline: {self._failures[wanted].message}"
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)
        names = ", ".join(map(str, [*self._online, *self._failures]))
        raise error_for(ErrorCode.LOG_DIR_NOT_FOUND, f"{wanted} is not in log.dirs: {names}")

    def at(self, path: Path) -> LogDirectory | None:
        """Return the online directory at a path, or None."""
        return self._online.get(path)

    def holding(self, key: PartitionKey) -> LogDirectory | None:
        """Return the online directory with the folder of a partition, or None."""
        return next((d for d in self._online.values() if key in d), None)

    def fail(self, path: Path, error: TidelogError) -> bool:
        """Take a directory offline for the rest of this process, and return whether it was online."""
        directory = self._online.pop(path, None)
        if directory is None:
            return False
        self._failures[path] = error
        self._offline_ids.append(directory.id)
        with contextlib.suppress(TidelogError, OSError):
            directory.close(clean=False)
        return True

    def load(self, config: LogConfig, threads_per_directory: int = 1) -> dict[PartitionKey, FoundPartition]:
        """Open the logs of all partitions; after a crash, check each log from its recovery point.

        Each directory has its own threads (``num.recovery.threads.per.data.dir``) and goes offline with the first log
        that its disk fails to open. Moves that a crash interrupted after their commit are completed. A log that cannot
        be opened for another reason, and a folder without a topic id, stay unchanged; the node opens the log of such a
        replica when an image names it.

        Raises:
            ConfigError: No directory is left.
        """
        loaded = load_partitions(list(self._online.values()), self.files, config, threads_per_directory)
        for path, error in loaded.failures.items():
            _log_offline(path, error)
            self.fail(path, error)
        self._check_any()
        self._unopened, self._moves = loaded.unopened, loaded.moves
        return loaded.found

    def unopened(self) -> list[tuple[PartitionKey, LogDirectory]]:
        """Return the partitions whose logs :meth:`load` could not open and that are still closed, with directories."""
        places = [(key, self._online.get(path)) for key, path in self._unopened.items()]
        return [(key, directory) for key, directory in places if directory is not None]

    def note_opened(self, key: PartitionKey) -> None:
        """Record that a partition's log is open."""
        self._unopened.pop(key, None)

    def is_moving(self, key: PartitionKey) -> bool:
        """Return whether a partition has a move that :meth:`load` could not complete."""
        return key in self._moves

    def end_move(self, key: PartitionKey) -> None:
        """Complete a move that :meth:`load` could not complete.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR: The move cannot be completed now either.
        """
        self._moves[key].end(self.online, self.files)
        del self._moves[key]

    def place(self, wanted: OpenLog, replicas: Mapping[Path, int] | None = None) -> LogDirectory:
        """Return the directory for a replica's log. ``replicas`` replaces the directories' own counts of replicas.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR: The rules of :mod:`tidelog_node.hosting.placement` allow no directory.
        """
        candidates = [
            Candidate(path, d.id, len(d) if replicas is None else replicas[path], wanted.key in d)
            for path, d in self._online.items()
        ]
        return self._online[place(wanted, candidates, self._failures)]

    def rename_to_stray(self, path: Path) -> None:
        """Rename a folder that the metadata does not know, and keep its records for the operator.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        target = path.with_name(suffixed_folder(path.name, STRAY_SUFFIX))
        logger.warning("The metadata has no replica for %s: it is renamed to %s", path, target.name)
        with storage_errors("Renaming", path):
            self.files.rename(path, target)
            self.files.fsync_directory(path.parent)

    def rename_for_deletion(self, directory: LogDirectory, key: PartitionKey) -> Path:
        """Rename the folder of a replica with a closed log for later removal, and return the new path.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        renamed = rename_for_deletion(self.files, directory.partition_path(*key))
        directory.forget(*key)
        return renamed

    def note_unclean(self, key: PartitionKey) -> None:
        """Record that a log was not closed cleanly, so that its directory's stop does not count as clean."""
        directory = self.holding(key)
        if directory is not None:
            self._unclean.add(directory.path)

    def note_unclean_in(self, path: Path) -> None:
        """Record that a log in a directory was not closed cleanly."""
        self._unclean.add(path)

    def forget(self, path: Path) -> None:
        """Remove the folder of a partition from its directory's list, because it no longer exists."""
        topic, _, number = path.name.rpartition("-")
        if path.parent in self._online:
            self._online[path.parent].forget(topic, int(number))

    def write_checkpoints(
        self, high_watermarks: Mapping[Path, Offsets], recovery_points: Mapping[Path, Offsets]
    ) -> dict[Path, TidelogError]:
        """Replace the checkpoints of every directory; the maps hold the offsets by directory and partition.

        Returns the directories whose files could not be written, with their errors.
        """

        def write(directory: LogDirectory) -> None:
            directory.recovery_points.replace(recovery_points.get(directory.path, {}))
            directory.high_watermarks.replace(high_watermarks.get(directory.path, {}))

        return self._write_all(write)

    def write_log_start_offsets(self, offsets: Mapping[Path, Offsets]) -> dict[Path, TidelogError]:
        """Replace the checkpoint of log start offsets, as :meth:`write_checkpoints` does."""
        return self._write_all(lambda directory: directory.log_start_offsets.replace(offsets.get(directory.path, {})))

    def _write_all(self, write: Callable[[LogDirectory], None]) -> dict[Path, TidelogError]:
        failures: dict[Path, TidelogError] = {}
        for directory in self.online:
            try:
                write(directory)
            except TidelogError as error:
                failures[directory.path] = error
        return failures

    def space(self, path: Path) -> tuple[int, int]:
        """Return the total and usable bytes of a directory's file system; -1 if unknown (KIP-827)."""
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return -1, -1
        return usage.total, usage.free

    def close(self, *, clean: bool, broker_epoch: BrokerEpoch = _NO_BROKER_EPOCH) -> None:
        """Release every directory. Pass ``clean`` after all logs were closed, to leave clean shutdown markers.

        A directory with a log that :meth:`note_unclean` recorded gets no marker.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; all directories are released.
        """
        failure: TidelogError | None = None
        while self._online:
            path, directory = self._online.popitem()
            try:
                directory.close(clean=clean and path not in self._unclean, broker_epoch=broker_epoch)
            except TidelogError as error:
                failure = error
        if failure is not None:
            raise failure

    def _claim(self, path: Path, cluster_id: str, node_id: BrokerId) -> None:
        try:
            self._online[path] = LogDirectory.open(path, cluster_id=cluster_id, node_id=node_id, files=self.files)
        except TidelogError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            self._failures[path] = error

    def _check_ids(self) -> None:
        self._check_any()
        for path, error in self._failures.items():
            _log_offline(path, error)
        paths: dict[DirectoryId, Path] = {}
        for path, directory in self._online.items():
            if paths.setdefault(directory.id, path) != path:
                text = f"the log directories {paths[directory.id]} and {path} have the same directory.id"
                raise ConfigError(f"{text}; if one is a copy of the other, remove it from log.dirs")

    def _check_any(self) -> None:
        if not self._online:
            reasons = "; ".join(f"{path}: {error.message}" for path, error in self._failures.items())
            raise ConfigError(f"no log directory is usable: {reasons}")


def _log_offline(path: Path, error: TidelogError) -> None:
    logger.error("The log directory %s is offline until the next start: %s", path, error.message)


def _distinct(paths: Iterable[str]) -> list[Path]:
    found = [Path(path) for path in paths]
    absolute = [path.absolute() for path in found]
    twice = next((path for path in absolute if absolute.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(f"log.dirs contains {twice} twice")
    return found
