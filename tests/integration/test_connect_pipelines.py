"""Converters and transforms of connectors on a worker: structured records go to topics and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from connect_server import running, wait_for
from pyspark.sql import SparkSession

from tidelog import Consumer
from tidelog.testing import FakeCluster

# Each starts queries on Spark; tests/unit/connect has the rules without it.
pytestmark = pytest.mark.compat

JSON = "org.apache.kafka.connect.json.JsonConverter"
STEPS = {
    "transforms": "hoist,count,route",
    "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.hoist.field": "line",
    "transforms.count.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.count.static.field": "origin",
    "transforms.count.static.value": "file",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "raw-$1",
}


def values_of(cluster: FakeCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def enough() -> bool:
        found.extend(each.value() for each in consumer.consume(count - len(found), 1) if each.error() is None)
        return len(found) >= count

    wait_for(enough)
    consumer.close()
    return found


def test_lines_become_structs_in_a_routed_topic_and_lines_again(tmp_path: Path, spark: SparkSession) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("a\nB\n")
    of_source = {
        "connector.class": "FileStreamSource",
        "file": str(source),
        "topic": "lines",
        "value.converter": JSON,
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        **STEPS,
    }
    of_sink = {
        "connector.class": "FileStreamSink",
        "file": str(target),
        "topics": "raw-lines",
        "value.converter": JSON,
        "transforms": "case",
        "transforms.case.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.case.renames": "line:Line",
    }
    with FakeCluster() as cluster, running(cluster.bootstrap_servers, tmp_path, spark) as server:
        assert server.http.put("/connectors/src/config", json=of_source).status_code == 201
        envelopes = [json.loads(value or b"") for value in values_of(cluster, "raw-lines", 2)]
        assert [each["payload"] for each in envelopes] == [
            {"line": "a", "origin": "file"},
            {"line": "B", "origin": "file"},
        ]
        assert envelopes[0]["schema"]["fields"][0] == {"type": "string", "optional": False, "field": "line"}
        assert server.http.get("/connectors/src/topics").json() == {"src": {"topics": ["raw-lines"]}}
        assert server.http.put("/connectors/snk/config", json=of_sink).status_code == 201
        expected = "Struct{Line=a,origin=file}\nStruct{Line=B,origin=file}\n"
        wait_for(lambda: target.exists() and target.read_text() == expected)
