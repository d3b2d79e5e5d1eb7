"""Files of a directory that is shown at its future path while it still has another one.

A move opens the log that it makes at the path that the replica will have; until the move completes, the files are in a
folder with another name. Renaming that folder changes nothing in the open log.
"""

from __future__ import annotations

import threading
from pathlib import Path

from tidelog_node.log.disk.files import Files


class MovingFiles:
    """A wrapper of :class:`~tidelog_node.log.disk.files.Files` that shows at ``shown`` the files at ``actual``.

    Thread-safe: no operation on a path runs between a rename and the change of ``actual``.
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
        self.is_cached = files.is_cached
        self.read_ahead = files.read_ahead
        self.truncate = files.truncate
        self.allocate = files.allocate
        self.modified_ms = files.modified_ms
        self.set_modified_ms = files.set_modified_ms
        self.fsync = files.fsync

    def move_to(self, actual: Path) -> None:
        """Rename the directory; users still see it at ``shown``. Raises OSError, and nothing has changed."""
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
        """Flush the directory's entries; a rename of the moving directory waits for it."""
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
        """Create a directory and its parents."""
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
