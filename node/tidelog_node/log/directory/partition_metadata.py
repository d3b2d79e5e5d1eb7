"""``partition.metadata``: the topic id of a partition's folder, in Kafka's text format (KIP-516)."""

from __future__ import annotations

import base64
import binascii
import logging
from pathlib import Path

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import TopicId, topic_id_text
from tidelog_node.log.disk.files import Files, read_file, replace_file, storage_errors

logger = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"
_ID_SIZE = 16


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
