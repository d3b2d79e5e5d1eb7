"""The metrics of a worker: states, starts, failures, and the counts of connectors that exist."""

from __future__ import annotations

from connect_in_memory import WorkerInMemory

from tidelog_connect import metrics
from tidelog_connect.metrics import ConnectCounts
from tidelog_foundation.metrics import Metric

SOURCE = {"connector.class": "FileStreamSource", "file": "x", "topic": "lines"}


def values(memory: WorkerInMemory) -> dict[Metric, dict[tuple[str, ...], object]]:
    return {each.metric: dict(each.values) for each in memory.worker.families()}


def test_worker_counts_starts_failures_and_states() -> None:
    memory = WorkerInMemory()
    found = values(memory)
    assert found[metrics.LEADS] == {(): 0}
    assert found[metrics.EPOCH] == {(): -1}
    assert metrics.CONNECTORS not in found
    memory.worker.lead(1)
    for name in ("a", "b"):
        memory.worker.change(lambda herder, name=name: herder.create(name, SOURCE))
    memory.settle()
    memory.queries.fail("b", "broken")
    memory.settle()
    found = values(memory)
    assert (found[metrics.LEADS], found[metrics.LEADS_TAKEN]) == ({(): 1}, {(): 1})
    assert found[metrics.STARTUPS] == {("success",): 2, ("failure",): 0}
    assert found[metrics.CONNECTORS] == {("RUNNING",): 2}
    assert found[metrics.TASKS] == {("a", "RUNNING"): 1, ("b", "FAILED"): 1}
    assert found[metrics.FAILURES] == {("b",): 1}


def test_counts_of_a_deleted_connector_end() -> None:
    memory = WorkerInMemory()
    memory.worker.lead(1)
    memory.worker.change(lambda herder: herder.create("a", SOURCE))
    memory.settle()
    memory.queries.fail("a", "broken")
    memory.settle()
    assert values(memory)[metrics.FAILURES] == {("a",): 1}
    memory.worker.change(lambda herder: herder.delete("a"))
    memory.settle()
    assert values(memory)[metrics.FAILURES] == {}


def test_records_are_those_of_sources_that_have_written() -> None:
    memory, counts = WorkerInMemory(), ConnectCounts()
    memory.worker.lead(1)
    for name in ("a", "b"):
        memory.worker.change(lambda herder, name=name: herder.create(name, SOURCE))
    memory.settle()
    counts.of("b")
    counts.of("a").write.observe(1)
    counts.of("a").written_records += 3
    families = counts.families(memory.worker.state, leads=True)
    [written] = [each for each in families if each.metric is metrics.WRITTEN]
    assert written.values == {("a",): 3}


def test_requests_with_unknown_methods_share_a_series() -> None:
    memory, counts = WorkerInMemory(), ConnectCounts()
    for method in ("GET", "BREW", "TEA"):
        counts.requested(method, 405)
    [requests] = [each for each in counts.families(memory.worker.state, leads=False) if each.metric is metrics.REQUESTS]
    assert requests.values == {("GET", "405"): 1, ("other", "405"): 2}


def test_families_are_declared() -> None:
    memory = WorkerInMemory()
    memory.worker.lead(1)
    memory.worker.change(lambda herder: herder.create("a", SOURCE))
    memory.settle()
    declared = {each for _, subject in metrics.DECLARED for each in subject}
    assert set(values(memory)) <= declared
