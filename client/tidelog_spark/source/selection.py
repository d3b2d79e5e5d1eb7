"""The topics and partitions of a query: ``subscribe``, ``subscribePattern`` or ``assign``. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog_foundation.errors import ConfigError
from tidelog_spark.source.offsets import PartitionKey

_OPTIONS = ("subscribe", "subscribePattern", "assign")
_EXAMPLE = 'JSON such as {"topic":[0,1]}'


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by name, by a regular expression that the whole name matches, or partitions by number.

    ``option`` is the option that gave it, for errors.
    """

    option: str
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[PartitionKey] | None = None

    def has_topic(self, name: str) -> bool:
        """Return whether the selection covers a topic of this name."""
        return name in self.names if self.pattern is None else re.fullmatch(self.pattern, name) is not None

    def choose_topics(self, existing: Mapping[str, bool]) -> tuple[str, ...]:
        """Return the topics to read, given whether each existing topic is internal.

        A pattern leaves out internal topics. Names are returned whether or not the topics exist.
        """
        if self.pattern is None:
            return self.names
        return tuple(sorted(name for name, is_internal in existing.items() if not is_internal and self.has_topic(name)))

    def choose_partitions(self, topic: str, existing: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the partitions of a topic to read, and those that are wanted but do not exist."""
        indexes = sorted(existing)
        if self.assigned is None:
            return indexes, []
        wanted = sorted(index for name, index in self.assigned if name == topic)
        return [index for index in wanted if index in indexes], [index for index in wanted if index not in indexes]


def select_topics(subscribe: tuple[str, ...], pattern: str | None, assign: str | None) -> TopicSelection:
    """Return the selection of the options, of which exactly one is given.

    Raises:
        ConfigError: none or several are given, or the value is not valid.
    """
    given = [name for name, value in zip(_OPTIONS, (subscribe, pattern, assign), strict=True) if value]
    if len(given) != 1:
        found = f"not {' and '.join(given)}" if given else "none is given"
        raise ConfigError(f"exactly one of the options {', '.join(_OPTIONS)} must be given, {found}")
    if subscribe:
        return TopicSelection("subscribe", tuple(dict.fromkeys(subscribe)))
    return _parse_pattern(pattern) if pattern else _parse_assign(assign or "")


def parse_object(option: str, text: str, example: str) -> dict[str, object]:
    """Return the JSON object that an option has, which is not empty.

    Raises:
        ConfigError: it is something else. The text names ``example``.
    """
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"invalid {option} {text!r}: {error}; must be {example}") from error
    if not isinstance(parsed, dict) or not parsed:
        raise ConfigError(f"invalid {option} {json.dumps(parsed)}: must be {example}")
    return parsed


def _parse_pattern(pattern: str) -> TopicSelection:
    text = pattern.strip()
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"invalid subscribePattern {pattern!r}: {error}; must be a regular expression") from error
    return TopicSelection("subscribePattern", pattern=text)


def _parse_assign(text: str) -> TopicSelection:
    tree = parse_object("assign", text, _EXAMPLE)
    partitions = frozenset((topic, index) for topic, indexes in tree.items() for index in _indexes(topic, indexes))
    return TopicSelection("assign", tuple(sorted(tree)), assigned=partitions)


def _indexes(topic: str, indexes: object) -> list[int]:
    if not isinstance(indexes, list) or not indexes:
        raise ConfigError(f'invalid assign for "{topic}": must be a list of partitions such as [0,1]')
    for index in indexes:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < 1 << 31:
            raise ConfigError(f'invalid assign: {json.dumps(index)} is not a partition of "{topic}"')
    return indexes
