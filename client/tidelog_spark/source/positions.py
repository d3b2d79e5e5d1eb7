"""The positions of a query's start and end, as its options give them: words, offsets or timestamps. Pure.

A timestamp for all partitions prevails over timestamps by partition, and these over offsets, as in Spark's Kafka
source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidelog_foundation.errors import ConfigError
from tidelog_spark.source.offsets import EARLIEST, LATEST, Offsets, PartitionKey
from tidelog_spark.source.selection import TopicSelection, parse_object

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS = 'earliest, latest or JSON such as {"topic":{"0":23,"1":-2}}'
_TIMESTAMPS = 'JSON such as {"topic":{"0":1704067200000}}'


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """One end of a read: the same for every partition, or a position for each.

    ``option`` is the option that gave it, for errors. A position is an offset, EARLIEST, LATEST, or with
    ``is_timestamp`` a time in milliseconds. If ``default`` is None, ``specific`` names every partition. For a timestamp
    that is later than all records, the bound is the latest offset with ``takes_latest``, and an error without.
    """

    default: int | None = None
    specific: Mapping[PartitionKey, int] = field(default_factory=dict)
    option: str = "startingOffsets"
    is_timestamp: bool = False
    takes_latest: bool = False

    def asks_for(self, word: int) -> bool:
        """Return whether any partition needs a lookup of EARLIEST or LATEST."""
        return not self.is_timestamp and (self.default == word or word in self.specific.values())

    def of(self, partitions: Iterable[PartitionKey]) -> Offsets:
        """Return a position for each of ``partitions``.

        Raises:
            ConfigError: the JSON does not name exactly these partitions.
        """
        wanted = sorted(partitions)
        if self.default is not None:
            return dict.fromkeys(wanted, self.default)
        if sorted(self.specific) != wanted:
            words = "" if self.is_timestamp else ", with -1 for latest and -2 for earliest"
            raise ConfigError(
                f"{self.option} must name every partition{words}: "
                f"it names {_names(self.specific)}, the topics have {_names(wanted)}"
            )
        return {key: self.specific[key] for key in wanted}


def parse_bound(option: str, text: str, topics: TopicSelection) -> OffsetBound:
    """Parse ``startingOffsets`` or ``endingOffsets``.

    Raises:
        ConfigError: it is neither a word nor valid JSON, or names a topic that is not subscribed.
    """
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return OffsetBound(word, option=option)
    return OffsetBound(specific=_parse_json(option, text, topics, _OFFSETS, EARLIEST), option=option)


def parse_timestamps(option: str, text: str, topics: TopicSelection, takes_latest: bool) -> OffsetBound:
    """Parse ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``.

    Raises:
        ConfigError: it is not valid JSON, or names a topic that is not subscribed.
    """
    specific = _parse_json(option, text, topics, _TIMESTAMPS, 0)
    return OffsetBound(specific=specific, option=option, is_timestamp=True, takes_latest=takes_latest)


def check_order(starting: OffsetBound, ending: OffsetBound) -> None:
    """Raise ConfigError if a start is after its end; the words and bounds of different kinds cannot be compared."""
    if starting.is_timestamp != ending.is_timestamp:
        return
    for key in sorted(starting.specific.keys() | ending.specific.keys()) or [("", -1)]:
        first, last = starting.specific.get(key, starting.default), ending.specific.get(key, ending.default)
        if first is not None and last is not None and first > last >= 0:
            place = f" of {key[0]}-{key[1]}" if key[0] else ""
            raise ConfigError(f"{starting.option}{place} is {first}, which is after {ending.option}, {last}")


def _parse_json(option: str, text: str, topics: TopicSelection, example: str, minimum: int) -> Offsets:
    parsed = parse_object(option, text, example)
    specific = _parse_tree(option, parsed, minimum)
    unknown = sorted(topic for topic in parsed if not topics.has_topic(topic))
    if unknown:
        raise ConfigError(f"{option} names {', '.join(unknown)}, which the option {topics.option} does not")
    return specific


def _parse_tree(option: str, tree: Mapping[str, object], minimum: int) -> Offsets:
    positions: Offsets = {}
    for topic, partitions in tree.items():
        if not isinstance(partitions, dict) or not partitions:
            raise ConfigError(f'invalid {option} for "{topic}": must be an object such as {{"0":23,"1":42}}')
        for index, position in partitions.items():
            positions[topic, _parse_index(option, topic, index)] = _parse_position(
                option, f"{topic}-{index}", position, minimum
            )
    return positions


def _parse_index(option: str, topic: str, index: str) -> int:
    if not (index.isascii() and index.isdecimal()):
        raise ConfigError(f'invalid {option}: "{index}" is not a partition of "{topic}"')
    return int(index)


def _parse_position(option: str, name: str, position: object, minimum: int) -> int:
    if isinstance(position, bool) or not isinstance(position, int) or not minimum <= position < 1 << 63:
        kind, limit = ("a timestamp", "milliseconds since 1970") if minimum == 0 else ("an offset", "a whole number, ")
        words = "" if minimum == 0 else "-1 for latest or -2 for earliest"
        raise ConfigError(f"invalid {option}: {json.dumps(position)} is not {kind} of {name}; must be {limit}{words}")
    return position


def _names(keys: Iterable[PartitionKey]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys)) or "none"
