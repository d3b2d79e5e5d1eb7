"""The sink's protocol on a node: rows become visible with their whole batch, once, after a crash at any command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sink_runner import PARTITIONS, SINK, Runner, crash_and_recover, expected, open_ids, values_of, visible

from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_spark.sink.protocol import Attempt, abort_batch, commit_batch


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        yield cluster


@pytest.mark.parametrize("commands", [13])
def test_batch_is_committed_once_after_a_crash(fake: FakeCluster, commands: int) -> None:
    assert crash_and_recover(fake, commands, is_after=True)


def test_repeated_attempt_leaves_the_transaction_of_another_alone(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "run", 0)
    first = runner.write(attempt, 0)
    again = runner.write(attempt, 0)
    assert first is not None
    assert again is not None
    assert again.transactional_id == f"{first.transactional_id}.1"
    runner.finish(attempt, commit_batch(attempt, (first,)))
    assert visible(fake) == values_of(0, 0)
    assert open_ids(fake) == []


def test_aborted_batch_is_invisible_and_its_run_is_over(fake: FakeCluster) -> None:
    runner, attempt = Runner(fake), Attempt(SINK, "run", 0)
    prepared = runner.write(attempt, 0)
    assert prepared is not None
    runner.finish(attempt, abort_batch(attempt))
    assert open_ids(fake) == []
    with pytest.raises(TidelogError, match=r"run run can no longer write batch 0 of sink query"):
        runner.write(attempt, 1)
    with pytest.raises(TidelogError, match=r"the sink belongs to no run"):
        runner.finish(attempt, commit_batch(attempt, (prepared,)))
    assert visible(fake) == []


def test_commit_of_a_run_that_was_replaced_fails(fake: FakeCluster) -> None:
    runner, old, new = Runner(fake), Attempt(SINK, "old", 0), Attempt(SINK, "new", 0)
    prepared = runner.write(old, 0)
    assert prepared is not None
    runner.run("new", 0)
    runner.finish(new, commit_batch(new, ()))
    with pytest.raises(TidelogError, match=r"run old can no longer write batch 0"):
        runner.finish(old, commit_batch(old, (prepared,)))
    assert visible(fake) == expected(0)


def test_cluster_without_two_phase_commits_is_told_before_any_row() -> None:
    with FakeCluster(node_config={"transaction.two.phase.commit.enable": "false"}) as fake:
        fake.create_topic("t")
        with pytest.raises(ConfigError, match=r'set the option sink.semantics to "at-least-once"'):
            Runner(fake).write(Attempt(SINK, "run", 0), 0)
        assert fake.end_offset("t") == 0
