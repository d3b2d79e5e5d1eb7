"""The folder of a partition in a log directory: its names, its topic id, and its creation.

Its name is the replica's own, or the one after a deletion or a move. No name is longer than the 255 bytes that file
systems allow, though a topic's name alone may have 249. A longer name keeps only the beginning of the topic's name, as
in Kafka (``LocalLog.logDeleteDirName``). A folder that must be removed, or left to the operator, does not need the
rest. The copy that a move makes becomes a replica, so its name must lead back to the partition: a ``~``, which no topic
name contains, marks a shortened name, and the file :data:`PARTITION_NAME` in the folder holds the full one. Kafka's
moves of such topics fail.

``partition.metadata`` has the topic id, in Kafka's text format (KIP-516).

The folder of a new partition is created before its first record: the folder, its log file and its topic id. Creating it
takes several system calls and flushes, which would delay the creation of a topic with thousands of partitions, and a
partition without records has nothing to lose. Kafka writes ``partition.metadata`` at the first append or in the
background, whichever comes first; here the whole folder may be created then. After a crash, a folder that is missing or
has no topic id had no records.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import TopicId, topic_id_text
from tidelog_node.log.disk.files import Files, read_file, replace_file, storage_errors

logger = logging.getLogger(__name__)

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
MOVED_SUFFIX = "-moved"
PARTITION_NAME = "partition-name"
"""The file in a copy's folder with the full name ``topic-N``, for folder names that are shortened."""
_MAX_NAME_BYTES = 255
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")
_COPY = re.compile(r"([a-zA-Z0-9._-]{1,249})(~?)-(\d+)\.[0-9a-f]{32}(-future|-moved)")
PARTITION_METADATA = "partition.metadata"
_ID_SIZE = 16

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


def read_topic_id(files: Files, directory: Path) -> TopicId | None:
    """Return the topic id of a partition's folder; None if the file is missing or damaged.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    path = directory / PARTITION_METADATA
    with storage_errors("Reading", path):
        data = read_file(files, path)
    if data is None:
        return None
    try:
        return _parse(data)
    except ValueError as cause:
        logger.warning("The file %s is damaged and is ignored: %s", path, cause)
        return None


def write_topic_id(files: Files, directory: Path, topic_id: TopicId) -> None:
    """Write the file atomically and durably.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    path = directory / PARTITION_METADATA
    with storage_errors("Writing", path):
        replace_file(files, path, f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode())


def ensure_topic_id(files: Files, directory: Path, topic_id: TopicId) -> None:
    """Check that a folder belongs to a topic; rewrite a file that is missing or damaged.

    Raises:
        TidelogError: INCONSISTENT_TOPIC_ID if the folder belongs to an earlier topic of that name; KAFKA_STORAGE_ERROR.
    """
    found = read_topic_id(files, directory)
    if found is None:
        write_topic_id(files, directory, topic_id)
    elif found != topic_id:
        raise error_for(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{directory} holds topic id {topic_id_text(found)}, expected {topic_id_text(topic_id)}",
        )


def _parse(data: bytes) -> TopicId:
    fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError(f"expected version 0 and a topic_id, found {data[:60]!r}")
    try:
        topic_id = base64.b64decode(fields["topic_id"].strip() + "==", altchars=b"-_", validate=True)
    except binascii.Error as cause:
        raise ValueError(f"the topic_id is not base64: {cause}") from cause
    if len(topic_id) != _ID_SIZE:
        raise ValueError(f"the topic_id has {len(topic_id)} bytes, expected {_ID_SIZE}")
    return TopicId(topic_id)


class NewFolder:
    """The deferred creation of one folder; any thread may call :meth:`create`, as does the log's first append."""

    __slots__ = ("_directory", "_files", "_is_done", "_lock", "_topic_id")

    def __init__(self, files: Files, directory: Path, topic_id: TopicId) -> None:
        self._files = files
        self._directory = directory
        self._topic_id = topic_id
        self._lock = threading.Lock()
        self._is_done = False

    def create(self, create_log_file: Callable[[], None]) -> None:
        """Create the folder with its files, durably; do nothing if that is done or cancelled.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the caller may try again.
        """
        with self._lock:
            if self._is_done:
                return
            with storage_errors("Creating", self._directory):
                self._files.mkdir(self._directory)
                create_log_file()
            write_topic_id(self._files, self._directory, self._topic_id)
            with storage_errors("Flushing", self._directory.parent):
                self._files.fsync_directory(self._directory.parent)
            self._is_done = True

    def cancel(self) -> None:
        """Cancel the creation: the log closes or is deleted without a record. Wait for a running :meth:`create`."""
        with self._lock:
            self._is_done = True
