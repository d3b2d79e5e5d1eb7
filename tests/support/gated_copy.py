"""The test's side of a query of Spark that copies: it closes gates, and kills the query and nodes there."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import pytest
from copied_topics import CopiedTopics
from gated_query import FOLDER, Gate

from tidelog.testing import LocalCluster
from tidelog_chaos.workload.spark import CopyQuery

_DEADLINE_S = 900.0
"""Spark starts in ten seconds, but on a busy machine in minutes."""
_LOOK_S = 0.1


class _Query(CopyQuery):
    program = Path(__file__).with_name("gated_query.py")


class GatedCopy:
    """Copies a topic by a query that is started again whenever it has ended."""

    def __init__(self, cluster: LocalCluster, topic: str, folder: Path) -> None:
        self._cluster = cluster
        self._topics = CopiedTopics(cluster, topic)
        self._checkpoint = folder / "query" / "checkpoint"
        gate = folder / "gate"
        gate.mkdir(parents=True)
        self._gate = Gate(gate)
        self._environment = pytest.MonkeyPatch()
        self._environment.setenv(FOLDER, str(gate))
        self._environment.setenv("PYTHONPATH", str(Path(__file__).parent))
        copies = {self._topics.source: self._topics.target}
        self._query = _Query(folder / "query", cluster.client_settings(), copies, {"maxOffsetsPerTrigger": "10"})
        self.starts = 0
        self.failures: list[str] = []

    def __enter__(self) -> GatedCopy:
        self._topics.append()
        self._wait(self._is_copied, "the first records copied")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._environment.undo()
        self._query.end()

    def strike(self, step: str, victim: str, leader: str) -> None:
        """Kill the query's driver, or the process at the step (``victim`` "process"), and the node of a leader.

        Then wait until all records are copied while the node is down, start it again, and check the copy.
        """
        self._gate.close(step)
        self._topics.append()
        self._wait(lambda: self._gate.reached() is not None, f"the step {step}")
        sink = json.loads((self._checkpoint / "metadata").read_text())["id"]
        node = self._topics.leader(leader, sink)
        self._cluster.nodes[node].kill()
        if victim == "driver":
            assert self._query.kill("driver", random.Random(0)) > 1
        else:
            stopped = self._gate.reached()
            assert stopped is not None
            os.kill(stopped, signal.SIGKILL)
        self._gate.open()
        self._wait(self._is_copied, f"all records copied after {victim} and node {node} ({leader}) died at {step}")
        self._cluster.nodes[node].start()
        self._cluster.wait_ready(120)
        self._topics.check()

    def _is_copied(self) -> bool:
        position: Mapping[str, int] = self._query.position()[1]
        written = enumerate(self._topics.written)
        return all(position.get(f"{self._topics.source}-{index}", 0) >= len(values) for index, values in written)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {_DEADLINE_S} s: {what}; {self.failures[-3:]}"
            if not self._query.is_running:
                if self.starts:
                    self.failures.append(self._query.failure())
                self._query.start()
                self.starts += 1
            time.sleep(_LOOK_S)
