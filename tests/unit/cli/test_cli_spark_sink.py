"""``tidelog spark-sink``: the sinks of the journal with what is open, and the end of those whose drivers are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sink_runner import PARTITIONS, SINK, Runner, open_ids, values_of, visible
from typer.testing import Result

from tidelog.testing import FakeCluster
from tidelog_spark.sink.protocol import Attempt


def test_sinks_are_none_without_a_journal_and_none_is_created(
    cluster: FakeCluster, run_json: Callable[..., Any]
) -> None:
    assert run_json("spark-sink", "list") == {"sinks": []}
    assert run_json("topic", "list")["topics"] == []


def test_sink_of_a_lost_driver_is_listed_and_abandoned(
    cluster: FakeCluster, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    cluster.create_topic("t", PARTITIONS)
    runner = Runner(cluster)
    runner.run("lost", 0)
    runner.write_all(Attempt(SINK, "lost", 1))
    (listed,) = run_json("spark-sink", "list")["sinks"]
    assert (listed["sink"], listed["last_batch"], listed["run"], listed["open_transactions"]) == (SINK, 0, "lost", 2)
    assert listed["last_change"] <= listed["open_since"]

    refused = run("spark-sink", "abandon", SINK)
    assert refused.exit_code == 2
    assert "end the transactions of sink query" in refused.output.lower()
    assert len(open_ids(cluster)) == PARTITIONS

    done = run("spark-sink", "abandon", SINK, "--yes")
    assert done.output == "abandoned query: 0 transactions committed, 2 aborted\n"
    assert visible(cluster) == sorted(value for partition in range(PARTITIONS) for value in values_of(0, partition))
    (listed,) = run_json("spark-sink", "list")["sinks"]
    assert (listed["run"], listed["open_transactions"], listed["open_since"]) == (None, 0, None)


def test_sink_that_is_not_in_the_journal_is_an_error(run: Callable[..., Result]) -> None:
    result = run("spark-sink", "abandon", "nobody", "--yes")
    assert result.exit_code == 1
    assert "the journal of Spark's sinks does not have nobody" in result.output
