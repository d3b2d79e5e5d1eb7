"""`QueryServer`: runs the persistent queries of a catalog until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from tidelog_foundation.errors import TidelogError
from tidelog_spark.sql.catalog import Catalog
from tidelog_spark.sql.definitions import OutputMode, Start
from tidelog_spark.sql.engine import Running
from tidelog_spark.sql.plan import WritePlan, write_plan
from tidelog_spark.sql.results import Resolve
from tidelog_spark.sql.stores import Store
from tidelog_spark.sql.supervision import StartQuery, StopQuery, Supervision

POLL_S = 1.0


class QueryEngine(Protocol):
    """The part of `SparkEngine` that the server needs."""

    def start(
        self,
        name: str,
        select: str,
        resolve: Resolve,
        start: Start,
        mode: OutputMode,
        plan: WritePlan,
        checkpoint: str,
    ) -> Running:
        """Start a persistent query."""
        ...


class QueryServer:
    """Runs the queries of a catalog. The checkpoint of a query is the folder of its id in ``checkpoints``.

    ``say`` gets a line for each event. A query that fails is started again after a delay, from its checkpoint.
    """

    def __init__(self, store: Store, engine: QueryEngine, checkpoints: str, say: Callable[[str], None]) -> None:
        self._store = store
        self._engine = engine
        self._checkpoints = checkpoints.rstrip("/")
        self._say = say
        self._supervision = Supervision()
        self._running: dict[str, Running] = {}
        self._complaint: str | None = None

    def run(self, stop: threading.Event, poll_s: float = POLL_S) -> None:
        """Run the queries until ``stop`` is set, then end them."""
        try:
            while not stop.is_set():
                self.step()
                stop.wait(poll_s)
        finally:
            self.close()

    def step(self) -> None:
        """Read the catalog once, and start and stop queries accordingly."""
        self._note_failures()
        try:
            catalog = self._store.read()
        except TidelogError as error:
            # The queries go on while the catalog cannot be read.
            self._complain(f"the catalog cannot be read: {error.message}")
            return
        self._complaint = None
        for command in self._supervision.step(catalog, _now_ms()):
            match command:
                case StartQuery():
                    self._start(command, catalog)
                case StopQuery():
                    self._running.pop(command.id).stop()
                    self._say(f"stopped {command.id}: {command.reason}")

    def close(self) -> None:
        """End all queries; their checkpoints stay."""
        for running in self._running.values():
            running.stop()
        self._running.clear()

    def _start(self, command: StartQuery, catalog: Catalog) -> None:
        query = command.query
        checkpoint = f"{self._checkpoints}/{query.id}"
        try:
            plan = write_plan(command.sink, query.columns)
            self._running[query.id] = self._engine.start(
                query.id, query.select, catalog.relation, query.start, query.mode, plan, checkpoint
            )
        except TidelogError as error:
            self._fail(query.id, error.message)
            return
        self._supervision.started(command, _now_ms())
        self._say(f"started {query.id}, which writes to {query.sink}")

    def _note_failures(self) -> None:
        for query_id, running in list(self._running.items()):
            if not running.is_active:
                del self._running[query_id]
                self._fail(query_id, running.failure or "it has ended")

    def _fail(self, query_id: str, text: str) -> None:
        delay_ms = self._supervision.failed(query_id, _now_ms())
        self._say(f"{query_id} failed and starts again in {delay_ms // 1000} s: {text}")

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._say(text)
        self._complaint = text


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
