"""``tidelog bench``: bounded runs, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import Result

from tidelog.testing import FakeCluster
from tidelog_cli.bench.report import Latencies, Report
from tidelog_foundation.errors import ErrorCode


@pytest.fixture(autouse=True)
def topic(cluster: FakeCluster) -> Iterator[str]:
    cluster.create_topic("t", 2)
    yield "t"
    cluster.delete_topic("t")


def test_latencies_have_percentiles_in_ms() -> None:
    latencies = Latencies()
    for ms in range(1, 1_001):
        latencies.record(ms / 1_000)
    document = latencies.document
    assert document["p50"] == pytest.approx(500, rel=0.002)
    assert document["p99.9"] == pytest.approx(999, rel=0.002)
    assert document["max"] == pytest.approx(1_000, rel=0.002)
    assert list(document) == ["mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "max"]
    assert Latencies().document == {}


def test_report_has_rates_of_records_and_megabytes() -> None:
    document = Report("consumer", "t", 1_000, 4_000_000, 2.0).document
    assert (document["records_per_second"], document["mb_per_second"]) == (500.0, 2.0)
    assert document["latency_ms"] is None


def test_producer_and_consumer_move_as_many_records_as_asked_for(
    cluster: FakeCluster, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    sent = run_json("bench", "producer", "t", "-n", "300", "-s", "10", "--rate", "3000")
    assert (sent["records"], sent["failed"], sent["bytes"]) == (300, 0, 3_000)
    assert sent["seconds"] >= 0.09
    assert sent["latency_ms"]["p50"] > 0
    assert cluster.end_offset("t", 0) + cluster.end_offset("t", 1) == 300
    read = run_json("bench", "consumer", "t", "-n", "100")
    assert (read["records"], read["bytes"]) == (100, 1_000)
    assert run_json("bench", "consumer", "t", "-n", "1000")["records"] == 300
    printed = run("bench", "consumer", "t", "-n", "10").stdout
    assert printed.startswith("10 records in ")


def test_end_to_end_measures_the_way_of_each_record(run: Callable[..., Result]) -> None:
    result = run("bench", "end-to-end", "t", "-n", "20", "-s", "100")
    assert result.exit_code == 0, result.output
    first, _, header, *rows = result.stdout.splitlines()
    assert first.startswith("20 records in ")
    assert header.split() == ["LATENCY", "MS"]
    assert [row.split()[0] for row in rows][:2] == ["mean", "p50"]


def test_producer_fails_when_nothing_was_acknowledged(run: Callable[..., Result], cluster: FakeCluster) -> None:
    cluster.fail_next("Produce", ErrorCode.INVALID_CONFIG, 10)
    result = run("bench", "producer", "t", "-n", "5", "-s", "10")
    cluster.clear_faults()
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.rstrip().endswith("[INVALID_CONFIG]")
    assert run("bench", "consumer", "nope").stderr.endswith("[UNKNOWN_TOPIC_OR_PARTITION]\n")
