"""The offsets that a query reads: resolving, limiting and splitting. Pure: no I/O, no state.

Rules:

- offsets are per (topic, partition), start inclusive, end exclusive; -2 means earliest, -1 latest;
- latest is the last stable offset, or the high watermark for readers of uncommitted records;
- offsets that the log no longer has, or does not have yet, are data loss: an error, or skipped with
  ``failOnDataLoss=false``;
- a partition that appears while a stream runs is read from offset 0, so that no record is missed;
- the JSON of offsets has a fixed order, because Spark compares the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

LATEST = -1
EARLIEST = -2

PartitionKey = tuple[str, int]
Offsets = dict[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start_offset, end_offset) of one partition, read by one Spark task."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

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


def check_within_log(
    option: str, offsets: Offsets, earliest: Offsets, latest: Offsets, fail_on_data_loss: bool
) -> Offsets:
    """Return ``offsets`` if each is between the log's start and its end.

    Raises:
        TidelogError: OFFSET_OUT_OF_RANGE, one is not; without ``fail_on_data_loss`` it is moved into the range.
    """
    for key, offset in offsets.items():
        if not earliest[key] <= offset <= latest[key]:
            text = f"{option} of {key[0]}-{key[1]} is {offset}, the partition has [{earliest[key]}, {latest[key]})"
            report_data_loss(text, fail_on_data_loss)
    return {key: min(max(offset, earliest[key]), latest[key]) for key, offset in offsets.items()}


def plan_ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the range of each partition with offsets to read; a partition that ``start`` lacks is read from 0."""
    ranges = (OffsetRange(*key, start.get(key, 0), end[key]) for key in sorted(end))
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


def advance_offsets(start: Offsets, latest: Offsets, fail_on_data_loss: bool) -> Offsets:
    """Return the end of a stream's next micro-batch before limits: the latest offsets, checked against ``start``.

    Raises:
        TidelogError: OFFSET_OUT_OF_RANGE, a partition is gone or has shrunk. Without ``fail_on_data_loss``, a partition
            that is gone keeps its offset, and one that has shrunk continues from its new end.
    """
    for key, offset in start.items():
        if key not in latest:
            report_data_loss(f"partition {key[0]}-{key[1]} is gone; it was read up to {offset}", fail_on_data_loss)
        elif latest[key] < offset:
            text = f"partition {key[0]}-{key[1]} ends at {latest[key]}, but it was read up to {offset} before"
            report_data_loss(text, fail_on_data_loss)
    return {**start, **latest}


def report_data_loss(text: str, fail_on_data_loss: bool) -> None:
    """Raise OFFSET_OUT_OF_RANGE with advice, unless data loss is allowed."""
    if fail_on_data_loss:
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{text}. Records may have been deleted by retention, or the topic was deleted and created again. "
            'Set the option failOnDataLoss to "false" to skip what is missing',
        )


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the form in Spark's checkpoints: topics and partitions in ascending order."""
    tree: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        tree.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return tree


def offsets_from_json(tree: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Parse the form of `offsets_to_json`."""
    return {(topic, int(index)): offset for topic, parts in tree.items() for index, offset in parts.items()}


def _split(planned: OffsetRange, parts: int) -> list[OffsetRange]:
    cuts = [planned.start_offset + planned.size * i // parts for i in range(parts + 1)]
    return [OffsetRange(planned.topic, planned.partition, low, high) for low, high in pairwise(cuts)]
