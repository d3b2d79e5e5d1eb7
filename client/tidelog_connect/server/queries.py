"""`Queries`: the queries of connectors, as the worker starts and stops them, and the events that they report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tidelog_connect.herder.supervision import StartConnector, StopConnector


@dataclass(frozen=True, slots=True)
class Started:
    """A query runs."""

    name: str
    run: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A query has failed with a text; before its first batch was planned if ``is_planned`` is false."""

    name: str
    run: int
    trace: str
    is_planned: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """A query that was told to stop has ended."""

    name: str
    run: int


@dataclass(frozen=True, slots=True)
class TopicsUsed:
    """A query has read or written topics for the first time in its run."""

    name: str
    topics: frozenset[str]


Event: TypeAlias = Started | Failed | Ended | TopicsUsed


class Queries(Protocol):
    """Runs queries on threads of its own. No method blocks for longer than a moment."""

    def start(self, command: StartConnector, epoch: int) -> None:
        """Start a query. Reports `Started` or `Failed`, and `Failed` later if it fails then."""
        ...

    def stop(self, command: StopConnector) -> None:
        """Stop a query at the end of its batch. Reports `Ended`, or `Failed`."""
        ...

    def stop_all(self) -> None:
        """Stop all queries and wait for their ends. Their events are dropped."""
        ...

    def events(self) -> list[Event]:
        """Return the events since the last call, in their order."""
        ...
