"""Deleted files of a log that stay on the disk for ``file.delete.delay.ms``, as in Kafka.

A reader that has such a file open can continue to read it. Opening the log removes the files that an ended process
left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from tidelog_node.log.disk.files import Files, remove_if_there, storage_errors
from tidelog_node.log.segments.file_names import DELETED_FILE_SUFFIX, deleted_name


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
