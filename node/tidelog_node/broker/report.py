"""Log lines as commands: a core returns them, and its shell logs them."""

from __future__ import annotations

import enum

from tidelog_foundation.dataclass import dataclass


class Level(enum.IntEnum):
    """The levels of :mod:`logging`, with the same numbers."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Report:
    """Log ``text`` with its arguments, which replace its format specifiers."""

    level: Level
    text: str
    arguments: tuple[object, ...]
