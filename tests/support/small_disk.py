"""A real file system of a few megabytes: ext4 in a file, mounted through a loop device."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

_KEEPER = """
set -e
outer=${2%/*}
mount --bind "$outer" "$outer"
mount --make-shared "$outer"
trap 'umount -l "$outer" 2> /dev/null' EXIT
mount -o loop "$1" "$2"
trap '' INT TERM HUP
echo mounted
cat > /dev/null
umount "$2" 2> /dev/null || umount -l "$2" 2> /dev/null || true
"""
"""Mount an image on the second argument until standard input ends.

The mount lies in a shared one: a process in a mount namespace of its own that came to be in the meantime, such as
``ip netns exec``, loses it together with this process. The file system would stay alive otherwise, in its state.
"""
_BALLAST = "ballast"
_BLOCK = 1024


class SmallDisk:
    """A context manager. ``path`` is the mount point.

    A separate process keeps the mount and ends it when this process closes the pipe between them or ends in any way, so
    that no mount outlives a test, even a killed one.
    """

    def __init__(self, directory: Path, size_mib: int) -> None:
        self.path = directory / "mounts" / "disk"
        self._image = directory / "disk.img"
        self._size = size_mib << 20
        self._keeper: subprocess.Popen[str] | None = None

    def __enter__(self) -> SmallDisk:
        """Create the file system and mount it."""
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(self._size)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(self._image)], check=True, capture_output=True)
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unmount the file system, at once or when its last user ends."""
        self._end_keeper()
        self._image.unlink()

    def mount(self) -> None:
        """Mount the file system after :meth:`unmount`.

        Raises:
            RuntimeError: ``mount`` failed, or another mount namespace still has the file system, read-only.
        """
        self._keeper = subprocess.Popen(
            ["sh", "-c", _KEEPER, "sh", str(self._image), str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if _stream(self._keeper.stdout).readline() != "mounted\n":
            raise RuntimeError(self._end_keeper() or "mount said nothing")
        try:
            (self.path / _BALLAST).touch()
        except OSError as error:
            raise RuntimeError(f"Another mount namespace still has the file system: {error}") from error

    def unmount(self, timeout_s: float = 10.0) -> None:
        """Unmount the file system. Further calls do nothing.

        A file system in use is never detached: it would stay alive, and :meth:`mount` would show it in its current
        state, for example read-only.

        Raises:
            RuntimeError: It is still in use after ``timeout_s``. The message names the users.
        """
        deadline_s = time.monotonic() + timeout_s
        while self._keeper is not None:
            ended = subprocess.run(["umount", str(self.path)], check=False, capture_output=True, text=True)
            if ended.returncode == 0:
                self._end_keeper()
            elif time.monotonic() >= deadline_s:
                raise RuntimeError(f"{ended.stderr.strip()} It is used by: {', '.join(_users(self.path)) or 'nobody'}")
            else:
                time.sleep(0.05)

    def make_read_only(self) -> None:
        """Make every write fail with EROFS, even through open files, as the kernel does after a disk error.

        Only :meth:`unmount` and :meth:`mount` end this state.
        """
        subprocess.run(["mount", "-o", "remount,abort", str(self.path)], check=True, capture_output=True)

    @property
    def free_bytes(self) -> int:
        """The number of writable bytes."""
        return shutil.disk_usage(self.path).free

    def fill(self, leave: int = 0) -> None:
        """Use all space except ``leave`` bytes, like files of another program."""
        handle = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            step = self.free_bytes
            while step >= _BLOCK and self.free_bytes > leave:
                step = min(step, self.free_bytes - leave)
                # The file's own block map uses some space, so the last step can be too large.
                try:
                    os.posix_fallocate(handle, os.fstat(handle).st_size, step)
                except OSError:
                    step //= 2
        finally:
            os.close(handle)

    def make_room(self) -> None:
        """Release the space that :meth:`fill` used."""
        (self.path / _BALLAST).unlink()

    def _end_keeper(self) -> str:
        keeper, self._keeper = self._keeper, None
        return "" if keeper is None else keeper.communicate()[1].strip()


def why_not() -> str | None:
    """Return the reason why this machine cannot mount a :class:`SmallDisk`, or None.

    It tries in a folder of its own.
    """
    if not sys.platform.startswith("linux"):
        return f"loop devices are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "only root can mount a file system"
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    return f"{', '.join(missing)} is not installed" if missing else None


def _users(path: Path) -> Iterator[str]:
    """Yield the processes that have a file below a path open, with the file."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            target = link.readlink()
            if target.is_relative_to(path):
                yield f"process {link.parts[2]} ({target})"


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
