"""The process of a pipeline: its parts, and the loop of its main thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog_connect.connectors.registry import Registry
from tidelog_connect.metrics import ConnectCounts
from tidelog_connect.server.checkpoints import Checkpoints
from tidelog_connect.server.membership import Membership
from tidelog_connect.server.process import SharedSession
from tidelog_connect.server.sink_run import SinkRun
from tidelog_connect.server.source_run import SourceRun
from tidelog_connect.server.spark_queries import SparkQueries
from tidelog_connect.server.topic_storage import TopicStorage
from tidelog_connect.standalone.plan import PipelinePlan
from tidelog_connect.standalone.runner import PipelineRunner
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STEP_S = 0.5
_PROGRESS_S = 10.0


class PipelineProcess:
    """A pipeline that runs until `stop`, its first failure, or, once, until all that is available is processed.

    ``session`` creates the Spark session, once a connector starts. It is the caller's to stop. ``report`` gets lines of
    progress.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        registry: Registry,
        session: Callable[[], SparkSession],
        report: Callable[[str], None],
        *,
        once: bool,
    ) -> None:
        self._plan, self._registry, self._report, self._once = plan, registry, report, once
        self._session = SharedSession(session)
        self._stopping = threading.Event()

    def run(self) -> bool:
        """Run the pipeline. Return False if it was stopped before it had processed all that is available, once.

        Raises:
            TidelogError: a connector has failed, or the cluster does not answer at the start.
        """
        settings = self._plan.settings
        storage = TopicStorage(settings, lambda name: Checkpoints(self._session(), settings).forget(name))
        queries = SparkQueries(
            self._registry,
            self._session,
            partial(SourceRun, settings=settings, storage=storage, once=self._once),
            partial(SinkRun, settings=settings, storage=storage, once=self._once),
            lambda: runner.wake.set(),
            ConnectCounts(),
        )
        runner = PipelineRunner(self._plan, queries, self._report, once=self._once)
        membership = Membership(settings, runner, storage)
        self._report(f"pipeline {self._plan.name}: waits for its turn in group {settings.worker.group_id}")
        try:
            self._follow(membership, runner, queries)
        finally:
            membership.close()
            storage.close()
        for name, count in queries.batches().items():
            self._report(f"{name}: {count} batches written")
        if runner.failure is not None:
            raise error_for(ErrorCode._FAIL, runner.failure)
        return runner.is_complete or not self._once

    def stop(self) -> None:
        """Let `run` return at the end of the batches that are being written."""
        self._stopping.set()

    def _follow(self, membership: Membership, runner: PipelineRunner, queries: SparkQueries) -> None:
        known: dict[str, int] = {}
        due = time.monotonic() + _PROGRESS_S
        while not self._stopping.is_set() and not runner.has_ended:
            membership.step(_STEP_S)
            self._session.check()
            if time.monotonic() >= due:
                due += _PROGRESS_S
                for name, count in queries.batches().items():
                    if known.get(name, 0) != count:
                        known[name] = count
                        self._report(f"{name}: {count} batches written")
