"""Lists of names and regular expressions that include and exclude topics, groups and settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidelog_foundation.dataclass import dataclass


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise ValueError for the first invalid regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


@dataclass(frozen=True, slots=True)
class NameFilter:
    """The names that one of ``included`` matches as a whole, and none of ``excluded``."""

    included: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Return whether the filter passes a name. Exclusions prevail."""
        return _matches_any(self.included, name) and not _matches_any(self.excluded, name)


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)
