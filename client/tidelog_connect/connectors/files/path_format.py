"""``path.format`` of time-based partitioners: folders named by quoted texts and letters of a date (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidelog_connect.configuration import ConfigException

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)
_LETTERS = {"y": "y", "Y": "y", "M": "M", "d": "d", "D": "D", "H": "H", "m": "m", "s": "s"}
"""The letters, and those of Spark's patterns: Joda's Y is the year of the era."""

PATHS: Mapping[str, str] = MappingProxyType(
    {
        "DailyPartitioner": "'year'=YYYY/'month'=MM/'day'=dd",
        "HourlyPartitioner": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
    }
)
"""Partitioners whose format is fixed."""


def path_format_of(partitioner: str, given: str) -> str:
    """Return the format of a time-based partitioner: its own, or the given one."""
    return PATHS.get(partitioner, given)


@dataclass(frozen=True, slots=True)
class DateFolder:
    """One folder: a text, such as ``year=``, and a pattern of Spark for the rest."""

    prefix: str
    pattern: str


def date_folders(path_format: str, setting: str = "path.format") -> list[DateFolder]:
    """Return the folders of a format, such as ``'year'=YYYY/'month'=MM``.

    Raises:
        ConfigException: the format has an empty folder, a letter that has no meaning, or a quote that is not closed.
    """
    folders: list[list[tuple[str, bool]]] = [[]]
    for match in _TOKEN.finditer(path_format):
        quoted, letter, other = match[1], match[2], match[3]
        if other == "/":
            folders.append([])
        elif letter is not None:
            if letter not in _LETTERS:
                known = ", ".join(_LETTERS)
                raise ConfigException.of(setting, path_format, f"The letter {letter} is none of {known}")
            folders[-1].append((_LETTERS[letter] * len(match[0]), True))
        elif other == "'":
            raise ConfigException.of(setting, path_format, "A quote is not closed")
        else:
            text = other if quoted is None else quoted.replace("''", "'")
            if "/" in text:
                raise ConfigException.of(setting, path_format, "A quoted text has a slash")
            folders[-1].append((text, False))
    return [_folder(path_format, setting, tokens) for tokens in folders]


def _folder(path_format: str, setting: str, tokens: list[tuple[str, bool]]) -> DateFolder:
    first = next((index for index, (_, is_date) in enumerate(tokens) if is_date), None)
    if first is None:
        raise ConfigException.of(setting, path_format, "Each folder must have a letter of the date")
    prefix = "".join(text for text, _ in tokens[:first])
    pattern = "".join(text if is_date else _literal(text) for text, is_date in tokens[first:])
    return DateFolder(prefix, pattern)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
