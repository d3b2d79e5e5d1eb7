"""Patterns of Java's SimpleDateFormat, and those by which Spark parses the same text (pure)."""

from __future__ import annotations

import re

_LETTERS = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
_PARSED = frozenset("yMdHhKkmsSazZX")
_ZONES = frozenset("zZX")
_QUOTED = re.compile(r"'(?:[^']|'')*'")


def unknown_letter(pattern: str) -> str | None:
    """Return the first letter of a pattern that SimpleDateFormat does not know, or None."""
    return next((letter for letter in _plain(pattern) if letter.isalpha() and letter not in _LETTERS), None)


def unparsed_letter(pattern: str) -> str | None:
    """Return the first letter that stands for a part of a date which Spark does not parse, or None."""
    return next((letter for letter in _plain(pattern) if letter.isalpha() and letter not in _PARSED), None)


def has_zone(pattern: str) -> bool:
    """Tell whether a text of this pattern names its time zone."""
    return not _ZONES.isdisjoint(_plain(pattern))


def _plain(pattern: str) -> str:
    return _QUOTED.sub("", pattern)
