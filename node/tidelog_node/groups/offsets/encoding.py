"""Fast encoding of many offsets of one group, equal to :func:`tidelog_node.groups.records.encode` for each."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from tidelog_node.groups.offsets.committed import OffsetChange
from tidelog_node.groups.records import OffsetCommitKey, encode_key
from tidelog_node.shards.events import ShardRecord

_PARTITION = struct.Struct(">i")
_PART_BYTES = 128 * 1024
"""The size limit of the keys of one part. A batch of them is well below any sensible ``max.message.bytes``."""


def encode_offsets(group_id: str, changes: Iterable[OffsetChange]) -> list[ShardRecord]:
    """Return the records of these offsets in order.

    Raises:
        ValueError: A name exceeds 32767 bytes.
    """
    records: list[ShardRecord] = []
    known, prefix = None, b""
    for (topic, partition), value in changes:
        if topic != known:
            known, prefix = topic, encode_key(OffsetCommitKey(group_id, topic, 0))[: -_PARTITION.size]
        key = prefix + _PARTITION.pack(partition)
        records.append(ShardRecord(key, None if value is None else value.encode()))
    return records


def in_parts(group_id: str, changes: Sequence[OffsetChange]) -> Iterator[list[OffsetChange]]:
    """Yield deletions of offsets in parts that fit into one batch each, or one empty part if there are none."""
    part: list[OffsetChange] = []
    size, of_group = 0, len(group_id.encode())
    for change in changes:
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(change)
        size += of_group + len(change[0].topic.encode()) + 16
    yield part
