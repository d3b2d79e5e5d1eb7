"""Log lines as commands: a core says what is worth a line, and its shell has the logger."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.IntEnum):
    """The levels of :mod:`logging`, with the same numbers."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Report:
    """Log ``text`` with its arguments, which stand for ``%s`` and the like."""

    level: Level
    text: str
    arguments: tuple[object, ...]
