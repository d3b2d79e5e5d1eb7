"""A query from topic to topic copies each record once, wherever its processes and a leader are killed together.

`query_steps` has the steps of a micro-batch. At each of them, the driver, or in tasks the Python worker, dies with the
node that leads a partition of the input, of the output or of the journal, or coordinates the transactions. The first
test has Spark. The second one calls the source and the sink as Spark does, needs no JVM, and also lets the driver live.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from copied_topics import LEADERS, CopiedTopics
from gated_copy import GatedCopy
from query_steps import COMMIT_STEPS, PLANNING_STEPS, STEPS, TASK_STEPS
from sink_runner import Crash
from stepped_query import SteppedQuery

from tidelog.testing import LocalCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("TIDELOG_CHAOS_ROUNDS" not in os.environ, reason="make chaos runs it: it takes minutes"),
]
TASK_STRIKES = [*(("process", step) for step in TASK_STEPS), *(("driver", step) for step in TASK_STEPS)]
STRIKES = {
    "planning-and-tasks": [*(("driver", step) for step in PLANNING_STEPS), *TASK_STRIKES],
    "commit": [("driver", step) for step in COMMIT_STEPS],
}


@pytest.mark.parametrize("first_leader", range(len(LEADERS)))
@pytest.mark.parametrize("strikes", STRIKES.values(), ids=STRIKES)
def test_query_copies_each_record_once_when_a_process_and_a_leader_are_killed_at_each_step(
    strikes: list[tuple[str, str]], first_leader: int, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    with GatedCopy(cluster, topic, tmp_path) as copy:
        for number, (victim, step) in enumerate(strikes, first_leader):
            copy.strike(step, victim, LEADERS[number % len(LEADERS)])
        assert copy.starts > sum(victim == "driver" for victim, _ in strikes), copy.failures


@pytest.mark.parametrize("crashes", [True, False])
@pytest.mark.parametrize("leader", LEADERS)
def test_query_without_spark_copies_each_record_once_when_a_leader_is_killed_at_each_step(
    leader: str, crashes: bool, cluster: LocalCluster, topic: str
) -> None:
    topics = CopiedTopics(cluster, topic)
    query = SteppedQuery(cluster, topics.source, topics.target, topic)
    topics.append()
    query.run()
    for step in STEPS:
        killed: list[int] = []

        def strike(reached: str, step: str = step, killed: list[int] = killed) -> None:
            if reached == step and not killed:
                killed.append(topics.leader(leader, topic))
                cluster.nodes[killed[0]].kill()
                if crashes:
                    raise Crash(step)

        topics.append()
        with contextlib.suppress(Crash):
            query.run(strike)
        query.run()
        [node] = killed
        cluster.nodes[node].start()
        cluster.wait_ready(120)
        topics.check()
