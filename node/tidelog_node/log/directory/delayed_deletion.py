"""Files that are deleted for the log, but stay on the disk for ``file.delete.delay.ms``, as with Kafka.

Who has such a file open can go on reading. What is left when the process ends is removed when the log is opened again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from tidelog_node.log.disk.files import Files, remove_if_there, storage_errors
from tidelog_node.log.segments.file_names import CONDEMNED_SUFFIX, condemned


class CondemnedFiles:
    """The renamed files of one log; :meth:`remove` may run in another thread, one at a time."""

    __slots__ = ("_files", "_waiting")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[tuple[int, Path]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: Path, due_ms: int) -> None:
        """Rename a file, if there is one, to be removed at ``due_ms``. Raises OSError; it has its name then."""
        target = condemned(path)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(path, target)
            self._waiting.append((due_ms, target))

    def extend(self, paths: Iterable[Path], due_ms: int) -> None:
        """Rename several files, as :meth:`add` does."""
        for path in paths:
            self.add(path, due_ms)

    def remove(self, now_ms: int) -> int:
        """Remove the files whose time has come and return how many.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the file is tried again with the next call.
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
    """Remove the files that an earlier process had condemned. Raises OSError."""
    for name in names:
        if name.endswith(CONDEMNED_SUFFIX):
            remove_if_there(files, directory / name)
