"""Synchronous runs of a log's searches by timestamp, as a node runs them for batches that need no thread."""

from __future__ import annotations

from tidelog_node.log import PartitionLog, TimestampAndOffset, TimestampSearch


def find_by_timestamp(log: PartitionLog, timestamp_ms: int) -> TimestampAndOffset | None:
    """Return the first record, by offset, whose timestamp is at least ``timestamp_ms``."""
    return _result(log.search_timestamp(timestamp_ms))


def find_max_timestamp(log: PartitionLog) -> TimestampAndOffset | None:
    """Return the first record with the log's largest timestamp."""
    return _result(log.search_max_timestamp())


def _result(search: TimestampSearch) -> TimestampAndOffset | None:
    seen = None
    while True:
        try:
            look = search.send(seen)
        except StopIteration as end:
            found: TimestampAndOffset | None = end.value
            return found
        seen = look.find(None)
