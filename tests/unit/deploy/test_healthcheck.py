"""The health check of the image: the address that it finds, and the answers that it requires."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from certificates import Authority
from programs import load_program

PROPERTIES = "node.id=1\n# metrics.listeners=HTTP://commented:1\n metrics.listeners = HTTP://0.0.0.0:9404 \n"


@pytest.fixture(scope="module")
def healthcheck(repository: Path) -> ModuleType:
    return load_program(repository / "deploy" / "docker" / "healthcheck.py")


@contextmanager
def served(status: int, text: str, tls: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[str]]]:
    """A server with one answer; its port, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port, paths
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("program", ["tidelog-node", "tidelog-quorum", "tidelog-server"])
def test_server_is_found_behind_an_init_process(healthcheck: ModuleType, program: str) -> None:
    processes = [["/sbin/docker-init", "--", program], ["/opt/tidelog/bin/python", f"/opt/tidelog/bin/{program}", "f"]]
    assert healthcheck.server_arguments(processes) == ["f"]


def test_other_commands_are_no_servers(healthcheck: ModuleType) -> None:
    assert (
        healthcheck.server_arguments([["sh", "-c", "tidelog-node x"], ["python", "/bin/tidelog", "topic"], []]) is None
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["f"], "HTTP://0.0.0.0:9404"),
        (["f", "--override", "metrics.listeners=HTTP://a:1", "--override", "node.id=2"], "HTTP://a:1"),
        (["--override=metrics.listeners=HTTP://a:1", "f", "--override", "metrics.listeners=HTTP://b:2"], "HTTP://b:2"),
        (["f", "--override", "metrics.listeners="], None),
        ([], None),
    ],
)
def test_address_is_that_of_the_server(healthcheck: ModuleType, arguments: list[str], expected: str | None) -> None:
    assert healthcheck.monitoring_listener(arguments, {"f": PROPERTIES}.__getitem__) == expected


def test_answer_200_is_healthy(healthcheck: ModuleType) -> None:
    with served(200, "ok") as (port, paths):
        assert healthcheck.check(f"HTTP://0.0.0.0:{port},HTTPS://0.0.0.0:1", "/readyz") == "200 OK"
    assert paths == ["/readyz"]


def test_other_answer_is_unhealthy_with_its_reason(healthcheck: ModuleType) -> None:
    with (
        served(503, "fencing: fenced\n") as (port, _),
        pytest.raises(OSError, match=r"/livez answers 503 .*: fencing: fenced$"),
    ):
        healthcheck.check(f"HTTP://127.0.0.1:{port}", "/livez")


def test_https_is_asked_with_the_certificate_of_the_server(healthcheck: ModuleType, tmp_path: Path) -> None:
    authority = Authority()
    store = authority.issue("tidelog-node").write_pem(tmp_path / "node.pem")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.write_pem(tmp_path / "ca.pem"))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(store)
    properties = f"ssl.keystore.location={store}\n"
    found = healthcheck.certificate(["f"], lambda path: properties if path == "f" else Path(path).read_text())
    assert found == str(store)
    with served(200, "ok", tls) as (port, paths):
        assert healthcheck.check(f"HTTPS://0.0.0.0:{port}", "/safe-to-stop?wait=1", found) == "200 OK"
    assert paths == ["/safe-to-stop?wait=1"]
    with served(503, "last_in_sync_replica", tls) as (port, _), pytest.raises(OSError, match=r"last_in_sync_replica$"):
        healthcheck.check(f"HTTPS://0.0.0.0:{port}", "/safe-to-stop", found)


@pytest.mark.parametrize("text", ["", "ssl.keystore.location=/missing", "ssl.keystore.location=${env:STORE}"])
def test_certificate_that_cannot_be_read_is_none(healthcheck: ModuleType, text: str) -> None:
    assert healthcheck.certificate(["f"], lambda path: text if path == "f" else Path(path).read_text()) is None


def test_https_is_healthy_when_it_accepts_connections_without_a_certificate(healthcheck: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert healthcheck.check(f"HTTPS://127.0.0.1:{port}", "/livez") == "accepts connections"
    with pytest.raises(ConnectionRefusedError):
        healthcheck.check(f"HTTPS://127.0.0.1:{port}", "/livez")


def test_reference_instead_of_an_address_is_an_error(healthcheck: ModuleType) -> None:
    with pytest.raises(ValueError, match="cannot read the address"):
        healthcheck.check("${env:METRICS}", "/livez")
