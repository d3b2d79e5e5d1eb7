"""Converters and transforms of connectors on a worker: structured records go to topics and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from connect_server import running, wait_for
from pyspark.sql import SparkSession

from tidelog import Consumer, Producer
from tidelog.message import Message
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
    return [each.value() for each in records_of(cluster, topic, count)]


def records_of(cluster: FakeCluster, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Message] = []

    def enough() -> bool:
        found.extend(each for each in consumer.consume(count - len(found), 1) if each.error() is None)
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
        # The source reports its topics behind the commit.
        wait_for(lambda: server.http.get("/connectors/src/topics").json() == {"src": {"topics": ["raw-lines"]}})
        assert server.http.put("/connectors/snk/config", json=of_sink).status_code == 201
        expected = "Struct{Line=a,origin=file}\nStruct{Line=B,origin=file}\n"
        wait_for(lambda: target.exists() and target.read_text() == expected)


LETTERS = {
    "connector.class": "FileStreamSink",
    "topics": "orders",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
    "transforms": "number",
    "transforms.number.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.number.spec": "amount:int32",
    "errors.deadletterqueue.topic.name": "letters",
    "errors.deadletterqueue.topic.replication.factor": "1",
    "errors.deadletterqueue.context.headers.enable": "true",
    "errors.log.enable": "true",
    "errors.log.include.messages": "true",
}


def test_failed_records_go_to_the_dead_letter_topic_once_and_good_ones_to_the_sink(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "out.txt"
    config = {**LETTERS, "file": str(target)}
    with FakeCluster() as cluster, running(cluster.bootstrap_servers, tmp_path, spark) as server:
        cluster.create_topic("orders", 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number, value in enumerate((b'{"amount":"7"}', b"{", b'{"amount":"many"}', b'{"amount":"8"}')):
            producer.produce("orders", value, str(number), headers=[("own", b"x")])
        producer.flush()
        assert server.http.put("/connectors/snk/config", json=config).status_code == 201
        # The first failure ends the task, but the dead letters of its batch are there.
        wait_for(lambda: server.status("snk") == ["RUNNING", "FAILED"])
        trace = server.http.get("/connectors/snk/status").json()["tasks"][0]["trace"]
        assert "Tolerance exceeded in error handler" in trace
        assert not target.exists()
        tolerant = {**config, "errors.tolerance": "all"}
        assert server.http.put("/connectors/snk/config", json=tolerant).status_code == 200
        wait_for(lambda: target.exists() and target.read_text() == '{"amount":7}\n{"amount":8}\n')
        producer.produce("orders", b"}", "4")
        producer.flush()
        letters = records_of(cluster, "letters", 3)

    assert [each.key() for each in letters] == [b"1", b"2", b"4"]
    assert [each.value() for each in letters] == [b"{", b'{"amount":"many"}', b"}"]
    headers = letters[1].headers()
    assert headers is not None
    failure = "org.apache.kafka.connect.errors.DataException"
    assert headers[:-2] == [
        ("own", b"x"),
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"2"),
        ("__connect.errors.connector.name", b"snk"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"TRANSFORMATION"),
        ("__connect.errors.class.name", b"org.apache.kafka.connect.transforms.Cast$Value"),
        ("__connect.errors.exception.class.name", failure.encode()),
    ]
    assert headers[-1][1] == f"{failure}: ".encode() + (headers[-2][1] or b"")
    assert (
        "Error encountered in task snk-0. Executing stage 'VALUE_CONVERTER' with class "
        "'org.apache.kafka.connect.json.JsonConverter', where consumed record is {topic='orders', partition=0, "
        "offset=1, timestamp="
    ) in caplog.text
