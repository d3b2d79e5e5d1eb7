"""A disk on which one directory is shown where it will be, while it is still somewhere else.

A log that a move is making is opened at the path that it will have as the replica, and its files are in a folder with
another name until the move is done. When that folder is renamed nothing in the open log changes.
"""

from __future__ import annotations

import threading
from pathlib import Path

from tidelog_node.log.disk.files import Files


class MovingFiles:
    """:class:`~tidelog_node.log.disk.files.Files` over another; ``shown`` is where users see what is at ``actual``.

    Any thread: no operation on a path comes between a rename and its taking effect here.
    """

    def __init__(self, files: Files, shown: Path, actual: Path) -> None:
        self.shown = shown
        self.actual = actual
        self._files = files
        self._renaming = threading.Lock()
        self.close = files.close
        self.size = files.size
        self.pwrite = files.pwrite
        self.pwritev = files.pwritev
        self.pread = files.pread
        self.readinto = files.readinto
        self.truncate = files.truncate
        self.allocate = files.allocate
        self.modified_ms = files.modified_ms
        self.set_modified_ms = files.set_modified_ms
        self.fsync = files.fsync

    def move_to(self, actual: Path) -> None:
        """Rename the directory; it is shown where it was. Raises OSError, and nothing has changed."""
        with self._renaming:
            self._files.rename(self.actual, actual)
            self.actual = actual

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing."""
        with self._renaming:
            return self._files.open(self._at(path), create=create)

    def map(self, path: Path) -> memoryview:
        """Map a file for reading."""
        with self._renaming:
            return self._files.map(self._at(path))

    def fsync_directory(self, path: Path) -> None:
        """Flush the directory's entries; the rename of what is moving waits for it."""
        with self._renaming:
            self._files.fsync_directory(self._at(path))

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing a file at the target."""
        with self._renaming:
            self._files.rename(self._at(source), self._at(target))

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory."""
        with self._renaming:
            return self._files.listdir(self._at(path))

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with self._renaming:
            self._files.remove(self._at(path))

    def mkdir(self, path: Path) -> None:
        """Create a directory and those above it."""
        with self._renaming:
            self._files.mkdir(self._at(path))

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        with self._renaming:
            self._files.rmdir(self._at(path))

    def lock(self, path: Path) -> int:
        """Lock a file."""
        return self._files.lock(self._at(path))

    def _at(self, path: Path) -> Path:
        if self.actual == self.shown or not path.is_relative_to(self.shown):
            return path
        return self.actual / path.relative_to(self.shown)
