"""Which topics a consumer subscribes to: names, and patterns against the topics that there are, without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.topic_names import validate_topic_name

_PATTERN = "^"
"""What begins with it is a regular expression, which a name is searched for, as in librdkafka."""


class Subscription:
    """An immutable subscription; ``names`` and ``patterns`` are what the application gave."""

    def __init__(self, topics: Iterable[str], ignored: Iterable[str] = ()) -> None:
        """Take names, patterns (``^...``) and the patterns of topics that are to be ``ignored``.

        Raises:
            TidelogError: _INVALID_ARG: nothing to subscribe to, something twice, or no regular expression.
                INVALID_TOPIC_EXCEPTION: a topic cannot have the name.
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
        """One expression that matches whole names as all patterns match parts of them; empty without patterns."""
        return f".*(?:{'|'.join(self.patterns)}).*" if self.patterns else ""

    def resolve(self, existing: Iterable[str]) -> frozenset[str]:
        """Return the names, and which of the ``existing`` topics the patterns find."""
        found = (name for name in existing if any(pattern.search(name) for pattern in self._wanted))
        return frozenset(name for name in (*self.names, *found) if not any(i.search(name) for i in self._ignored))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise _invalid(f'"{pattern}" is no regular expression: {error}') from error


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode._INVALID_ARG, text)
