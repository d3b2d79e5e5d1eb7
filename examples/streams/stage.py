"""The setting of the examples: a cluster, a Spark session, a folder for checkpoints, and flights.

The cluster is the one at the address on the command line, or a new one of two processes, which ends with the program.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from rich.console import Console
from rich.table import Table

import tidelog.spark
from examples.flights import dataset
from tidelog import AdminClient, KafkaException, NewTopic, Producer
from tidelog.spark import Json
from tidelog.testing import LocalCluster

FLIGHTS = 20_000
"""The flights of the first three weeks of January."""

ANSWER_S = 10
"""The time in which a cluster must answer."""

SETTINGS = {"spark.sql.shuffle.partitions": "2"}
"""Each of these partitions has state of its own, and there are two cores."""

FLIGHT = Json("row INT, carrier STRING, flight INT, origin STRING, dest STRING, distance INT, dep_delay INT")
"""The columns of a flight that the examples use."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The session and the cluster of an example. ``flights`` is the number of flights that it uses."""

    spark: SparkSession
    servers: str
    folder: Path
    flights: int = FLIGHTS

    def create_topic(self, prefix: str, partitions: int = 2, **config: str) -> str:
        """Create a topic with a new name and return the name. The default retention would delete flights of 2013."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        with AdminClient({"bootstrap.servers": self.servers}) as admin:
            admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result()
        return name

    def produce(self, topic: str, records: Iterable[tuple[str | bytes | None, str | bytes | None]]) -> None:
        """Produce keys and values in order."""
        with Producer({"bootstrap.servers": self.servers}) as producer:
            for number, (key, value) in enumerate(records):
                producer.produce(topic, value, key)
                if number % 500 == 0:
                    producer.poll(0)

    def flights_topic(self) -> str:
        """Return a new topic with the flights: keys are carriers, values JSON."""
        topic = self.create_topic("flights")
        self.produce(topic, itertools.starmap(dataset.as_record, enumerate(flights(self.flights))))
        return topic

    def read(self, topic: str) -> DataFrame:
        """Return the records of a topic so far, as a batch."""
        options = {"bootstrap.servers": self.servers, "subscribe": topic}
        return self.spark.read.format("tidelog").options(**options).load()

    def read_stream(self, topic: str, **options: str) -> DataFrame:
        """Return the records of a topic from its first one on, as a stream."""
        settings = {"bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("tidelog").options(**settings).load()

    def write_stream(self, frame: DataFrame, name: str) -> DataStreamWriter:
        """Return the writer of a stream that ends when it has read everything, with a checkpoint of its own."""
        return frame.writeStream.option("checkpointLocation", str(self.folder / name)).trigger(availableNow=True)

    def table_of(self, frame: DataFrame, mode: str = "complete") -> DataFrame:
        """Run a stream to its end and return its result as a table in Spark's memory."""
        name = f"table_{uuid.uuid4().hex[:8]}"
        finish(self.write_stream(frame, name).format("memory").queryName(name).outputMode(mode))
        return self.spark.table(name)


@contextlib.contextmanager
def open_stage() -> Iterator[Stage]:
    """Yield the stage of a program. A cluster that does not answer ends the program before Spark starts."""
    servers = given_servers()
    with contextlib.ExitStack() as stack:
        if servers is None:
            config = {"transaction.two.phase.commit.enable": "true"}
            servers = stack.enter_context(LocalCluster(controllers=1, nodes=1, config=config)).bootstrap_servers
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-streams-", ignore_cleanup_errors=True))
        spark = tidelog.spark.session("streams", config=SETTINGS)
        stack.callback(spark.stop)
        yield Stage(spark, servers, Path(folder))


def given_servers() -> str | None:
    """Return the address on the command line, of a cluster that answers; None without one."""
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    text = "a node of a cluster with transaction.two.phase.commit.enable=true (default: start a cluster)"
    parser.add_argument("servers", nargs="?", metavar="host:port", help=text)
    servers: str | None = parser.parse_args().servers
    if servers is not None:
        try:
            with AdminClient({"bootstrap.servers": servers}) as admin:
                admin.list_topics(timeout=ANSWER_S)
        except KafkaException as error:
            parser.exit(1, f"{parser.prog}: no cluster answers at {servers}: {error.args[0].str()}\n")
    return servers


def flights(count: int) -> list[dict[str, str]]:
    """Return the first flights of the year."""
    return list(itertools.islice(dataset.csv_rows(), count))


def finish(writer: DataStreamWriter) -> StreamingQuery:
    """Run a stream to its end."""
    query = writer.start()
    query.awaitTermination()
    return query


def show(title: str, columns: Sequence[str], rows: Sequence[Row | Sequence[Any]], limit: int = 12) -> None:
    """Print a table of at most ``limit`` rows. Numbers are aligned to the right."""
    table = Table()
    for index, column in enumerate(columns):
        is_number = bool(rows) and isinstance(rows[0][index], int | float)
        table.add_column(column, justify="right" if is_number else "left")
    for row in rows[:limit]:
        table.add_row(*(_cell(value) for value in row))
    if len(rows) > limit:
        table.caption = f"{len(rows) - limit:,} more"
    # As the table's own title, it would break at the width of a narrow table.
    Console(highlight=False).print(title, table, sep="\n")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
