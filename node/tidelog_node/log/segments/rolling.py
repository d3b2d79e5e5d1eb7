"""When a segment has grown for long enough (Kafka's LogSegment.shouldRoll), without I/O.

Time is told by the records where they have timestamps: a segment ends when the next batch is later than its first one
by more than ``segment.ms``. Where the first batch has none, it ends that long after it was created. With compaction
``max.compaction.lag.ms`` is a limit too, since only what is sealed can be compacted (KIP-354). The jitter, a part of
``segment.jitter.ms`` that is different for every segment, keeps partitions that began together from rolling together.
"""

from __future__ import annotations

import zlib

from tidelog_node.log.config import LogConfig


def roll_jitter_ms(config: LogConfig, name: str, base_offset: int) -> int:
    """Return how much earlier the segment of a partition ends: always the same, below ``segment.jitter.ms``."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{name}/{base_offset}".encode()) % limit if limit else 0


def lifetime_ms(config: LogConfig, jitter_ms: int = 0) -> int:
    """Return how long a segment may grow."""
    longest = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
    return longest - jitter_ms


def waited_ms(first_timestamp_ms: int, created_ms: int, batch_timestamp_ms: int, now_ms: int) -> int:
    """Return how long a segment has grown when a batch with that largest timestamp comes (timeWaitedForRoll).

    A timestamp of -1 means none.
    """
    return batch_timestamp_ms - first_timestamp_ms if first_timestamp_ms >= 0 else now_ms - created_ms
