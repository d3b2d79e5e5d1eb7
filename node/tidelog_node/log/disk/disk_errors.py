"""Classifies errors of the operating system: they affect a log directory, one replica, or neither.

Kafka takes a log directory offline on any IOException. Tidelog does so only for errors of the disk itself: a problem of
one replica's files, or of the process, must not take the directory's other replicas offline.
"""

from __future__ import annotations

import enum
import errno

from tidelog_foundation.errors import ErrorCode, TidelogError


class Fault(enum.Enum):
    """The subject of a disk operation's error.

    - ``DISK``: the device or its file system failed; the directory must not be used any more.
    - ``FULL``: no space; ends when space is free again.
    - ``PROCESS``: no file handles or memory; the request fails, and the next one may succeed.
    - ``REPLICA``: anything else, such as a missing file, a name that is too long or a missing permission; only that
      replica goes offline, and is retried.
    """

    DISK = "disk"
    FULL = "full"
    PROCESS = "process"
    REPLICA = "replica"


def _numbers(*names: str) -> frozenset[int]:
    """Return the numbers of the errors that this operating system defines."""
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


_FAULTS = {
    Fault.DISK: _numbers(
        "EIO",
        "EROFS",
        "ENXIO",
        "ENODEV",
        "ENOMEDIUM",
        "EMEDIUMTYPE",
        # Damage that the file system detected: ext4 and XFS return EUCLEAN, and EBADMSG for a bad checksum.
        "EUCLEAN",
        "EBADMSG",
        # A file system that was shut down, or whose server or program is gone.
        "ESHUTDOWN",
        "ESTALE",
        "EREMOTEIO",
        "ENOTCONN",
        "ECONNABORTED",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "ETIMEDOUT",
        "ENOLINK",
        "ECOMM",
    ),
    Fault.FULL: _numbers("ENOSPC", "EDQUOT"),
    Fault.PROCESS: _numbers("EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EINTR"),
}


def fault_of(error: TidelogError) -> Fault | None:
    """Return the fault of an error; None if no disk operation caused it, for example on a closed log."""
    cause = error.__cause__
    if error.code is not ErrorCode.KAFKA_STORAGE_ERROR or not isinstance(cause, OSError):
        return None
    return next((fault for fault, numbers in _FAULTS.items() if cause.errno in numbers), Fault.REPLICA)


def is_disk_failure(error: TidelogError) -> bool:
    """Return whether the disk itself failed, which makes all of its replicas unusable."""
    return fault_of(error) is Fault.DISK


def is_directory_failure(error: TidelogError) -> bool:
    """Return whether an error of the directory's own files, such as its checkpoints, takes it offline.

    These files belong to no replica that could go offline instead, so every permanent error does.
    """
    return fault_of(error) in (Fault.DISK, Fault.REPLICA)
