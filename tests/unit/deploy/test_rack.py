"""The program that finds the zone of a machine: its request, its file, and the errors that it repeats."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from programs import load_program

ENVIRONMENT = {"MACHINE": "node-a"}


@pytest.fixture(scope="module")
def rack(repository: Path) -> ModuleType:
    return load_program(repository / "deploy" / "docker" / "rack.py")


@contextmanager
def api_server(status: int, content: object) -> Iterator[tuple[http.client.HTTPConnection, list[tuple[str, str]]]]:
    """A connection to a server with one answer, and the paths and tokens that it received."""
    requests: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["Authorization"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        try:
            yield connection, requests
        finally:
            connection.close()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("labels", "expected"), [({"topology.kubernetes.io/zone": "eu-west-1a"}, "eu-west-1a"), ({"other": "x"}, "")]
)
def test_zone_is_the_label_of_the_machine(rack: ModuleType, labels: dict[str, str], expected: str) -> None:
    with api_server(200, {"metadata": {"labels": labels}}) as (connection, requests):
        assert rack.zone(connection, "secret", "node-a", "topology.kubernetes.io/zone") == expected
    assert requests == [("/api/v1/nodes/node-a", "Bearer secret")]


def test_name_of_a_machine_is_no_path(rack: ModuleType) -> None:
    with api_server(200, {"metadata": {}}) as (connection, requests):
        rack.zone(connection, "secret", "../pods?x", "zone")
    assert requests[0][0] == "/api/v1/nodes/..%2Fpods%3Fx"


def test_missing_right_is_an_error_that_is_not_repeated(rack: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "zone"
    with api_server(403, {"message": "nodes is forbidden"}) as (connection, requests):
        asked = rack.main(file, ENVIRONMENT, lambda _: rack.zone(connection, "secret", "node-a", "zone"))
    assert asked == 1
    assert len(requests) == 1
    assert not file.exists()


def test_server_that_does_not_answer_is_asked_again(
    rack: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rack, "_PAUSE_S", 0)
    answers: list[object] = [OSError("connection refused"), http.client.BadStatusLine("x"), "zone-1"]

    def ask(_: object) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert rack.main(tmp_path / "zone", ENVIRONMENT, ask) == 0
    assert (tmp_path / "zone").read_text() == "zone-1"
