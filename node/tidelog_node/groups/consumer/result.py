"""The result of a request to a consumer group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from tidelog_node.groups.records import Key, Value

R = TypeVar("R", covariant=True)
Record: TypeAlias = tuple[Key, Value | None]
"""A key with its value. None deletes the key."""


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """``records`` are written as one batch and then replayed. ``response`` may be sent once they are committed."""

    records: tuple[Record, ...]
    response: R
