"""The offsets that a query reads: resolving, limiting and splitting. Pure: no I/O, no state.

Rules:

- offsets are per (topic, partition), start inclusive, end exclusive; -2 means earliest, -1 latest;
- latest is the last stable offset, or the high watermark for readers of uncommitted records;
- a partition that appears while a stream runs is read from offset 0, so that no record is missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.ids import TopicId

LATEST = -1
EARLIEST = -2
NO_TOPIC_ID: Final = TopicId(b"")
NO_IDS: Final[Mapping[str, TopicId]] = MappingProxyType({})

PartitionKey = tuple[str, int]
Offsets = dict[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start_offset, end_offset) of one partition, read by one Spark task.

    They are those of the topic with the id ``topic_id``; without an id, of any topic of that name.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: TopicId = NO_TOPIC_ID

    @property
    def size(self) -> int:
        """The number of offsets in the range; there may be fewer records."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"


def resolve_offsets(wanted: Mapping[PartitionKey, int], earliest: Offsets, latest: Offsets) -> Offsets:
    """Replace EARLIEST and LATEST with the offsets from the cluster."""
    words = {EARLIEST: earliest, LATEST: latest}
    return {key: words[value][key] if value in words else value for key, value in wanted.items()}


def match_timestamps(
    option: str, wanted: Mapping[PartitionKey, int], found: Offsets, latest: Offsets, takes_latest: bool
) -> Offsets:
    """Return the offsets that a search by timestamp has found, where -1 means that every record is older.

    Without a match the offset is the latest with ``takes_latest``. Retention and appends after the search are no loss.

    Raises:
        ConfigError: a partition has no match.
    """
    missing = sorted(key for key in wanted if found[key] < 0)
    if missing and not takes_latest:
        topic, partition = missing[0]
        raise ConfigError(
            f"{option}: {topic}-{partition} has no record with a timestamp of {wanted[topic, partition]} or later. "
            'Set startingOffsetsByTimestampStrategy to "latest" to start such partitions at their end'
        )
    return {key: min(found[key], latest[key]) if found[key] >= 0 else latest[key] for key in wanted}


def plan_ranges(start: Offsets, end: Offsets, ids: Mapping[str, TopicId] = NO_IDS) -> list[OffsetRange]:
    """Return the range of each partition with offsets to read; a partition that ``start`` lacks is read from 0."""
    ranges = (OffsetRange(*key, start.get(key, 0), end[key], ids.get(key[0], NO_TOPIC_ID)) for key in sorted(end))
    return [planned for planned in ranges if planned.size > 0]


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split large ranges into equal parts until none has more than ``max_records`` offsets and there are about
    ``min_partitions``; the order stays.
    """
    parts = [part for planned in ranges for part in _split(planned, -(-planned.size // (max_records or planned.size)))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(planned.size for planned in parts)
    return [
        part
        for planned in parts
        for part in _split(planned, min(planned.size, max(1, round(planned.size * min_partitions / total))))
    ]


def limit_offsets(start: Offsets, end: Offsets, max_rows: int) -> Offsets:
    """Return an end that is at most ``max_rows`` offsets after ``start`` in total.

    Each partition gets its share of the pending offsets, and at least one offset if the limit allows it, so that a
    large partition does not starve a small one. There is progress whenever offsets are pending.
    """
    pending = {key: max(0, end[key] - start.get(key, 0)) for key in sorted(end)}
    total = sum(pending.values())
    if total <= max_rows:
        return dict(end)
    by_size = sorted((key for key in pending if pending[key]), key=lambda key: -pending[key])
    granted = dict.fromkeys(pending, 0) | dict.fromkeys(by_size[:max_rows], 1)
    left = max_rows - sum(granted.values())
    waiting = total - sum(granted.values())
    for key in by_size:
        more = left * (pending[key] - granted[key]) // waiting
        granted[key] += more
    for key in by_size:
        more = min(max_rows - sum(granted.values()), pending[key] - granted[key])
        granted[key] += more
    return {key: start.get(key, 0) + granted[key] if pending[key] else end[key] for key in pending}


def _split(planned: OffsetRange, parts: int) -> list[OffsetRange]:
    cuts = [planned.start_offset + planned.size * i // parts for i in range(parts + 1)]
    return [replace(planned, start_offset=low, end_offset=high) for low, high in pairwise(cuts)]
