"""The demo, step by step."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

import tidelog.spark
from examples.flights import dataset, load, report
from examples.flights.audit import Audit, audit
from examples.flights.figures import compute_figures
from examples.flights.ledger import Ledger
from examples.flights.stream import FlightStream
from examples.flights.watch import TopicWatch
from tidelog import AdminClient, KafkaException, NewTopic
from tidelog.testing import LocalCluster

TOPIC = "flights"
PARTITIONS = 6
SESSION_TIMEOUT_MS = 2_000
"""The time after which a crash is detected. Kafka's default of 9 s is for networks slower than loopback."""
PICTURE = Path("demo-output/flights.png")


def main() -> int:
    """Run every step. Return 1 if a record is lost or duplicated or a figure differs, else 0."""
    console = Console(highlight=False)
    try:
        with tempfile.TemporaryDirectory(prefix="tidelog-flights-") as work:
            result = _run(console, Path(work))
    except (KafkaException, PySparkException, TimeoutError, RuntimeError) as error:
        console.print(f"[red]the demo failed: {error}")
        return 1
    verdict = "[green]Nothing was lost, and nothing stored twice." if result.passed else "[red]The check failed."
    console.print(f"{verdict} The picture is in {PICTURE}")
    for difference in result.differing_figures[:10]:
        console.print(f"  {difference}")
    return 0 if result.passed else 1


def _run(console: Console, work: Path) -> Audit:
    console.print("[bold]1. Starting Spark, 3 controllers and 3 storage nodes")
    spark = tidelog.spark.session("flights demo")
    try:
        return _run_with(spark, console, work)
    finally:
        spark.stop()


def _run_with(spark: SparkSession, console: Console, work: Path) -> Audit:
    ledger = Ledger(dataset.ROWS)
    started_s = time.monotonic()
    with LocalCluster(controllers=3, nodes=3, config={"broker.session.timeout.ms": SESSION_TIMEOUT_MS}) as cluster:
        console.print(f"  ready after {time.monotonic() - started_s:.1f} s at {cluster.bootstrap_servers}")
        _create_topic(cluster)
        console.print(f"[bold]2. Producing {dataset.ROWS:,} flights to topic {TOPIC}: acks=all, keyed by carrier.")
        console.print("[bold]   Meanwhile, a stream of Spark copies the topic to Parquet")
        stream = FlightStream(spark, cluster.bootstrap_servers, TOPIC, work, lambda: ledger.acknowledged)
        with TopicWatch(cluster.bootstrap_servers, TOPIC) as watch, load.progress_bar() as progress:
            stream.start(progress.console.print)
            timeline = load.produce_all(cluster, TOPIC, ledger, watch, progress)
            stream.finish()
        for failure in ledger.failures[:5]:
            console.print(f"  [red]not acknowledged: {failure}")
    console.print("[bold]3. Computing the figures from the Parquet files")
    figures = compute_figures(spark, stream.parquet)
    console.print("[bold]4. Checking every record and every figure against the CSV")
    result = audit(ledger, stream.parquet, figures)
    report.print_figures(console, figures)
    report.print_summary(console, ledger, timeline, watch, stream.tally, result, SESSION_TIMEOUT_MS)
    report.save_picture(PICTURE, ledger, timeline)
    return result


def _create_topic(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    # The records have the times of the flights, in 2013, which the default retention of 7 days would delete.
    config = {"min.insync.replicas": "2", "retention.ms": "-1"}
    topic = NewTopic(TOPIC, PARTITIONS, 3, config=config)
    for future in admin.create_topics([topic]).values():
        future.result(timeout=30)
