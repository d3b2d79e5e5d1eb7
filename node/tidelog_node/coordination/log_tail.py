"""The part of a shard's log that its view lacks: the offset to resume from, and the records."""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterator

from tidelog_foundation.records import ControlType, iter_headers, read_control, read_records
from tidelog_node.coordination.shard_contents import ShardContents
from tidelog_node.coordination.view_layout import ViewPosition
from tidelog_node.log import PartitionLog
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.store import owner_of

logger = logging.getLogger(__name__)

_SHARE_OF_RETENTION = 2


def offset_to_resume(log: PartitionLog, position: ViewPosition | None, end_offset: int, now_ms: int) -> int | None:
    """Return the offset from which to complete a view up to ``end_offset``, or None if the view does not fit the log.

    It fits if the log contains the last applied record in the same leader epoch (KIP-101), which is not the case after
    an unclean election. A tombstone stays in the log for ``delete.retention.ms``, so that a reader that begins in time
    sees it. A view older than half of that may have missed one, unless the log has nothing new for it.
    """
    if position is None or not log.log_start_offset <= position.offset <= end_offset:
        return None
    if position.offset > 0:
        epoch, epoch_end = log.end_offset_for_epoch(position.leader_epoch)
        if epoch != position.leader_epoch or epoch_end < position.offset:
            return None
    age_ms = abs(now_ms - position.written_ms)
    if position.offset < end_offset and age_ms > log.config.delete_retention_ms // _SHARE_OF_RETENTION:
        return None
    return position.offset


def epoch_before(log: PartitionLog, offset: int) -> int:
    """Return the leader epoch of the record before ``offset``, -1 if unknown."""
    entries = log.epoch_entries
    found = bisect.bisect_left(entries, offset, key=lambda entry: entry.start_offset)
    return entries[found - 1].epoch if found else -1


def apply_batches(contents: ShardContents, batches: bytes, now_ms: int) -> int:
    """Apply whole batches to a shard, and return the offset after the last one.

    Raises:
        TidelogError: CORRUPT_MESSAGE; the errors of the view.
    """
    records: list[ShardRecord] = []
    last: ViewPosition | None = None
    for position, header in iter_headers(batches):
        after = ViewPosition(header.next_offset, header.partition_leader_epoch, now_ms)
        if not header.is_transactional:
            records.extend(_of_batch(batches, position))
            last = after
            continue
        if last is not None:
            contents.apply(records, last)
            records, last = [], None
        if not header.is_control:
            contents.add(header.producer_id, header.base_offset, _of_batch(batches, position), after)
            continue
        marker = read_control(batches, position)
        if marker is not None:
            contents.end(header.producer_id, after, committed=marker.kind is ControlType.COMMIT)
        else:
            contents.apply((), after)
    if last is not None:
        contents.apply(records, last)
    return contents.last.offset


def _of_batch(batches: bytes, position: int) -> Iterator[ShardRecord]:
    for record in read_records(batches, position):
        if record.key is None:
            logger.warning("A record of an internal topic, at offset %d, has no key", record.offset)
        elif _has_owner(record.key):
            yield ShardRecord(record.key, record.value)
        else:
            logger.warning("A record of an internal topic, at offset %d, has an unknown key", record.offset)


def _has_owner(key: bytes) -> bool:
    try:
        owner_of(key)
    except ValueError:
        return False
    return True
