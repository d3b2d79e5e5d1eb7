"""Decides by time when a segment is rolled (Kafka's LogSegment.shouldRoll). Pure: no I/O.

Time comes from the records if they have timestamps: a segment ends when the next batch is more than ``segment.ms``
later than its first one. If the first batch has no timestamp, the segment ends ``segment.ms`` after its creation. With
compaction, ``max.compaction.lag.ms`` is a limit too, because only sealed segments can be compacted (KIP-354). The
jitter, a part of ``segment.jitter.ms`` that differs for every segment, keeps partitions that started together from
rolling together.
"""

from __future__ import annotations

import zlib

from tidelog_node.log.config import LogConfig


def roll_jitter_ms(config: LogConfig, name: str, base_offset: int) -> int:
    """Return the jitter by which a segment ends earlier: constant for the segment, below ``segment.jitter.ms``."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{name}/{base_offset}".encode()) % limit if limit else 0


def lifetime_ms(config: LogConfig, jitter_ms: int = 0) -> int:
    """Return the maximum lifetime of a segment."""
    longest = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
    return longest - jitter_ms


def waited_ms(first_timestamp_ms: int, created_ms: int, batch_timestamp_ms: int, now_ms: int) -> int:
    """Return the age of a segment at the arrival of a batch with that largest timestamp (timeWaitedForRoll).

    A timestamp of -1 means none.
    """
    return batch_timestamp_ms - first_timestamp_ms if first_timestamp_ms >= 0 else now_ms - created_ms
