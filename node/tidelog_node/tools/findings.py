"""What the tools find in files: rows to show, problems, and notes about what is odd but allowed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Value = str | int | bool | None | list[str]
"""What a field of a row holds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One batch, record or entry, with Kafka's names for its fields; ``kind`` says which, as ``batch``."""

    kind: str
    fields: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file, at a byte where that is known."""

    path: Path
    text: str
    position: int | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f" byte {self.position}:"
        return f"{self.path}:{place} {self.text}"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that deserves a word and is no problem."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


Finding = Row | Problem | Note
