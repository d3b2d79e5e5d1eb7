"""Names of the folders in a log directory: a replica's own, and those that it gets when it is deleted or moved.

No name is longer than the 255 bytes that file systems allow, though a topic's name alone may have 249. A name that
would be longer has only the beginning of the topic's name, as in Kafka (``LocalLog.logDeleteDirName``). Nobody needs
the rest of it in a folder that is to be removed or left to the operator. The copy that a move makes becomes a replica,
so its name must lead back to the partition: a shortened one says with a ``~``, which no topic has, that the file
:data:`PARTITION_NAME` in the folder has the whole name. Kafka's moves of such topics fail.
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
"""The file in the folder of a copy that has the name ``topic-N``, where the folder's has no room for it."""
_MAX_NAME_BYTES = 255
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")
_COPY = re.compile(r"([a-zA-Z0-9._-]{1,249})(~?)-(\d+)\.[0-9a-f]{32}(-future|-moved)")

PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CopyName:
    """What the name of a copy's folder says; of a shortened one the key's topic is only a beginning."""

    key: PartitionKey
    is_shortened: bool
    is_moved: bool


def partition_folder(topic: str, partition: int) -> str:
    """Return the name of a replica's folder."""
    return f"{topic}-{partition}"


def parse_partition_folder(name: str) -> PartitionKey | None:
    """Return the partition whose replica has this folder; None where the name is no replica's."""
    match = _PARTITION.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def aside_folder(name: str, suffix: str) -> str:
    """Return a new name for a replica's or a copy's folder that is deleted or set aside."""
    rest = f".{uuid.uuid4().hex}{suffix}"
    key = parse_partition_folder(name)
    if key is not None:
        name, rest = key[0], f"-{key[1]}{rest}"
    return name[: _MAX_NAME_BYTES - len(rest)] + rest


def copy_folder(key: PartitionKey) -> str:
    """Return a new name for the copy that a move makes."""
    topic, rest = key[0], f"-{key[1]}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"
    room = _MAX_NAME_BYTES - len(rest)
    return topic + rest if len(topic) <= room else f"{topic[: room - 1]}~{rest}"


def moved_folder(copy: str) -> str:
    """Return the name that the folder of a copy gets when it takes the replica's place."""
    return copy.removesuffix(FUTURE_SUFFIX) + MOVED_SUFFIX


def parse_copy_folder(name: str) -> CopyName | None:
    """Return what the name of a copy's folder says; None where the name is no copy's."""
    match = _COPY.fullmatch(name)
    if match is None:
        return None
    return CopyName((match[1], int(match[3])), bool(match[2]), match[4] == MOVED_SUFFIX)
