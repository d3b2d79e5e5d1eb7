"""The offsets that a query reads: parsing, resolving, limiting and splitting. Pure: no I/O, no state.

Rules:

- offsets are per (topic, partition), start inclusive, end exclusive; -2 means earliest, -1 latest;
- latest is the last stable offset, or the high watermark for readers of uncommitted records;
- offsets that the log no longer has, or does not have yet, are data loss: an error, or skipped with
  ``failOnDataLoss=false``;
- a partition that appears while a stream runs is read from offset 0, so that no record is missed;
- the JSON of offsets has a fixed order, because Spark compares the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

LATEST = -1
EARLIEST = -2
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_EXAMPLE = 'earliest, latest or JSON such as {"topic":{"0":23,"1":-2}}'

PartitionKey = tuple[str, int]
Offsets = dict[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """One end of a read: the same word for every partition, or an offset or a word for each.

    ``default`` is EARLIEST, LATEST or None; with None ``specific`` names every partition.
    """

    default: int | None = None
    specific: Mapping[PartitionKey, int] = field(default_factory=dict)

    def asks_for(self, word: int) -> bool:
        """Return whether any partition needs a lookup of EARLIEST or LATEST."""
        return self.default == word or word in self.specific.values()

    def of(self, partitions: Iterable[PartitionKey], option: str) -> Offsets:
        """Return an offset or a word for each of ``partitions``.

        Raises:
            ConfigError: the JSON does not name exactly these partitions.
        """
        wanted = sorted(partitions)
        if self.default is not None:
            return dict.fromkeys(wanted, self.default)
        if sorted(self.specific) != wanted:
            raise ConfigError(
                f"{option} must name every partition, with -1 for latest and -2 for earliest: "
                f"it names {_names(self.specific)}, the topics have {_names(wanted)}"
            )
        return {key: self.specific[key] for key in wanted}


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


def parse_bound(option: str, text: str, topics: Iterable[str]) -> OffsetBound:
    """Parse ``startingOffsets`` or ``endingOffsets``.

    Raises:
        ConfigError: it is neither a word nor valid JSON, or names a topic that is not subscribed.
    """
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return OffsetBound(default=word)
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"invalid {option} {text!r}: {error}; must be {_EXAMPLE}") from error
    specific = _parse_tree(option, parsed)
    unknown = sorted({topic for topic, _ in specific} - set(topics))
    if unknown:
        raise ConfigError(f"{option} names {', '.join(unknown)}, which the option subscribe does not")
    return OffsetBound(specific=specific)


def resolve_offsets(wanted: Mapping[PartitionKey, int], earliest: Offsets, latest: Offsets) -> Offsets:
    """Replace EARLIEST and LATEST with the offsets from the cluster."""
    words = {EARLIEST: earliest, LATEST: latest}
    return {key: words[value][key] if value in words else value for key, value in wanted.items()}


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


def split_ranges(ranges: Sequence[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Split large ranges into equal parts until there are about ``min_partitions``; the order stays."""
    if min_partitions is None or len(ranges) >= min_partitions:
        return list(ranges)
    total = sum(planned.size for planned in ranges)
    return [
        part
        for planned in ranges
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


def _parse_tree(option: str, parsed: object) -> Offsets:
    offsets: Offsets = {}
    if not isinstance(parsed, dict) or not parsed:
        raise ConfigError(f"invalid {option} {json.dumps(parsed)}: must be {_EXAMPLE}")
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict) or not partitions:
            raise ConfigError(f'invalid {option} for "{topic}": must be an object such as {{"0":23,"1":-2}}')
        for index, offset in partitions.items():
            offsets[topic, _parse_index(option, topic, index)] = _parse_offset(option, topic, index, offset)
    return offsets


def _parse_index(option: str, topic: str, index: str) -> int:
    if not (index.isascii() and index.isdecimal()):
        raise ConfigError(f'invalid {option}: "{index}" is not a partition of "{topic}"')
    return int(index)


def _parse_offset(option: str, topic: str, index: str, offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
        raise ConfigError(
            f"invalid {option}: {json.dumps(offset)} is not an offset of {topic}-{index}; "
            "must be a whole number, -1 for latest or -2 for earliest"
        )
    return offset


def _split(planned: OffsetRange, parts: int) -> list[OffsetRange]:
    cuts = [planned.start_offset + planned.size * i // parts for i in range(parts + 1)]
    return [OffsetRange(planned.topic, planned.partition, low, high) for low, high in pairwise(cuts)]


def _names(keys: Iterable[PartitionKey]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys)) or "none"
