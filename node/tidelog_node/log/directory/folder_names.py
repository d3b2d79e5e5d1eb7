"""Names of the folders in a log directory: the replica's own, and its names after a deletion or a move.

No name is longer than the 255 bytes that file systems allow, though a topic's name alone may have 249. A longer name
keeps only the beginning of the topic's name, as in Kafka (``LocalLog.logDeleteDirName``). A folder that is to be
removed, or left to the operator, does not need the rest. The copy that a move makes becomes a replica, so its name must
lead back to the partition: a ``~``, which no topic name contains, marks a shortened name, and the file
:data:`PARTITION_NAME` in the folder holds the full one. Kafka's moves of such topics fail.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
MOVED_SUFFIX = "-moved"
PARTITION_NAME = "partition-name"
"""The file in a copy's folder with the full name ``topic-N``, for folder names that are shortened."""
_MAX_NAME_BYTES = 255
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")
_COPY = re.compile(r"([a-zA-Z0-9._-]{1,249})(~?)-(\d+)\.[0-9a-f]{32}(-future|-moved)")

PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CopyName:
    """The parsed name of a copy's folder; with ``is_shortened``, the key's topic is only a prefix."""

    key: PartitionKey
    is_shortened: bool
    is_moved: bool


def partition_folder(topic: str, partition: int) -> str:
    """Return the name of a replica's folder."""
    return f"{topic}-{partition}"


def parse_partition_folder(name: str) -> PartitionKey | None:
    """Return the partition of a replica's folder; None if the name is not a replica's."""
    match = _PARTITION.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def suffixed_folder(name: str, suffix: str) -> str:
    """Return a new name for the folder of a replica or copy that is deleted or becomes stray."""
    rest = f".{uuid.uuid4().hex}{suffix}"
    key = parse_partition_folder(name)
    if key is not None:
        name, rest = key[0], f"-{key[1]}{rest}"
    return name[: _MAX_NAME_BYTES - len(rest)] + rest


def copy_folder(key: PartitionKey) -> str:
    """Return a new folder name for the copy that a move makes."""
    topic, rest = key[0], f"-{key[1]}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"
    room = _MAX_NAME_BYTES - len(rest)
    return topic + rest if len(topic) <= room else f"{topic[: room - 1]}~{rest}"


def moved_folder(copy: str) -> str:
    """Return the folder name of a copy that takes the replica's place."""
    return copy.removesuffix(FUTURE_SUFFIX) + MOVED_SUFFIX


def parse_copy_folder(name: str) -> CopyName | None:
    """Return the parsed name of a copy's folder; None if the name is not a copy's."""
    match = _COPY.fullmatch(name)
    if match is None:
        return None
    return CopyName((match[1], int(match[3])), bool(match[2]), match[4] == MOVED_SUFFIX)
