"""What an error of the operating system means for a log directory."""

from __future__ import annotations

import errno

from tidelog.errors import ErrorCode, TidelogError

_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_out_of_space(error: TidelogError) -> bool:
    """Return whether a disk refused because it is full, which ends when there is space again."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _OUT_OF_SPACE


def is_disk_failure(error: TidelogError) -> bool:
    """Return whether an error is the disk's own, after which its directory must not be used any more.

    It is neither a full disk nor a process that has too many files open; nor an error without a cause, such as that of
    a log that was closed.
    """
    cause = error.__cause__
    if error.code is not ErrorCode.KAFKA_STORAGE_ERROR or not isinstance(cause, OSError):
        return False
    return cause.errno not in (*_OUT_OF_SPACE, *_OUT_OF_RESOURCES)
