"""The kinds of files in a log directory, by name, and the files and partitions at a path."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from pathlib import Path

from tidelog_foundation.dataclass import dataclass


class FileKind(enum.Enum):
    """The kind of a file. The value is its suffix or name."""

    SEGMENT = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    RECOVERY_POINTS = "recovery-point-offset-checkpoint"
    HIGH_WATERMARKS = "replication-offset-checkpoint"
    LOG_START_OFFSETS = "log-start-offset-checkpoint"
    CLEANER_OFFSETS = "cleaner-offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


OFFSET_CHECKPOINTS = (
    FileKind.RECOVERY_POINTS,
    FileKind.HIGH_WATERMARKS,
    FileKind.LOG_START_OFFSETS,
    FileKind.CLEANER_OFFSETS,
)

_NUMBERED = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?")
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<number>\d+)(\.[a-zA-Z0-9_-]+-future)?")
_NAMED = {kind.value: kind for kind in FileKind}


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a known kind. ``base_offset`` is the number in its name, or -1.

    ``is_live`` is False for a file that is about to be deleted or is not in place yet.
    """

    path: Path
    kind: FileKind
    base_offset: int
    is_live: bool


def log_file(path: Path) -> LogFile | None:
    """Return the kind and base offset that a path's name describes, or None for an unknown name."""
    if path.name in _NAMED and not path.name.startswith(".log"):
        return LogFile(path, _NAMED[path.name], -1, is_live=True)
    match = _NUMBERED.fullmatch(path.name)
    if match is None:
        return None
    return LogFile(path, _NAMED[match[2]], int(match[1]), is_live=match[3] is None)


def files_of(directory: Path) -> list[LogFile]:
    """Return the files of one directory that are in place, by name."""
    found = (log_file(path) for path in sorted(directory.iterdir()) if path.is_file())
    return [file for file in found if file is not None and file.is_live]


def is_partition(directory: Path) -> bool:
    """Return whether a directory contains a partition's segments or has a partition's name."""
    return any(directory.glob("[0-9]" * 20 + ".log")) or _PARTITION.fullmatch(directory.name) is not None


def partitions_of(log_dir: Path) -> list[Path]:
    """Return the partitions' directories in a log directory, without those that are being deleted."""
    return [path for path in sorted(log_dir.iterdir()) if path.is_dir() and _PARTITION.fullmatch(path.name)]


def topic_partition(directory: Path) -> tuple[str, int] | None:
    """Return the topic and partition of a directory's name, or None for other names and for future replicas."""
    match = _PARTITION.fullmatch(directory.name)
    return None if match is None or match[3] else (match["topic"], int(match["number"]))


def expand(path: Path) -> Iterator[LogFile]:
    """Yield the file, or all files of a directory and of the partitions in it.

    Raises:
        ValueError: The path is not a log file, or is a directory without any.
    """
    if path.is_file():
        file = log_file(path)
        if file is None:
            raise ValueError(f"{path} is not named like a file of a log")
        yield file
        return
    files = files_of(path)
    inner = [] if is_partition(path) else [file for partition in partitions_of(path) for file in files_of(partition)]
    if not files and not inner:
        raise ValueError(f"{path} holds no files of a log")
    yield from files
    yield from inner
