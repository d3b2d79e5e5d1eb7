"""Two workers of a group whose REST listeners have TLS, certificates of clients and passwords."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from pathlib import Path

import httpx2
import pytest
from certificates import Authority
from connect_server import running, wait_for
from support.scrapes import scrape

from tidelog.testing import FakeCluster
from tidelog.testing.ports import free_ports
from tidelog_connect.rest import listening

CA = Authority()
BASIC = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
ALICE = ("alice", "secret")
SINK = {"connector.class": "FileStreamSink", "file": "x", "topics": "lines"}


def settings(folder: Path) -> dict[str, str]:
    (folder / "users").write_text(f"{ALICE[0]}={ALICE[1]}\n")
    return {
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.keystore.location": str(
            CA.issue("worker", ["127.0.0.1"]).write_pem(folder / "worker.pem")
        ),
        "listeners.https.ssl.truststore.type": "PEM",
        "listeners.https.ssl.truststore.location": str(CA.write_pem(folder / "ca.pem")),
        "listeners.https.ssl.client.auth": "required",
        "rest.extension.classes": BASIC,
        "rest.basic.auth.credentials.file": str(folder / "users"),
    }


def test_secured_workers_forward_changes_to_their_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_HEAD_S", 1.0)
    stranger, known = (ssl.create_default_context(cadata=CA.pem) for _ in range(2))
    known.load_cert_chain(CA.issue("client").write_pem(tmp_path / "client.pem"))
    own, client = settings(tmp_path), {"verify": known, "auth": ALICE}
    metrics = {"metrics.listeners": "HTTP://127.0.0.1:0"}
    admin = {"admin.listeners": f"http://127.0.0.1:{free_ports(1)[0]}"}
    with (
        FakeCluster() as cluster,
        running(cluster.bootstrap_servers, tmp_path, own=own | metrics, client=client) as first,
    ):
        wait_for(lambda: first.server.worker.leads)
        with running(cluster.bootstrap_servers, tmp_path, own={**own, **admin}, client=client) as second:
            body = {"name": "snk", "config": SINK, "initial_state": "PAUSED"}
            assert second.http.post("/connectors", json=body).status_code == 201
            wait_for(lambda: second.status("snk") == ["PAUSED", "PAUSED"])
            assert second.http.get("/connectors", auth=("alice", "wrong")).status_code == 401
            assert second.http.post("/connectors", json=body, auth=("alice", "wrong")).status_code == 401
            assert second.http.get("/admin/loggers").status_code == 404
            with httpx2.Client(base_url=admin["admin.listeners"], auth=ALICE, trust_env=False) as of_admin:
                path = "/admin/loggers/tidelog_connect.secured_test"
                levels = {"level": "DEBUG"}
                assert of_admin.put(path, params={"scope": "cluster"}, json=levels).status_code == 204
                assert of_admin.get("/connectors").status_code == 404
                wait_for(lambda: of_admin.get(path).json().get("level") == "DEBUG")
        scraped = scrape(first.server.monitoring_ports["HTTP"])
        assert scraped.value("tidelog_connect_leader") == 1
        assert scraped.value("tidelog_connect_connectors", state="PAUSED") == 1
        assert scraped.value("tidelog_connect_tasks", connector="snk", state="PAUSED") == 1
        assert scraped.value("tidelog_connect_rest_requests_total", method="POST", status="201") == 1
        assert scraped.value("tidelog_connect_rest_requests_total", method="POST", status="401") == 0
        assert scraped.value("tidelog_certificate_expiry_timestamp_seconds", listener="https") > 0
        with pytest.raises(httpx2.TransportError), httpx2.Client(verify=stranger, trust_env=False) as other:
            other.get(first.url)
        _check_renewal(first.url, tmp_path, known)
        _check_silence(first.url, known)


def _check_renewal(url: str, folder: Path, known: ssl.SSLContext) -> None:
    """A certificate that replaces the file is served without a restart."""
    host, port = url.removeprefix("https://").split(":")

    def served() -> bytes | None:
        with (
            socket.create_connection((host, int(port))) as plain,
            known.wrap_socket(plain, server_hostname=host) as tls,
        ):
            return tls.getpeercert(binary_form=True)

    former = served()
    CA.issue("worker", ["127.0.0.1"]).write_pem(folder / "worker.pem")
    wait_for(lambda: served() != former)


def _check_silence(url: str, known: ssl.SSLContext) -> None:
    """Connections that send no whole head of a request are closed."""
    host, port = url.removeprefix("https://").split(":")
    for sent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
        with (
            socket.create_connection((host, int(port))) as plain,
            known.wrap_socket(plain, server_hostname=host) as tls,
        ):
            tls.sendall(sent)
            tls.settimeout(30)
            began = time.monotonic()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                assert tls.recv(1) == b""
            assert time.monotonic() - began < 25
