"""The REST API: the recorded calls of Kafka Connect 4.1, and what they do not show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connect_in_memory import WorkerInMemory
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.testclient import TestClient

from tidelog_connect.herder.records import leader_record
from tidelog_connect.rest.application import FORWARDED, application
from tidelog_foundation.errors import ErrorCode, error_for

RECORDED = json.loads((Path(__file__).parent / "recorded_calls.json").read_text())
URL = "http://127.0.0.1:28283"

DIFFERENCES = {
    "version": "Versions are those of Tidelog.",
    "documentation": "The texts that describe settings are our own.",
    "01": "The id of the cluster and the commit are our own.",
    "04": "MirrorMaker's connectors are not installed: cluster links do their work.",
    "05": "MirrorMaker's connectors are not installed, headers have fewer converters, and one of Avro is our own.",
    "06": "The source's batch.size is larger; exactly.once.support, offsets.storage.topic do not exist.",
    "09": "The groups are fewer.",
    "10": "The groups are fewer.",
    "13": "The message lists classes, not Java's descriptions of them.",
    "14": "The message has no Java class and no position.",
    "17": "Names are sorted; Connect's order is that of a hash map.",
    "50": "The root logger has the level of the process.",
}
"""All differences from the recorded answers, by file or field, with their reasons."""


@pytest.fixture
def memory() -> WorkerInMemory:
    found = WorkerInMemory(URL)
    found.queries.topics = {"file-src": frozenset(("lines",))}
    found.worker.lead(1)
    return found


@pytest.fixture
def client(memory: WorkerInMemory) -> Iterator[TestClient]:
    async def forward(url: str, request: Request, body: bytes) -> Response:
        return JSONResponse({"forwarded": f"{url}{request.url.path}", "body": json.loads(body or b"null")}, 202)

    app = application(memory.worker, memory.worker.loggers, 10_000, forward)
    with TestClient(app, base_url=URL, raise_server_exceptions=False) as opened:
        yield opened


def call(client: TestClient, request: dict[str, Any]) -> Any:
    body = None if "body" not in request else json.dumps(request["body"])
    path = request["path"].replace("$", "%24")
    return client.request(request["method"], path, content=body, headers={"Content-Type": "application/json"})


def test_recorded_calls_of_kafka_connect_have_the_same_answers(memory: WorkerInMemory, client: TestClient) -> None:
    for recorded in RECORDED:
        number = recorded["file"]
        if number == "30":
            memory.storage.write_source_offsets("file-src", {'{"filename":"/data/in.txt"}': {"position": 791}})
            memory.storage.write_sink_offsets("file-snk", {("lines", 2): 50})
        answer = call(client, recorded["request"])
        assert answer.status_code == recorded["status"], (number, answer.text)
        assert answer.headers.get("location") == recorded["headers"].get("Location"), number
        body = answer.json() if answer.content else ""
        if "Content-Type" in recorded["headers"]:
            assert answer.headers["content-type"] == "application/json", number
        if number in DIFFERENCES:
            assert shape(body) == shape(recorded["response"]), number
        else:
            assert same(body) == same(recorded["response"]), number
        memory.settle()


def test_validation_reports_the_recorded_errors_and_definitions(client: TestClient) -> None:
    for recorded in (each for each in RECORDED if each["file"] in ("06", "09", "10")):
        answer = call(client, recorded["request"]).json()
        response = recorded["response"]
        if isinstance(response, dict):
            # Without "file", which our source requires: a server has no standard input to read.
            is_missing = "file" not in recorded["request"]["body"]
            assert answer["error_count"] == response["error_count"] + is_missing
            answer, response = answer["configs"], response["configs"]
        for mine, theirs in zip(answer[:2], response[:2], strict=True):
            required = {"required": True} if mine.get("name") == "file" else {}
            assert same(mine) == same(theirs) | required


def same(value: Any) -> Any:
    """Return a value without what always differs: `version` and `documentation`."""
    if isinstance(value, dict):
        return {key: same(each) for key, each in value.items() if key not in ("version", "documentation")}
    return [same(each) for each in value] if isinstance(value, list) else value


def shape(value: Any) -> Any:
    """Return the fields and types of a value; of a list, those of its first element."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(each) for each in value[:1]] if isinstance(value, list) else type(value).__name__


def test_plugins_of_all_kinds_are_those_of_kafka_connect(client: TestClient) -> None:
    [recorded] = [each for each in RECORDED if each["file"] == "05"]
    answer = call(client, recorded["request"]).json()
    kafkas = [same(each) for each in recorded["response"] if "mirror" not in each["class"]]
    ours = [same(each) for each in answer]
    missing = [each for each in kafkas if each not in ours]
    assert {each["type"] for each in missing} == {"header_converter"}
    assert [each["class"] for each in ours if each not in kafkas] == ["io.tidelog.connect.avro.AvroConverter"]


HOIST = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "line"}


@pytest.mark.parametrize(
    ("settings", "errors"),
    [
        (HOIST, {}),
        (
            {"transforms": "h"},
            {
                "transforms.h.type": [
                    'Missing required configuration "transforms.h.type" which has no default value.',
                    "Invalid value null for configuration transforms.h.type: Not a Transformation",
                ]
            },
        ),
        (
            {"transforms": "h", "transforms.h.type": "NoSuch"},
            {
                "transforms.h.type": [
                    "Invalid value NoSuch for configuration transforms.h.type: Class NoSuch could not be found."
                ]
            },
        ),
        (
            {**HOIST, "transforms": "h,h"},
            {"transforms": ["Invalid value [h, h] for configuration transforms: Duplicate alias provided."]},
        ),
        (
            {**HOIST, "transforms.h.negate": "true"},
            {
                "transforms.h.type": [
                    "Config 'transforms.h.negate' was provided but there is no config 'transforms.h.predicate' "
                    "defining a predicate to be negated."
                ]
            },
        ),
        (
            {**HOIST, "transforms.h.predicate": "p", "predicates": "q", "predicates.q.type": "RecordIsTombstone"},
            {
                "transforms.h.predicate": [
                    "Invalid value p for configuration predicate: Predicate is not among those defined: q"
                ]
            },
        ),
        (
            {**HOIST, "transforms.h.fild": "x"},
            {"transforms.h.fild": ["Unknown configuration transforms.h.fild; did you mean transforms.h.field?"]},
        ),
        (
            {"value.converter": "JsonConverter", "value.converter.schemas.enable": "x"},
            {
                "value.converter.schemas.enable": [
                    "Invalid value x for configuration value.converter.schemas.enable: Expected value to be either "
                    "true or false"
                ]
            },
        ),
        (
            {"errors.tolerance": "some", "errors.deadletterqueue.topic.name": "lines"},
            {
                "errors.tolerance": [
                    "Invalid value some for configuration errors.tolerance: String must be one of: none, all"
                ],
                "topics": [
                    "The DLQ topic 'lines' may not be included in the list of topics ('topics=[lines]') consumed by "
                    "the connector"
                ],
            },
        ),
        (
            {"topics": "", "topics.regex": "l.*", "errors.deadletterqueue.topic.name": "lost"},
            {
                "topics.regex": [
                    "The DLQ topic 'lost' may not be matched by the regex for the topics ('topics.regex=l.*') consumed "
                    "by the connector"
                ],
            },
        ),
        (
            {"key.converter": "NoSuch", "header.converter": "JsonConverter"},
            {
                "key.converter": [
                    "Invalid value NoSuch for configuration key.converter: Class NoSuch could not be found."
                ],
                "header.converter": [
                    "Invalid value JsonConverter for configuration header.converter: Class JsonConverter could not be "
                    "found."
                ],
            },
        ),
    ],
)
def test_settings_of_steps_are_validated(
    client: TestClient, settings: dict[str, str], errors: dict[str, list[str]]
) -> None:
    answer = client.put("/connector-plugins/FileStreamSink/config/validate", json={**SINK, "name": "a", **settings})
    found = {each["value"]["name"]: each["value"]["errors"] for each in answer.json()["configs"]}
    assert {name: texts for name, texts in found.items() if texts} == errors


SINK = {"connector.class": "FileStreamSink", "file": "/data/out", "topics": "lines"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("PUT", "/connectors/a/config", {"topics": "x"}, 400, "contains no connector type"),
        ("PUT", "/connectors/a/config", {**SINK, "name": "b"}, 400, "doesn't match connector name in the URL"),
        ("PUT", "/connectors/a/config", {**SINK, "fiel": "x"}, 400, "Unknown configuration fiel; did you mean file?"),
        ("PUT", "/connectors/a/config", {**SINK, "topics": " "}, 400, "Must configure one of topics or topics.regex"),
        ("PUT", "/connectors/a/config", {**SINK, "topics.regex": "x"}, 400, "mutually exclusive"),
        ("PUT", "/connectors/a/config", {**SINK, "file": {"a": 1}}, 500, "must be a text"),
        ("POST", "/connectors", {"name": "a", "config": SINK, "initial_state": "X"}, 400, "initial_state must be one"),
        ("POST", "/connectors", {"name": "a"}, 400, "config must be an object"),
        ("POST", "/connectors", [], 500, "must be a JSON object"),
        ("PATCH", "/connectors/a/config", {}, 404, "Connector a not found"),
        ("POST", "/connectors/a/tasks/0/restart", None, 404, "Unknown connector: a"),
        ("POST", "/connectors/a/tasks/x/restart", None, 404, "Not Found"),
        ("GET", "/connectors?expand=x", None, 200, ""),
        ("GET", "/connectors/a/topics", None, 404, "Connector a not found"),
        ("GET", "/admin/loggers/none", None, 404, "Logger none not found."),
        ("PUT", "/admin/loggers/root", {}, 400, "'level' parameter was not specified"),
        ("PUT", "/admin/loggers/root", {"level": "X"}, 404, "invalid log level 'X'."),
        ("PUT", "/admin/loggers/root?scope=x", {"level": "INFO"}, 400, "scope must be worker or cluster"),
        ("PATCH", "/connectors/a/offsets", {"offsets": []}, 400, "need to be provided"),
    ],
)
def test_refused_calls_name_the_reason(
    client: TestClient, method: str, path: str, body: Any, status: int, text: str
) -> None:
    answer = call(client, {"method": method, "path": path, "body": body})
    assert (answer.status_code, text in answer.text) == (status, True), answer.text


def test_body_above_the_limit_is_refused(client: TestClient) -> None:
    answer = client.post("/connectors", content=b"x" * 10_001)
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        ({"kafka_topic": "t"}, {"kafka_offset": 1}, "must contain the keys 'kafka_topic' and 'kafka_partition'"),
        ({"kafka_topic": "t", "kafka_partition": -1}, {"kafka_offset": 1}, "Failed to parse the kafka_partition -1"),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"offset": 1}, "contain the key 'kafka_offset'"),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": True}, "Failed to parse the kafka_offset"),
        ("x", None, "needs an object"),
    ],
)
def test_offsets_that_are_not_a_sinks_are_refused(
    memory: WorkerInMemory, client: TestClient, partition: Any, offset: Any, text: str
) -> None:
    client.post("/connectors", json={"name": "a", "config": SINK, "initial_state": "STOPPED"})
    memory.settle()
    answer = client.patch("/connectors/a/offsets", json={"offsets": [{"partition": partition, "offset": offset}]})
    assert (answer.status_code, text in answer.text) == (400, True), answer.text


def test_offsets_of_a_source_are_altered_and_reset(memory: WorkerInMemory, client: TestClient) -> None:
    config = {"connector.class": "FileStreamSource", "file": "/data/in", "topic": "lines"}
    client.post("/connectors", json={"name": "a", "config": config, "initial_state": "STOPPED"})
    memory.settle()
    entry = {"partition": {"filename": "/data/in"}, "offset": {"position": 7}}
    refused = client.patch("/connectors/a/offsets", json={"offsets": [{**entry, "offset": {"position": -1}}]})
    assert refused.status_code == 400
    assert client.patch("/connectors/a/offsets", json={"offsets": [entry]}).status_code == 200
    assert client.get("/connectors/a/offsets").json() == {"offsets": [entry]}
    assert client.delete("/connectors/a/offsets").status_code == 200
    assert client.get("/connectors/a/offsets").json() == {"offsets": []}


def test_changes_are_forwarded_to_the_leader_once_and_reads_are_not(memory: WorkerInMemory, client: TestClient) -> None:
    memory.worker.resign()
    memory.worker.follow()
    assert client.put("/connectors/a/pause").status_code == 503
    assert client.get("/health").status_code == 503
    memory.worker.replay(leader_record("b:1", "http://b:1"), 7)
    forwarded = client.put("/connectors/a/config", json=SINK)
    assert forwarded.json() == {"forwarded": "http://b:1/connectors/a/config", "body": SINK}
    assert client.put("/connectors/a/pause", headers={FORWARDED: "1"}).status_code == 409
    assert client.get("/connectors").json() == []
    assert client.put("/admin/loggers/x.y", json={"level": "WARN"}).json() == ["x.y"]


def test_failed_write_is_an_error_and_changes_nothing(memory: WorkerInMemory, client: TestClient) -> None:
    memory.storage.refusal = error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "another worker leads")
    answer = client.put("/connectors/a/config", json=SINK)
    assert (answer.status_code, answer.json()["message"]) == (500, "another worker leads")
    assert client.get("/connectors").json() == []


def test_level_of_a_logger_on_all_workers_is_a_record(memory: WorkerInMemory, client: TestClient) -> None:
    assert client.put("/admin/loggers/x.z?scope=cluster", json={"level": "debug"}).status_code == 204
    assert memory.storage.written[-1].key == "logger-cluster-x.z"
    assert client.get("/admin/loggers/x.z").json()["level"] == "DEBUG"
    assert "x.z" in client.get("/admin/loggers").json()
