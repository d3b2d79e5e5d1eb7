"""``tidelog pipeline run`` moves records exactly once and in order while the command and its JVM are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from quick_jvm import QUICK_JVM
from spark_process import SparkProcess

from tidelog import Consumer, TopicPartition
from tidelog.testing import FakeCluster
from tidelog_connect.connectors.datagen.generator import RecordGenerator

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(1800)]

DEADLINE_S = 300.0
"""For each step; a start of Spark takes 20 s alone, and minutes on a busy machine."""
PORTION = 600
"""Lines that are appended to the file before each end of the command."""
ENDINGS = ("in batch", "command", "SIGTERM", "in batch", "JVM", "in batch")
SEED = 7
SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "number", "type": {"type": "long", "arg.properties": {"iteration": {"start": 0}}}},
        {"name": "customer", "type": {"type": "int", "arg.properties": {"range": {"min": 0, "max": 1000}}}},
        {"name": "note", "type": {"type": "string", "arg.properties": {"length": {"min": 0, "max": 20}}}},
    ],
}


class KilledPipeline:
    """A file's lines to a topic and on to another file, and generated records to a topic, by one command."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self._folder, self._source, self._target = folder, folder / "in.txt", folder / "out.txt"
        self._chance = random.Random(SEED)
        self._count = 0
        self.batches_to_repeat = 0
        document = {
            "name": "killed",
            "settings": {
                "bootstrap.servers": cluster.bootstrap_servers,
                "session.timeout.ms": 3000,
                "sink.max.offsets.per.trigger": 300,
                "checkpoint.location": str(folder / "checkpoints"),
                "spark.master": "local[2]",
                "spark.ui.enabled": "false",
                **QUICK_JVM,
            },
            "connectors": {
                "pipe-in": {
                    "connector.class": "FileStreamSource",
                    "file": str(self._source),
                    "topic": "lines",
                    "batch.size": 200,
                },
                "pipe-out": {"connector.class": "FileStreamSink", "file": str(self._target), "topics": "lines"},
                "orders": {
                    "connector.class": "Datagen",
                    "kafka.topic": "orders",
                    "schema.string": json.dumps(SCHEMA),
                    "random.seed": SEED,
                    "max.interval": 10,
                    "value.converter": "JsonConverter",
                    "value.converter.schemas.enable": "false",
                },
            },
        }
        # JSON is YAML.
        file = folder / "pipeline.yaml"
        file.write_text(json.dumps(document, indent=1))
        self.log = folder / "pipeline.log"
        self.process = SparkProcess(["pipeline", "run", str(file)], self.log)

    @property
    def lines(self) -> list[bytes]:
        """The lines that the source has."""
        return [b"line %d" % number for number in range(self._count)]

    @property
    def written(self) -> list[bytes]:
        """The lines that the sink has written."""
        return self._target.read_bytes().splitlines() if self._target.exists() else []

    def append(self) -> None:
        """Append a portion of lines to the source's file."""
        with self._source.open("ab") as file:
            file.write(b"".join(b"line %d\n" % number for number in range(self._count, self._count + PORTION)))
        self._count += PORTION

    def run_until_ended(self, ending: str) -> None:
        """Let the pipeline write a part of the last portion, and end it wherever it is."""
        self.process.start()
        part = self._count - self._chance.randrange(PORTION // 3, PORTION)
        self.wait_for(lambda: len(self.written) >= part)
        if ending == "in batch":
            self._kill_in_batch()
            return
        time.sleep(self._chance.uniform(0, 1))
        if ending == "SIGTERM":
            assert self.process.terminate(DEADLINE_S) == 0
        elif ending == "JVM":
            assert self.process.kill_jvm()
            assert self.process.wait(DEADLINE_S) == 1
        else:
            self.process.kill()

    def _kill_in_batch(self) -> None:
        """Kill the command and its JVM once the sink has written a batch, before Spark knows that it is written."""
        jvm = self.process.jvm_pid()
        assert jvm is not None
        before = self._target.stat().st_size
        self.append()
        self.wait_for(lambda: self._target.stat().st_size > before, pause_s=0.0005)
        os.kill(jvm, signal.SIGSTOP)
        self.process.kill()
        os.kill(jvm, signal.SIGKILL)
        note = json.loads(self._target.with_name("out.txt.tidelog-batch").read_text())
        number = note["batch"].split("/")[1]
        self.batches_to_repeat += not [*self._folder.glob(f"checkpoints/*/pipe-out/*/commits/{number}")]

    def wait_for(self, condition: Callable[[], bool], pause_s: float = 0.05) -> None:
        """Wait for a condition while the command runs."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.process.is_running, "the pipeline has ended"
            assert time.monotonic() < deadline, f"{len(self.written)} of {self._count} lines after {DEADLINE_S} s"
            time.sleep(pause_s)


class CommittedValues:
    """The values of a topic's committed records, in their order."""

    def __init__(self, cluster: FakeCluster, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "check"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._found: list[bytes | None] = []

    def read(self) -> list[bytes | None]:
        """Return all values that are there by now."""
        while batch := self._consumer.consume(1000, 1):
            self._found += [each.value() for each in batch if each.error() is None]
        return self._found

    def close(self) -> None:
        self._consumer.close()


def test_pipeline_moves_records_exactly_once_and_in_order_while_it_is_killed(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        for topic in ("lines", "orders"):
            cluster.create_topic(topic)
        pipeline = KilledPipeline(cluster, tmp_path)
        orders, lines = CommittedValues(cluster, "orders"), CommittedValues(cluster, "lines")
        generated = []
        try:
            for ending in ENDINGS:
                pipeline.append()
                pipeline.run_until_ended(ending)
                generated.append(len(orders.read()))
            pipeline.append()
            pipeline.process.start()
            pipeline.wait_for(lambda: len(pipeline.written) >= len(pipeline.lines))
            assert pipeline.process.terminate(DEADLINE_S) == 0
            assert pipeline.written == pipeline.lines
            assert lines.read() == pipeline.lines
            generator, found = RecordGenerator(SCHEMA, SEED), orders.read()
            assert [json.loads(value or b"") for value in found] == [*map(generator.record, range(len(found)))]
            # Otherwise the kills did not meet what they shall.
            assert pipeline.batches_to_repeat
            assert len(set(generated)) > 2, generated
        except BaseException:
            sys.stderr.write(pipeline.log.read_text()[-20_000:])
            raise
        finally:
            pipeline.process.stop()
            orders.close()
            lines.close()
