"""Files that are replaced as a whole: readers, and processes after a crash, see the old content or the new one."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> Path:
    """Write a file in place of the one at ``path``, if any, sync it to the disk, and return its path. Blocking.

    It has ``mode``, less the umask, from the start.

    Raises:
        OSError: The file cannot be written. The one at ``path`` is as before.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)
    return path


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
