"""A file system of a few hundred megabytes in memory, in which a node's log directory can become full."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from tidelog_chaos.isolation import run

_BALLAST = "ballast"
_STEP = 1 << 20
_BLOCK = 4096


class SmallDisk:
    """A mount at a folder in the run's own mount namespace, which disappears with the run."""

    def __init__(self, path: Path, size_mib: int) -> None:
        self.path = path
        self._size_mib = size_mib

    def mount(self) -> None:
        """Mount the empty disk; raise RuntimeError if the machine refuses."""
        self.path.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={self._size_mib}m", "tidelog-chaos", str(self.path))

    def unmount(self) -> None:
        """Copy the disk's content into the folder below, and unmount the disk. No process may still use it."""
        self.make_room()
        kept = self.path.with_name(f"{self.path.name}-kept")
        shutil.copytree(self.path, kept)
        run("umount", str(self.path))
        self.path.rmdir()
        kept.rename(self.path)

    def fill(self) -> None:
        """Take all remaining space."""
        handle = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            step = _STEP * self._size_mib
            while step >= _BLOCK:
                try:
                    os.posix_fallocate(handle, os.fstat(handle).st_size, step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
        finally:
            os.close(handle)

    def make_room(self) -> None:
        """Release the space that :meth:`fill` took."""
        (self.path / _BALLAST).unlink(missing_ok=True)
