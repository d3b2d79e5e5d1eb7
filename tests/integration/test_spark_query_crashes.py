"""A query from topic to topic copies each record once, wherever its driver and a leader are killed together.

`query_steps` has the steps of a micro-batch. At each of them, the node dies that leads a partition of the input, of the
output or of the journal, or coordinates the transactions, with the driver and without it. The source and the sink are
called as Spark calls them, so no JVM is needed.
"""

from __future__ import annotations

import contextlib
import os

import pytest
from copied_topics import LEADERS, CopiedTopics
from query_steps import STEPS
from sink_runner import Crash
from stepped_query import SteppedQuery

from tidelog.testing import LocalCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("TIDELOG_CHAOS_ROUNDS" not in os.environ, reason="make chaos runs it: it takes minutes"),
]


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
