"""Parts of requests and responses: the error of an item, and items grouped by topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from tidelog.v1.common_pb2 import Error
from tidelog_foundation.errors import TidelogError, error_for

T = TypeVar("T")


class Result(Protocol):
    """A response, or an item in one, whose ``error`` is set if it failed."""

    @property
    def error(self) -> Error:
        """The error; empty if it is not set."""

    def HasField(self, field_name: Any, /) -> bool:  # noqa: N802
        """Return True if the field is set."""


def error_of(result: Result) -> TidelogError | None:
    """Return the error of a result, or None if it succeeded."""
    return error_for(result.error.code, result.error.message) if result.HasField("error") else None


def errors_in(topics: Iterable[Any]) -> Iterator[Error]:
    """Return the errors of the topics' partitions."""
    return (p.error for topic in topics for p in topic.partitions if p.HasField("error"))


def group_by_topic(items: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return the items of each topic, in order."""
    by_topic: defaultdict[str, list[T]] = defaultdict(list)
    for topic, item in items:
        by_topic[topic].append(item)
    return by_topic
