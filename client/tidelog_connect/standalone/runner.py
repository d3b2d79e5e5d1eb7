"""`PipelineRunner`: the stages of a pipeline, as the member of a group that leads runs them.

    stage 1 ──all ended──► stage 2 ──all ended──► complete
       └──────failed──────────┴──► failed, which ends the pipeline

A member that leads again begins with the first stage: what its connectors have processed before is in their offsets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidelog_connect.herder.records import Record
from tidelog_connect.server.queries import Ended, Event, Failed, Queries, Started, TopicsUsed
from tidelog_connect.standalone.plan import PipelinePlan

logger = logging.getLogger(__name__)


class PipelineRunner:
    """A member of the pipeline's group. ``report`` gets lines of progress. Not thread-safe, but for ``wake``."""

    def __init__(self, plan: PipelinePlan, queries: Queries, report: Callable[[str], None], *, once: bool) -> None:
        self._queries, self._report = queries, report
        self._stages = plan.stages(once=once)
        self._epoch: int | None = None
        self._next_stage = 0
        self._last_run = 0
        self._running: dict[str, int] = {}
        self.wake = threading.Event()
        """Set when `step` has something to do."""
        self.failure: str | None = None
        """The error of the first connector that has failed."""
        self.is_complete = False
        """True once all connectors of all stages have ended."""

    @property
    def leads(self) -> bool:
        """True while this member runs the pipeline."""
        return self._epoch is not None

    @property
    def has_ended(self) -> bool:
        """True if the pipeline is complete or has failed."""
        return self.is_complete or self.failure is not None

    def follow(self) -> None:
        """Do nothing: offsets are the only state of a pipeline in topics."""

    def replay(self, record: Record, offset: int) -> None:
        """Do nothing, as `follow`."""

    def lead(self, epoch: int) -> None:
        """Begin with the first stage."""
        self._epoch, self._next_stage = epoch, 0
        self.wake.set()

    def resign(self) -> None:
        """Stop the connectors at the ends of their batches."""
        was_leading, self._epoch = self.leads, None
        self._running = {}
        if was_leading:
            self._queries.stop_all()

    def step(self) -> None:
        """Take the events of the connectors, and begin the next stage once that before it has ended."""
        if self._epoch is None:
            return
        for event in self._queries.events():
            self._take(event)
        if self._running or self.has_ended:
            return
        if self._next_stage == len(self._stages):
            self.is_complete = True
            return
        stage = self._stages[self._next_stage]
        self._next_stage += 1
        for connector in stage:
            self._last_run += 1
            self._running[connector.name] = self._last_run
            self._queries.start(connector.command(self._last_run), self._epoch)
        # Queries may report events at once.
        self.wake.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, TopicsUsed):
            logger.info("connector %s uses the topics %s", event.name, ", ".join(sorted(event.topics)))
            return
        if self._running.get(event.name) != event.run:
            return
        match event:
            case Started(name):
                self._report(f"{name}: running")
            case Failed(name, _, trace):
                del self._running[name]
                self._report(f"{name}: failed")
                self.failure = self.failure or f"connector {name} has failed: {trace}"
            case Ended(name):
                del self._running[name]
                self._report(f"{name}: ended")
