"""What an error of the operating system means: for a log directory, for one replica, or for neither.

Kafka takes a log directory offline with any IOException. Here only the errors of the disk itself do that: what one
replica's files, or the process, cannot do must not take away the other replicas of the directory.
"""

from __future__ import annotations

import enum
import errno

from tidelog_foundation.errors import ErrorCode, TidelogError


class Fault(enum.Enum):
    """Of what a disk operation's error is.

    - ``DISK``: the device or its file system fails; the directory must not be used any more.
    - ``FULL``: no space; ends when there is space again.
    - ``PROCESS``: no file handles or memory; the request is refused, and the next one may be served.
    - ``REPLICA``: anything else, such as a file that is gone, a name that is too long or a right that is missing; the
      replica goes offline alone, and is tried again.
    """

    DISK = "disk"
    FULL = "full"
    PROCESS = "process"
    REPLICA = "replica"


def _numbers(*names: str) -> frozenset[int]:
    """Return the numbers of those errors that this operating system has."""
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


_FAULTS = {
    Fault.DISK: _numbers(
        "EIO",
        "EROFS",
        "ENXIO",
        "ENODEV",
        "ENOMEDIUM",
        "EMEDIUMTYPE",
        # Damage that the file system has found: ext4 and XFS say EUCLEAN, for a checksum EBADMSG.
        "EUCLEAN",
        "EBADMSG",
        # A file system that was shut down, or that a network or a program serves that is gone.
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
    """Return of what an error is; None of one that no disk operation caused, as of a log that was closed."""
    cause = error.__cause__
    if error.code is not ErrorCode.KAFKA_STORAGE_ERROR or not isinstance(cause, OSError):
        return None
    return next((fault for fault, numbers in _FAULTS.items() if cause.errno in numbers), Fault.REPLICA)


def is_out_of_space(error: TidelogError) -> bool:
    """Return whether a disk refused because it is full."""
    return fault_of(error) is Fault.FULL


def is_disk_failure(error: TidelogError) -> bool:
    """Return whether a replica's files fail because the disk does, after which no replica of it can be used."""
    return fault_of(error) is Fault.DISK


def is_directory_failure(error: TidelogError) -> bool:
    """Return whether an error of the directory's own files, such as its checkpoints, takes it offline.

    They have no replica to go offline in the directory's place, so all but what passes does.
    """
    return fault_of(error) in (Fault.DISK, Fault.REPLICA)
