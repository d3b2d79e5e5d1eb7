"""The folder of a controller, which holds the keys of users: nobody but its owner may read it, whatever the umask."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)
FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_OTHERS = 0o077


def make_private_folder(path: Path) -> None:
    """Create a folder if it is missing, and take the access of others to it and to the files in it.

    Log a warning if they belong to another user, who may have given the access.

    Raises:
        OSError: The folder cannot be created.
    """
    path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    for each, mode in ((path, _FOLDER_MODE), *((file, FILE_MODE) for file in path.iterdir() if file.is_file())):
        try:
            if stat.S_IMODE(each.stat().st_mode) & _OTHERS:
                os.chmod(each, mode)
        except FileNotFoundError:
            # A snapshot that was replaced meanwhile.
            continue
        except OSError as error:
            logger.warning("%s contains keys of users, and others have access to it: %s", each, error.strerror)


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    """Keep others out of every file that this process creates meanwhile.

    RocksDB creates files at any time, with modes that only the umask determines.
    """
    former = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(former)
