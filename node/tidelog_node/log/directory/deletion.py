"""The deletion of a partition's directory, and of single files of a log.

A crash half-way through the deletion of a directory leaves nothing that looks like a partition. Deleted files of a log
stay on the disk for ``file.delete.delay.ms``, as in Kafka: a reader that has such a file open can continue to read it.
Opening the log removes the files that an ended process left.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

from tidelog_foundation.errors import TidelogError
from tidelog_node.log.directory.partition_folder import DELETED_SUFFIX, suffixed_folder
from tidelog_node.log.disk.disk_errors import is_disk_failure
from tidelog_node.log.disk.files import Files, remove_if_there, storage_errors
from tidelog_node.log.segments.file_names import DELETED_FILE_SUFFIX, deleted_name

logger = logging.getLogger(__name__)


def rename_for_deletion(files: Files, directory: Path) -> Path:
    """Rename ``topic-N`` to ``topic-N.<uuid>-delete``, durably, and return the new path. The directory may be missing.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    renamed = directory.with_name(suffixed_folder(directory.name, DELETED_SUFFIX))
    with storage_errors("Deleting", directory):
        try:
            files.rename(directory, renamed)
        except FileNotFoundError:
            return renamed
        files.fsync_directory(directory.parent)
    return renamed


def remove_directory(files: Files, renamed: Path) -> None:
    """Remove a renamed directory and its files.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR; :func:`remove_deleted` completes the removal later.
    """
    with storage_errors("Deleting", renamed):
        _remove_all(files, renamed)


def delete_directory(files: Files, directory: Path) -> None:
    """Rename a directory and remove it.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR; if the rename was done, :func:`remove_deleted` completes the removal later.
    """
    remove_directory(files, rename_for_deletion(files, directory))


def remove_deleted(files: Files, log_directory: Path) -> list[str]:
    """Remove the ``-delete`` directories that an earlier run left, and return the names of those removed.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR, the disk failed. Directories that it only refuses to remove stay until the
            next start.
    """
    removed = []
    with storage_errors("Deleting from", log_directory):
        names = [name for name in files.listdir(log_directory) if name.endswith(DELETED_SUFFIX)]
    for name in names:
        try:
            remove_directory(files, log_directory / name)
        except TidelogError as error:
            if is_disk_failure(error):
                raise
            logger.error("The next start removes a deleted replica: %s", error.message)
        else:
            removed.append(name)
    return removed


def _remove_all(files: Files, directory: Path) -> None:
    try:
        names = files.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        files.remove(directory / name)
    files.rmdir(directory)


class DelayedDeletion:
    """The renamed files of one log; :meth:`remove` may run in another thread, one call at a time."""

    __slots__ = ("_files", "_waiting")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[tuple[int, Path]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: Path, due_ms: int) -> None:
        """Rename a file, if it exists, and remove it at ``due_ms``. Raises OSError; the file then keeps its name."""
        target = deleted_name(path)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(path, target)
            self._waiting.append((due_ms, target))

    def extend(self, paths: Iterable[Path], due_ms: int) -> None:
        """Rename several files, as :meth:`add` does."""
        for path in paths:
            self.add(path, due_ms)

    def remove(self, now_ms: int) -> int:
        """Remove the files whose delay has passed and return their number.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the next call tries the file again.
        """
        count = 0
        for waiting in list(self._waiting):
            due_ms, path = waiting
            if due_ms <= now_ms:
                with storage_errors("Removing", path):
                    remove_if_there(self._files, path)
                self._waiting.remove(waiting)
                count += 1
        return count


def remove_leftovers(files: Files, directory: Path, names: Iterable[str]) -> None:
    """Remove the ``.deleted`` files that an earlier process left. Raises OSError."""
    for name in names:
        if name.endswith(DELETED_FILE_SUFFIX):
            remove_if_there(files, directory / name)
