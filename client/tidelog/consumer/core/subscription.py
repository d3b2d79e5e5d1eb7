"""A consumer's subscription: topic names, and patterns resolved against the existing topics, without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.topic_names import validate_topic_name

_PATTERN = "^"
"""The prefix of a regular expression that is searched for in topic names, as in librdkafka."""


class Subscription:
    """An immutable subscription; ``names`` and ``patterns`` come from the application."""

    def __init__(self, topics: Iterable[str], ignored: Iterable[str] = ()) -> None:
        """Take names, patterns (``^...``) and the patterns of ``ignored`` topics.

        Raises:
            TidelogError: _INVALID_ARG: the subscription is empty, has a duplicate or an invalid regular expression.
                INVALID_TOPIC_EXCEPTION: a topic name is invalid.
        """
        given = list(topics)
        if not given or len(set(given)) != len(given):
            raise _invalid(f"a subscription must have at least one topic, and each once, not {given}")
        self.names = frozenset(topic for topic in given if not topic.startswith(_PATTERN))
        self.patterns = tuple(topic for topic in given if topic.startswith(_PATTERN))
        for name in self.names:
            validate_topic_name(name)
        self._wanted = [_compiled(pattern) for pattern in self.patterns]
        self._ignored = [re.compile(pattern) for pattern in ignored]

    @property
    def pattern(self) -> str:
        """One expression that matches the whole names found by any pattern; empty without patterns."""
        return f".*(?:{'|'.join(self.patterns)}).*" if self.patterns else ""

    def resolve(self, existing: Iterable[str]) -> frozenset[str]:
        """Return the names, and the ``existing`` topics that match the patterns."""
        found = (name for name in existing if any(pattern.search(name) for pattern in self._wanted))
        return frozenset(name for name in (*self.names, *found) if not any(i.search(name) for i in self._ignored))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise _invalid(f'"{pattern}" is not a valid regular expression: {error}') from error


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode._INVALID_ARG, text)
