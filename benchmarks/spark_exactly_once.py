"""Copies a topic with Spark, exactly once, while nodes, controllers, the driver and its workers are killed.

``python -m benchmarks.spark_exactly_once --rows 10000000`` fills a topic of a cluster of three controllers and three
nodes with the numbers below ``--rows``, in an order that looks random, copies it with a streaming query, and kills a
process every few seconds. In the end a consumer reads the copy: each number must be there once, and the numbers of a
partition in the order of the input.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidelog import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.message import OFFSET_BEGINNING
from tidelog.testing import LocalCluster
from tidelog_chaos.workload.spark import CopyQuery

INPUT, OUTPUT = "numbers", "copies"
PARTITIONS = 6
CHUNK = 100_000
SPREAD = 6_700_417
"""The step from one number to the next, a prime: with other counts than its multiples all numbers occur."""
KILLS = ("node", "node", "controller", "driver", "jvm", "all", "worker", "workers")
ENDS_THE_DRIVER = ("driver", "jvm", "all")
BACK_S = (1.0, 4.0)
READY_S = 300.0
GIVE_UP_S = 900.0


@dataclass
class Outcome:
    """The figures of a run."""

    rows: int
    fill_s: float = 0.0
    copy_s: float = 0.0
    longest_pause_s: float = 0.0
    batches: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    """The errors of queries that ended without being killed."""
    found: int = 0
    lost: int = 0
    doubled: int = 0
    unknown: int = 0
    disordered: int = 0

    @property
    def is_good(self) -> bool:
        """Whether each number is there once and in order."""
        return not (self.lost or self.doubled or self.unknown or self.disordered) and self.found == self.rows


def numbers(rows: int, first: int, count: int) -> np.ndarray:
    """Return the numbers at positions of the input, of which each below ``rows`` occurs once."""
    return (np.arange(first, first + count, dtype=np.int64) * SPREAD) % rows


def fill(servers: dict[str, str], rows: int) -> dict[str, int]:
    """Produce the numbers, and return the end of each partition."""
    ends: dict[str, int] = {}
    with Producer({**servers, "linger.ms": 5, "batch.size": 1_000_000}) as producer:
        for index, first in enumerate(range(0, rows, CHUNK)):
            values = numbers(rows, first, min(CHUNK, rows - first))
            partition = index % PARTITIONS
            written = producer.produce_batch(INPUT, _binary(values), partition=partition)
            ends[f"{INPUT}-{partition}"] = written.offsets[-1] + 1
    return ends


def _binary(values: np.ndarray) -> pa.Array:
    offsets = pa.py_buffer(np.arange(len(values) + 1, dtype=np.int32) * 8)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(values.astype("<i8"))])


class Kills:
    """Kills processes at random times, and brings them back."""

    def __init__(
        self, cluster: LocalCluster, query: CopyQuery, outcome: Outcome, interval_s: float, batches: int, seed: int
    ) -> None:
        self._cluster, self._query, self._outcome, self._interval_s = cluster, query, outcome, interval_s
        self._dice = random.Random(seed)
        self._next_s = time.monotonic() + interval_s
        self._back: list[tuple[float, str, int]] = []
        self._left: list[str] = []
        self._is_killed = False
        self._batches, self._first_batch = batches, -1

    def step(self, batch: int) -> None:
        """Do what is due; ``batch`` is the last one that is committed."""
        now_s = time.monotonic()
        for due in [due for due in self._back if due[0] <= now_s]:
            self._back.remove(due)
            self._processes(due[1])[due[2]].start()
        if not self._query.is_running:
            if not self._is_killed:
                self._outcome.failures[self._query.failure()] += 1
            self._is_killed = False
            self._first_batch = batch
            self._query.start()
        if now_s >= self._next_s:
            self._next_s = now_s + self._dice.uniform(0.5, 1.5) * self._interval_s
            if not self._left:
                self._left = self._dice.sample(KILLS, len(KILLS))
            # A start takes longer than a batch. A driver that has done little is left alone.
            if batch - self._first_batch >= self._batches or self._left[-1] not in ENDS_THE_DRIVER:
                self._strike(self._left.pop())

    def heal(self) -> None:
        """Bring everything back."""
        for _, kind, number in self._back:
            self._processes(kind)[number].start()
        self._back.clear()

    def _strike(self, kind: str) -> None:
        if kind not in ("node", "controller"):
            if self._query.kill(kind, self._dice):
                self._is_killed = self._is_killed or kind in ENDS_THE_DRIVER
                self._outcome.kills[kind] += 1
            return
        if self._back:
            # A second node, or controller, would stop the cluster.
            return
        number = (
            self._cluster.leader(self._dice.choice((INPUT, OUTPUT)), self._dice.randrange(PARTITIONS))
            if kind == "node"
            else self._cluster.controller_leader()
        )
        if number is not None:
            self._processes(kind)[number].kill()
            self._back.append((time.monotonic() + self._dice.uniform(*BACK_S), kind, number))
            self._outcome.kills[f"{kind} (leader)"] += 1

    def _processes(self, kind: str):  # type: ignore[no-untyped-def]
        return self._cluster.nodes if kind == "node" else self._cluster.controllers


def copy(
    cluster: LocalCluster, folder: Path, ends: dict[str, int], options: argparse.Namespace, outcome: Outcome
) -> None:
    """Run the query under kills until it has copied everything."""
    source = {"maxOffsetsPerTrigger": str(options.batch)}
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    query = CopyQuery(folder / "spark", servers, {INPUT: OUTPUT}, source)
    kills = Kills(cluster, query, outcome, options.interval, options.batches, options.seed)
    begin_s = progress_s = time.monotonic()
    last = -1
    query.start()
    try:
        while True:
            batch, position = query.position()
            kills.step(batch)
            time.sleep(0.05)
            now_s = time.monotonic()
            if batch != last:
                outcome.longest_pause_s = max(outcome.longest_pause_s, now_s - progress_s)
                progress_s, last = now_s, batch
                done = sum(position.values())
                print(f"{now_s - begin_s:7.1f} s  batch {batch}  {done:,} offsets  {dict(outcome.kills)}", flush=True)
            if all(position.get(key, 0) >= end for key, end in ends.items()):
                break
            if now_s - progress_s > GIVE_UP_S:
                raise TimeoutError(f"no batch was committed in {GIVE_UP_S:.0f} s; {dict(outcome.failures)}")
        outcome.copy_s, outcome.batches = time.monotonic() - begin_s, last + 1
    finally:
        query.end()
        kills.heal()


def count(servers: dict[str, str], rows: int, outcome: Outcome) -> None:
    """Read the copy, and count what is lost, doubled, unknown or out of order."""
    seen = np.zeros(rows, dtype=np.uint8)
    inverse = pow(SPREAD, -1, rows)
    last = np.full(PARTITIONS, -1, dtype=np.int64)
    for partition, values in _read(servers):
        outcome.found += len(values)
        known = values[(values >= 0) & (values < rows)]
        outcome.unknown += len(values) - len(known)
        np.add.at(seen, known, 1)
        # Positions are below 10^8 and the inverse is as well, so the product fits into 64 bits.
        positions = np.concatenate(([last[partition]], (known * inverse) % rows))
        outcome.disordered += int((np.diff(positions) <= 0).sum())
        last[partition] = positions[-1]
    outcome.lost = int((seen == 0).sum())
    outcome.doubled = int((seen > 1).sum())


def _read(servers: dict[str, str]) -> Iterator[tuple[int, np.ndarray]]:
    for partition in range(PARTITIONS):
        at = TopicPartition(OUTPUT, partition, OFFSET_BEGINNING)
        with Consumer({**servers, "isolation.level": "read_committed"}) as consumer:
            high = consumer.get_watermark_offsets(at, timeout=60)[1]
            consumer.assign([at])
            empty = 0
            while empty < 2:
                table = consumer.consume_arrow(timeout=1)
                [position] = consumer.position([at])
                empty = 0 if table.num_rows else empty + (position.offset >= high)
                for chunk in table.column("value").chunks:
                    yield partition, np.array([int.from_bytes(v, "little") for v in chunk.to_pylist()], dtype=np.int64)


@contextlib.contextmanager
def cluster_in(folder: Path) -> Iterator[LocalCluster]:
    """Run a cluster with both topics."""
    with contextlib.closing(LocalCluster(3, 3, folder / "cluster")) as cluster:
        cluster.start()
        cluster.wait_ready(READY_S)
        with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            config = {"min.insync.replicas": "2"}
            topics = [NewTopic(name, PARTITIONS, 3, config=config) for name in (INPUT, OUTPUT)]
            for future in admin.create_topics(topics).values():
                future.result()
        yield cluster


def run(folder: Path, options: argparse.Namespace) -> Outcome:
    """Fill, copy and count."""
    outcome = Outcome(options.rows)
    with cluster_in(folder) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        begin_s = time.monotonic()
        ends = fill(servers, options.rows)
        outcome.fill_s = time.monotonic() - begin_s
        print(f"{options.rows:,} rows produced in {outcome.fill_s:.1f} s", flush=True)
        copy(cluster, folder, ends, options, outcome)
        cluster.wait_ready(READY_S)
        count(servers, options.rows, outcome)
    return outcome


def main() -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=250_000, help="offsets in a micro-batch")
    parser.add_argument("--interval", type=float, default=8.0, help="seconds from one kill to the next, on average")
    parser.add_argument("--batches", type=int, default=6, help="batches of a driver before it is killed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if math.gcd(options.rows, SPREAD) != 1 or not 0 < options.rows < 10**8:
        parser.error(f"--rows must be below 100,000,000 and not a multiple of {SPREAD}, not {options.rows}")
    with tempfile.TemporaryDirectory(prefix="tidelog-spark-") as folder:
        outcome = run(Path(folder), options)
    print(
        f"copied in {outcome.copy_s:.1f} s in {outcome.batches} batches, longest pause {outcome.longest_pause_s:.1f} s"
    )
    print(f"kills: {', '.join(f'{kind} {n}' for kind, n in sorted(outcome.kills.items())) or 'none'}")
    for failure, times in outcome.failures.items():
        print(f"the query failed {times} times: {failure}")
    print(
        f"{outcome.found:,} rows in the copy: {outcome.lost:,} lost, {outcome.doubled:,} doubled, "
        f"{outcome.unknown:,} unknown, {outcome.disordered:,} out of order"
    )
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
