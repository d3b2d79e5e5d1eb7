"""Connections of nodes to each other over Kafka's protocol that fail because of TLS: the error names the cause."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from certificates import Authority, Issued
from toy_listener import open_listener, run

from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.security.certificate_store import CertificateStore, client_contexts
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.server.tls import ListenerTls

CA, OTHER = Authority(), Authority("Other")


def store_of(path: Path, issued: Issued, client_auth: str = "none") -> CertificateStore:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(issued.write_pem(path)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA.pem,
        "ssl.client.auth": client_auth,
    }
    return CertificateStore("SSL", parse_config(SslSettings, settings))


@pytest.mark.parametrize(
    ("server", "own", "text"),
    [
        (CA.issue("n", valid_for=timedelta(days=-1)), CA.issue("me"), "certificate has expired; the server needs a"),
        (CA.issue("n", ("10.9.9.9",)), CA.issue("me"), "must name a host of the certificate"),
        (OTHER.issue("n"), CA.issue("me"), "must name a file with the authority that issued it"),
        (CA.issue("n"), OTHER.issue("me"), "it may require a certificate of the client, of an authority that it"),
    ],
    ids=["expired", "host", "authority", "own certificate"],
)
def test_node_names_the_cause_of_a_failed_connection_to_another(
    tmp_path: Path, server: Issued, own: Issued, text: str
) -> None:
    async def main() -> TidelogError:
        tls = {"SSL": ListenerTls(store_of(tmp_path / "server.pem", server, "required"), None)}
        async with open_listener(names=("SSL",), tls=tls) as listener:
            connections = PeerConnections("node-1", client_contexts(store_of(tmp_path / "own.pem", own)))
            with pytest.raises(TidelogError) as failed:
                await connections.take(f"127.0.0.1:{listener.listeners.ports['SSL']}", 5.0)
            connections.close()
            return failed.value

    found: list[TidelogError] = []

    async def kept() -> None:
        found.append(await main())

    run(kept)
    [error] = found
    assert text in error.message
    assert error.code is ErrorCode._SSL
