"""Exactly the right rows: random topics, transactions, retention, offsets and restarts against the node's own log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from tidelog import Producer
from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.source.offsets import PartitionKey
from tidelog_spark.source.options import batch_plan, parse_options, stream_plan
from tidelog_spark.source.reader import TidelogReader, TidelogStreamReader
from tidelog_spark.source.schema import spark_schema

Row = tuple[str, int, int, bytes]


class History:
    """Random topics of one cluster, and how a reader is asked for them."""

    def __init__(self, fake: FakeCluster, seed: int) -> None:
        self.random = Random(seed)
        self.fake = fake
        self.topics = {f"rows-{seed}-{each}": self.random.randint(1, 3) for each in range(2)}
        self.values = iter(range(1_000_000))
        for topic, partitions in self.topics.items():
            fake.create_topic(topic, partitions)

    @property
    def keys(self) -> list[PartitionKey]:
        return [(topic, partition) for topic, count in self.topics.items() for partition in range(count)]

    def write(self, producer: Producer, steps: int) -> None:
        for _ in range(steps):
            key = self.random.choice(self.keys)
            step = self.random.choice(["append", "append", "commit", "abort", "expire"])
            if step == "append":
                builder = RecordBatchBuilder(self.random.choice(["none", "lz4", "zstd"]))
                for _ in range(self.random.randint(1, 40)):
                    builder.append(None, b"%d" % next(self.values), (), 0)
                self.fake.append(*key, builder.build())
            elif step == "expire":
                start = self.random.randint(0, self.fake.end_offset(*key))
                self.fake.delete_records(*key, start // 2)
            else:
                producer.begin_transaction()
                for _ in range(self.random.randint(1, 9)):
                    producer.produce(key[0], b"%d" % next(self.values), partition=key[1])
                producer.flush(20)
                (producer.commit_transaction if step == "commit" else producer.abort_transaction)(20)

    def options(self, **more: str) -> dict[str, str]:
        names = ",".join(self.topics)
        chosen = self.random.choice([{"subscribe": names}, {"subscribePattern": names.replace(",", "|")}])
        limits = {"minPartitions": str(self.random.randint(1, 9))}
        limits |= {"maxRecordsPerPartition": str(self.random.randint(1, 50)), "kafka.max.partition.fetch.bytes": "500"}
        return {"bootstrap.servers": self.fake.bootstrap_servers, **chosen, **limits, **more}

    def bounds(self) -> tuple[dict[PartitionKey, int], dict[PartitionKey, int]]:
        """Return a random start and end of each partition that lie in its log."""
        start, end = {}, {}
        for key in self.keys:
            last = self.fake.end_offset(*key)
            start[key] = self.random.randint(last // 2, last)
            end[key] = self.random.randint(start[key], last)
        return start, end

    def rows(self, start: dict[PartitionKey, int], end: dict[PartitionKey, int]) -> list[Row]:
        """Return the committed records of the node's log."""
        found = [
            (*key, record.offset, bytes(record.value or b""))
            for key in self.keys
            for record in self.fake.records(*key, read_committed=True)
            if start.get(key, 0) <= record.offset < end.get(key, record.offset + 1)
        ]
        return sorted(found)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def producer(fake: FakeCluster) -> Iterator[Producer]:
    with Producer({**fake.client_settings(), "transactional.id": "rows"}) as running:
        running.init_transactions(20)
        yield running


def read(reader: Any, parts: Iterable[InputPartition]) -> list[Row]:
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return [(row["topic"], row["partition"], row["offset"], row["value"]) for row in rows]


def json_of(offsets: dict[PartitionKey, int]) -> str:
    tree: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        tree.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(tree)


@pytest.mark.parametrize("seed", range(2))
def test_batch_has_exactly_the_committed_rows_between_its_offsets(
    fake: FakeCluster, producer: Producer, seed: int
) -> None:
    history = History(fake, seed)
    history.write(producer, 40)
    for _ in range(4):
        start, end = history.bounds()
        options = history.options(startingOffsets=json_of(start), endingOffsets=json_of(end))
        reader = TidelogReader(batch_plan(parse_options(options)), spark_schema(False))
        assert sorted(read(reader, reader.partitions())) == history.rows(start, end)


@pytest.mark.parametrize("seed", range(10, 12))
def test_stream_has_exactly_the_committed_rows_through_restarts_and_elections(
    fake: FakeCluster, producer: Producer, seed: int
) -> None:
    history = History(fake, seed)
    history.write(producer, 30)
    start = history.bounds()[0]
    options = history.options(startingOffsets=json_of(start), maxOffsetsPerTrigger=str(history.random.randint(5, 90)))

    def new_reader() -> TidelogStreamReader:
        return TidelogStreamReader(stream_plan(parse_options(options)), spark_schema(False))

    reader, rows = new_reader(), list[Row]()
    at, expected, is_over = reader.initialOffset(), history.rows(start, {}), False
    while not is_over:
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        if history.random.random() < 0.3:
            fake.elect_leader(*history.random.choice(history.keys))
        if history.random.random() < 0.5:
            reader = new_reader()
        rows += read(reader, reader.partitions(at, end))
        is_over, at = end == at, json.loads(json.dumps(end))
    assert sorted(rows) == expected
