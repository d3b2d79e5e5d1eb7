"""`SparkQueries`: runs the connectors of a leading worker on one Spark driver, each in a fair pool of its own.

Each run has a thread. Events go to a queue, which the worker's thread takes.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tidelog_connect.connectors.connector import SINK
from tidelog_connect.connectors.registry import Registry
from tidelog_connect.herder.supervision import StartConnector, StopConnector
from tidelog_connect.metrics import ConnectCounts, ConnectorCounts
from tidelog_connect.pipeline import Pipeline
from tidelog_connect.server.queries import Ended, Event, Failed, Started, TopicsUsed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_POOL = "spark.scheduler.pool"
_EPOCH_BITS = 32
"""The count of batches in a leader's numbers; the leader's epoch is above it."""


class Run(Protocol):
    """A running connector. `Run.run` returns after `Run.stop`, or raises."""

    def run(self) -> None:
        """Run the connector."""
        ...

    def stop(self) -> None:
        """Let `run` return soon. Does not block for longer than a batch takes."""
        ...


class RunContext:
    """The name, tasks and steps of a run, the numbers of its batches, and its reports to the worker."""

    def __init__(
        self,
        command: StartConnector,
        pipeline: Pipeline,
        numbers: Callable[[], int],
        report: Callable[[Event], None],
        counts: ConnectorCounts,
    ) -> None:
        self.name = command.name
        self.config = command.config
        self.pipeline = pipeline
        self.tasks = command.tasks
        self.next_number = numbers
        self.counts = counts
        self._run, self._report = command.run, report
        self._topics: frozenset[str] = frozenset()
        self.is_planned = False
        self.batches = 0
        """The batches that the run has written."""

    def started(self) -> None:
        """Report that the query runs."""
        self.is_planned = True
        self._report(Started(self.name, self._run))

    def used(self, topics: frozenset[str]) -> None:
        """Report topics that the run uses, once each."""
        if topics - self._topics:
            self._topics |= topics
            self._report(TopicsUsed(self.name, topics))


RunFactory = Callable[["SparkSession", type[Any], dict[str, Any], RunContext], Run]


class SparkQueries:
    """Lifecycle: created with the worker; the session starts with the first query, and its creator stops it."""

    def __init__(
        self,
        registry: Registry,
        session: Callable[[], SparkSession],
        source: RunFactory,
        sink: RunFactory,
        wake: Callable[[], None],
        counts: ConnectCounts,
    ) -> None:
        self._registry = registry
        self._session = session
        self._factories = {SINK: sink}
        self._source = source
        self._wake = wake
        self._connect_counts = counts
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._running: dict[int, tuple[threading.Thread, threading.Event, list[Run]]] = {}
        self._counts = itertools.count()
        self._contexts: dict[str, RunContext] = {}

    def start(self, command: StartConnector, epoch: int) -> None:
        """Start a connector on a thread of its own."""
        stopping = threading.Event()
        runs: list[Run] = []
        thread = threading.Thread(
            target=self._run,
            args=(command, epoch, stopping, runs),
            name=f"connector-{command.name}",
            daemon=True,
        )
        self._running[command.run] = (thread, stopping, runs)
        thread.start()

    def stop(self, command: StopConnector) -> None:
        """Stop a connector; its thread reports the end."""
        found = self._running.get(command.run)
        if found is None:
            self._report(Ended(command.name, command.run))
            return
        threading.Thread(target=_stop, args=found[1:], name=f"stop-{command.name}", daemon=True).start()

    def stop_all(self) -> None:
        """Stop all connectors and wait for their ends."""
        running = list(self._running.values())
        for _, stopping, runs in running:
            _stop(stopping, runs)
        for thread, _, _ in running:
            thread.join()
        self.events()

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        found: list[Event] = []
        while not self._events.empty():
            found.append(self._events.get())
        return found

    def batches(self) -> dict[str, int]:
        """Return the number of batches that the last run of each connector has written."""
        return {name: each.batches for name, each in list(self._contexts.items())}

    def _run(self, command: StartConnector, epoch: int, stopping: threading.Event, runs: list[Run]) -> None:
        def number() -> int:
            return epoch << _EPOCH_BITS | next(self._counts)

        context: RunContext | None = None
        try:
            connector = self._registry.find(command.config["connector.class"])
            settings = self._registry.settings(command.config)
            spark = self._session()
            spark.sparkContext.setLocalProperty(_POOL, command.name)
            pipeline, counts = self._registry.pipeline(command.config), self._connect_counts.of(command.name)
            context = RunContext(command, pipeline, number, self._report, counts)
            self._contexts[command.name] = context
            factory = self._factories.get(connector.kind, self._source)
            run = factory(spark, connector, settings, context)
            runs.append(run)
            if not stopping.is_set():
                run.run()
            self._finish(command, Ended(command.name, command.run))
        except Exception as error:
            if stopping.is_set():
                logger.info("connector %s ended with an error while it was stopped", command.name, exc_info=error)
                self._finish(command, Ended(command.name, command.run))
                return
            logger.warning("connector %s has failed", command.name, exc_info=error)
            text = f"{type(error).__name__}: {error}"
            is_planned = context is not None and context.is_planned
            self._finish(command, Failed(command.name, command.run, text, is_planned))

    def _finish(self, command: StartConnector, event: Event) -> None:
        self._running.pop(command.run, None)
        self._report(event)

    def _report(self, event: Event) -> None:
        self._events.put(event)
        self._wake()


def _stop(stopping: threading.Event, runs: list[Run]) -> None:
    stopping.set()
    for run in list(runs):
        run.stop()
