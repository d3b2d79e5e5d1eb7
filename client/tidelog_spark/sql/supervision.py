"""Decides which persistent queries start and stop, as the catalog and the running queries change. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog_spark.sql.catalog import Catalog
from tidelog_spark.sql.definitions import Query, Relation

FIRST_DELAY_MS = 1_000
MAX_DELAY_MS = 60_000
STABLE_MS = 300_000
"""A query that has run for this long before it fails is restarted after the first delay again."""


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Start a query that writes to this relation."""

    query: Query
    sink: Relation


@dataclass(frozen=True, slots=True)
class StopQuery:
    """Stop the query that runs under this id."""

    id: str
    reason: str


Command = StartQuery | StopQuery


@dataclass(slots=True)
class _Trouble:
    """The failures of a query in a row: the next delay, and the time of the next start."""

    delay_ms: int
    retry_ms: int


class Supervision:
    """The state of the queries that one server runs.

    The server calls `step` with the catalog at short intervals, and carries out the commands. It reports each start
    with `started`, and each end, also of a start that fails, with `failed`.
    """

    def __init__(self) -> None:
        self._running: dict[str, tuple[Query, Relation, int]] = {}
        self._troubles: dict[str, _Trouble] = {}

    def step(self, catalog: Catalog, now_ms: int) -> list[Command]:
        """Return the commands that make the running queries those of the catalog; stops come first.

        A query is started again when it, or the relation to which it writes, has been replaced.
        """
        wanted = {each.query.id: each for each in _wanted(catalog)}
        stops: list[Command] = []
        for name, (query, sink, _) in list(self._running.items()):
            found = wanted.get(name)
            if found != StartQuery(query, sink):
                paused = catalog.query(query.name)
                is_paused = paused is not None and paused.id == name and paused.is_paused
                reason = "replaced" if found else "paused" if is_paused else "terminated"
                stops.append(StopQuery(name, reason))
                del self._running[name]
        self._troubles = {name: each for name, each in self._troubles.items() if name in wanted}
        starts = [each for name, each in wanted.items() if name not in self._running and self._is_due(name, now_ms)]
        return [*stops, *starts]

    def started(self, command: StartQuery, now_ms: int) -> None:
        """Note that a query runs."""
        self._running[command.query.id] = (command.query, command.sink, now_ms)

    def failed(self, query_id: str, now_ms: int) -> int:
        """Note that a query has failed, and return the delay of its next start, which doubles with each failure."""
        running = self._running.pop(query_id, None)
        trouble = self._troubles.get(query_id)
        is_stable = running is not None and now_ms - running[2] >= STABLE_MS
        delay_ms = FIRST_DELAY_MS if trouble is None or is_stable else min(trouble.delay_ms * 2, MAX_DELAY_MS)
        self._troubles[query_id] = _Trouble(delay_ms, now_ms + delay_ms)
        return delay_ms

    @property
    def running(self) -> Mapping[str, Query]:
        """The running queries by id."""
        return {name: query for name, (query, _, _) in self._running.items()}

    def _is_due(self, query_id: str, now_ms: int) -> bool:
        trouble = self._troubles.get(query_id)
        return trouble is None or now_ms >= trouble.retry_ms


def _wanted(catalog: Catalog) -> list[StartQuery]:
    found = [(query, catalog.relation(query.sink)) for query in catalog.queries if not query.is_paused]
    return [StartQuery(query, sink) for query, sink in found if sink is not None]
