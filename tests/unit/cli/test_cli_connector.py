"""``tidelog connector``: the REST API of a worker whose topics and queries are in memory."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from connect_in_memory import WorkerInMemory
from starlette.requests import Request
from starlette.responses import Response
from typer.testing import CliRunner, Result

from tidelog.testing.ports import free_ports
from tidelog_cli.commands import app
from tidelog_connect.rest.application import application

SINK = {"connector.class": "FileStreamSink", "file": "/data/out", "topics": "lines", "tasks.max": "2"}


async def never(url: str, request: Request, body: bytes) -> Response:
    raise AssertionError("this worker leads")


class Worker(WorkerInMemory):
    """A worker that settles after each command."""

    def tidelog(self, *words: str, stdin: object = None) -> Result:
        given = None if stdin is None else json.dumps(stdin)
        result = CliRunner().invoke(app, ["connector", *words, "--url", self.worker.url()], input=given)
        self.settle()
        return result

    def document(self, *words: str, stdin: object = None) -> Any:
        result = self.tidelog(*words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def worker() -> Iterator[Worker]:
    found = Worker(f"http://127.0.0.1:{free_ports(1)[0]}")
    found.worker.lead(1)
    port = int(found.worker.url().rpartition(":")[2])
    web = application(found.worker, found.worker.loggers, 10_000, never)
    server = uvicorn.Server(uvicorn.Config(web, host="127.0.0.1", port=port, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield found
    server.should_exit = True
    thread.join()


@pytest.mark.costly
def test_connector_is_created_changed_controlled_and_deleted(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "snk.json"
    file.write_text(json.dumps({"name": "ignored", "config": SINK}))
    assert worker.tidelog("validate", str(file)).exit_code == 0
    assert worker.document("create", "snk", str(file))["config"]["file"] == "/data/out"
    listed = worker.tidelog("list").output.splitlines()
    assert listed[1].split() == ["snk", "sink", "RUNNING", "2", "RUNNING", worker.worker.url()[7:], "FileStreamSink"]
    assert worker.document("list", "--json")["snk"]["info"]["type"] == "sink"
    changed = worker.document("configure", "snk", "--set", "tasks.max=1")
    assert changed["config"]["tasks.max"] == "1"
    assert len(worker.document("tasks", "snk")) == 1
    assert worker.document("configure", "snk", "-", stdin=SINK)["config"]["tasks.max"] == "2"
    for command, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        assert worker.tidelog(command, "snk").exit_code == 0
        assert worker.document("status", "snk", "--json")["connector"]["state"] == state
    entry = {"partition": {"kafka_topic": "lines", "kafka_partition": 0}, "offset": {"kafka_offset": 3}}
    worker.document("offsets", "snk", "--alter", "-", "--yes", stdin={"offsets": [entry]})
    assert worker.document("offsets", "snk")["offsets"][0]["offset"] == {"kafka_offset": 3}
    worker.document("offsets", "snk", "--reset", "--yes")
    assert worker.document("topics", "snk") == {"snk": {"topics": []}}
    assert worker.document("show", "snk")["name"] == "snk"
    assert worker.tidelog("delete", "snk", "--yes").exit_code == 0
    assert worker.document("list", "--json") == {}


def test_failed_connector_is_seen_and_restarted(worker: Worker) -> None:
    worker.document("create", "snk", "-", stdin=SINK)
    worker.queries.fail("snk", "disk full")
    worker.settle()
    shown = worker.tidelog("status", "snk")
    assert (shown.exit_code, "disk full" in shown.output) == (1, True)
    assert worker.document("restart", "snk", "--only-failed")["tasks"][0]["state"] == "RESTARTING"
    assert worker.tidelog("status", "snk").exit_code == 0
    assert worker.tidelog("restart", "snk", "--task", "0").exit_code == 0


def test_plugins_and_levels_are_shown(worker: Worker) -> None:
    assert "FileStreamSinkConnector" in worker.tidelog("plugins").output
    assert worker.document("plugins", "FileStreamSink", "--json")[0]["name"] == "file"
    assert worker.document("log-level", "x.cli", "WARN") == ["x.cli"]
    assert worker.tidelog("log-level", "x.cli", "ERROR", "--cluster").exit_code == 0
    assert worker.document("log-level", "x.cli")["level"] == "ERROR"


@pytest.mark.parametrize(
    ("words", "stdin", "code", "text"),
    [
        (("validate", "-"), {**SINK, "topics": ""}, 1, "Must configure one of topics or topics.regex"),
        (("create", "a", "-"), {**SINK, "tasks.max": "x"}, 1, "POST /connectors: Connector configuration is invalid"),
        (("create", "a", "-", "--state", "X"), SINK, 2, "--state must be one of"),
        (("create", "a", "-"), [], 2, "must have a JSON object"),
        (("status", "none"), None, 1, "No status found for connector none"),
        (("configure", "a"), None, 2, "Pass either FILE, or --set and --unset."),
        (("offsets", "a", "--alter", "-", "--reset"), None, 2, "Pass either --alter or --reset."),
        (("restart", "a", "--task", "0", "--only-failed"), None, 2, "Pass either --task or --only-failed."),
        (("delete", "a"), None, 2, "Refusing to delete connector a without confirmation"),
    ],
)
def test_refused_commands_say_why(worker: Worker, words: tuple[str, ...], stdin: Any, code: int, text: str) -> None:
    result = worker.tidelog(*words, stdin=stdin)
    assert (result.exit_code, text in " ".join(result.output.split())) == (code, True), result.output


def test_worker_that_does_not_answer_is_named() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    result = CliRunner().invoke(app, ["connector", "list", "--url", url])
    assert (result.exit_code, f"No Connect worker answers at {url}" in result.output) == (1, True)


def test_worker_is_called_over_http_without_certificate_authorities(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: loaded.append(1))
    assert worker.document("list", "--json") == {}
    assert loaded == []
