"""The results of statements, and of the analysis of queries. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tidelog_spark.sql.definitions import Column, Relation


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows under columns, in chunks: a stream brings them as they come. Close ``chunks`` to end a stream.

    With ``is_json``, a row has one cell, which is a JSON object.
    """

    columns: tuple[str, ...]
    chunks: Iterable[Sequence[Sequence[object]]]
    is_json: bool = False
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a statement without rows, and what it has done."""

    text: str


Result = Rows | Done


@dataclass(frozen=True, slots=True)
class Analysis:
    """The columns of a query's rows, and the names of the relations that it reads."""

    columns: tuple[Column, ...]
    reads: tuple[str, ...]


Resolve = Callable[[str], Relation | None]
"""Returns the relation of a name in a query."""
