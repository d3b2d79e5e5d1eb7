"""The pauses of Spark when a node is killed: of a batch read whose leader dies, and of a stream whose coordinator dies.

``python -m benchmarks.spark_failover`` starts a cluster of three controllers and three nodes with the default settings.
Each round of the first part reads a topic of six partitions with ``local[2]`` and kills, with SIGKILL, the leader of a
partition that is being read. The figure is the longest time between two Arrow batches of one partition; all rows must
be there, each once. Each round of the second part kills the transaction coordinator of a query that writes 500 rows a
second exactly once. The figure is the longest time in which a reader of committed records gets nothing; in the end it
must have each number once. The same is measured without a kill.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

import tidelog.spark
from tidelog import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.testing import LocalCluster
from tidelog_spark.sink.execution import task_pattern

if TYPE_CHECKING:
    import pyarrow as pa

INPUT, OUTPUT = "numbers", "written"
PARTITIONS = 6
VALUE_BYTES = 100
BATCHES_BEFORE_THE_KILL = 5
PACE_S = 0.02
"""A task's wait after each Arrow batch, so that a node dies while its partitions are being read."""
ROWS_PER_S = 500
CALM_S = 10.0
STEADY_S = 5.0
LIMIT_S = 120.0


def fill(servers: dict[str, str], rows: int) -> None:
    """Store the rows, as many in each partition."""
    value = b"x" * VALUE_BYTES
    with Producer({**servers, "batch.size": 200_000}) as producer:
        for partition in range(PARTITIONS):
            producer.produce_batch(INPUT, [value] * (rows // PARTITIONS), partition=partition)


def stamped(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for tasks that writes down when each of their batches arrives."""

    def stamp(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                with (Path(folder) / str(batch.column("partition")[0].as_py())).open("a") as file:
                    file.write(f"{time.monotonic()}\n")
                time.sleep(PACE_S)
            yield batch

    return stamp


class ReadRounds:
    """Batch reads of the whole topic."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, rows: int) -> None:
        self._spark, self._cluster, self._rows = spark, cluster, rows

    def run(self, *, kills: bool) -> float:
        """Read, and return the longest pause of a partition in seconds."""
        frame = self._spark.read.format("tidelog").options(**self._cluster.client_settings()).option("subscribe", INPUT)
        with tempfile.TemporaryDirectory() as folder:
            rows = frame.option("columns", "partition,offset").load()
            rows = rows.mapInArrow(stamped(folder), rows.schema)
            found: list[int] = []
            reader = threading.Thread(target=lambda: found.extend(self._count(rows)))
            reader.start()
            killed, partition, killed_s = self._kill(Path(folder)) if kills else (None, None, 0.0)
            reader.join()
            if found != [self._rows, self._rows]:
                raise RuntimeError(f"{self._rows} rows are stored, and [rows, different ones] are {found}")
            stamps = {path.name: [float(line) for line in path.read_text().split()] for path in Path(folder).iterdir()}
        if killed is None or partition is None:
            return max(after - before for each in stamps.values() for before, after in pairwise(each))
        self._cluster.nodes[killed].start()
        self._cluster.wait_ready(LIMIT_S)
        gaps = [after - before for before, after in pairwise(stamps[partition]) if after > killed_s]
        if len(gaps) < BATCHES_BEFORE_THE_KILL:
            raise RuntimeError("the partition was read before its leader died: give more --rows")
        return max(gaps)

    def _count(self, rows: DataFrame) -> list[int]:
        counted = rows.selectExpr("count(*) AS rows", "count(DISTINCT partition, offset) AS places").collect()[0]
        return [counted.rows, counted.places]

    def _kill(self, folder: Path) -> tuple[int, str, float]:
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s:
            for path in folder.iterdir():
                if len(path.read_text().split()) == BATCHES_BEFORE_THE_KILL:
                    leader = self._cluster.leader(INPUT, int(path.name))
                    if leader is not None:
                        self._cluster.nodes[leader].kill()
                        return leader, path.name, time.monotonic()
            time.sleep(0.005)
        raise TimeoutError(f"no partition was read within {LIMIT_S:.0f} s")


class Arrivals:
    """A thread that reads the committed rows of the stream as they become visible."""

    def __init__(self, servers: dict[str, str]) -> None:
        self._servers = servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times: list[float] = []
        self.numbers: list[int] = []

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def are_steady(self) -> bool:
        """Whether rows have arrived several times just now."""
        return sum(time.monotonic() - each < STEADY_S for each in self.times[-10:]) > 2

    def longest_gap_s(self, since_s: float) -> float:
        """Return the longest time without a row from then on, up to now."""
        times = [since_s, *(each for each in self.times if each > since_s), time.monotonic()]
        return max(after - before for before, after in pairwise(times))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        deadline_s = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the stream wrote nothing in {LIMIT_S:.0f} s")
            time.sleep(0.05)

    def _run(self) -> None:
        with Consumer({**self._servers, "group.id": "arrivals", "fetch.wait.max.ms": 50}) as consumer:
            consumer.assign([TopicPartition(OUTPUT, 0, 0)])
            while not self._is_over.is_set():
                records = [each for each in consumer.consume(1_000, 0.1) if each.error() is None]
                if records:
                    self.times.append(time.monotonic())
                    self.numbers += [int(each.value() or b"-1") for each in records]


class StreamRounds:
    """A stream that writes numbers, and the kills of its transaction coordinator."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, folder: Path) -> None:
        self._cluster = cluster
        rows = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_S).option("numPartitions", 1).load()
        writer = rows.selectExpr("string(value) AS value").writeStream.format("tidelog")
        writer = writer.options(**cluster.client_settings()).option("topic", OUTPUT)
        self._query = writer.option("checkpointLocation", str(folder)).start()

    def run(self, rounds: int) -> tuple[list[float], list[float]]:
        """Return the longest gaps of calm times, and of times with a kill, in seconds."""
        with Arrivals(self._cluster.client_settings()) as arrivals:
            arrivals.wait(lambda: len(arrivals.times) > 5)
            gaps = [self._calm(arrivals) for _ in range(rounds)], [self._kill(arrivals) for _ in range(rounds)]
            self._query.stop()
            if self._query.exception() is not None:
                raise RuntimeError(f"the query failed: {self._query.exception()}")
        if arrivals.numbers != list(range(len(arrivals.numbers))):
            raise RuntimeError("the numbers in the topic are not each there once and in order")
        return gaps

    def _calm(self, arrivals: Arrivals) -> float:
        begin_s = time.monotonic()
        arrivals.wait(lambda: time.monotonic() - begin_s > CALM_S)
        return arrivals.longest_gap_s(begin_s)

    def _kill(self, arrivals: Arrivals) -> float:
        with AdminClient(self._cluster.client_settings()) as admin:
            listed = admin.list_transactions(transactional_id_pattern=task_pattern(str(self._query.id))).result().valid
        begin_s = time.monotonic()
        killed = self._cluster.nodes[listed[0].coordinator_id]
        killed.kill()
        arrivals.wait(lambda: time.monotonic() - begin_s > CALM_S and arrivals.are_steady)
        gap_s = arrivals.longest_gap_s(begin_s)
        killed.start()
        self._cluster.wait_ready(LIMIT_S)
        return gap_s


def show(what: str, pauses_s: list[float]) -> None:
    """Print the median and the maximum of pauses."""
    median, worst = statistics.median(pauses_s), max(pauses_s)
    print(f"{what}: median {median:.2f} s, longest {worst:.2f} s of {len(pauses_s)}", flush=True)


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_200_000, help="rows of the topic that is read")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows = options.rows // PARTITIONS * PARTITIONS
    print(f"load of the machine, 1 min: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="tidelog-spark-") as folder, closing(LocalCluster()) as cluster:
        cluster.start()
        cluster.wait_ready(LIMIT_S)
        with AdminClient(cluster.client_settings()) as admin:
            config = {"min.insync.replicas": "2"}
            topics = [NewTopic(INPUT, PARTITIONS, 3, config=config), NewTopic(OUTPUT, 1, 3, config=config)]
            for future in admin.create_topics(topics).values():
                future.result()
        fill(cluster.client_settings(), rows)
        spark = tidelog.spark.session("failover", "local[2,8]")
        reads = ReadRounds(spark, cluster, rows)
        reads.run(kills=False)
        show("batch read, longest pause of a partition", [reads.run(kills=False) for _ in range(options.rounds)])
        show("the same, its leader killed", [reads.run(kills=True) for _ in range(options.rounds)])
        calm, killed = StreamRounds(spark, cluster, Path(folder) / "checkpoint").run(options.rounds)
        show("stream exactly once, longest time without a row", calm)
        show("the same, its coordinator killed", killed)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
