"""The tools' findings in files: rows to show, problems, and notes on unusual but valid content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass

Value: TypeAlias = "str | int | bool | Sequence[Value] | Mapping[str, Value] | None"
"""The value of a field in a row, in JSON's types."""


@dataclass(frozen=True, slots=True)
class Row:
    """One batch, record or entry with Kafka's field names. ``kind`` is its type, for example ``batch``."""

    kind: str
    fields: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file, at a byte position if known."""

    path: Path
    text: str
    position: int | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f" byte {self.position}:"
        return f"{self.path}:{place} {self.text}"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on content that is unusual but not a problem."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


Finding = Row | Problem | Note
