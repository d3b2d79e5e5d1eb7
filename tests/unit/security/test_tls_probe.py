"""The reasons why clients cannot connect to gRPC listeners with TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc.aio
import pytest
from certificates import Authority, Issued

from tidelog.admin import QuorumAdmin
from tidelog.cluster.probe import NoAnswer, probe
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_foundation.transport.channels import bind_port
from tidelog_foundation.transport.credentials import server_credentials

CA, OTHER = Authority(), Authority("Other")


def context_of(authority: Authority, folder: Path, client: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    if client is not None:
        context.load_cert_chain(client.write_pem(folder / "client.pem"))
    return context


@asynccontextmanager
async def serving(credentials: grpc.ServerCredentials | None) -> AsyncIterator[str]:
    listener = grpc.aio.server()
    port = bind_port(listener, "127.0.0.1", 0, credentials)
    await listener.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await listener.stop(0)


def credentials_of(folder: Path, server: Issued, client_auth: str = "none") -> grpc.ServerCredentials:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.write_pem(folder / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA.pem,
        "ssl.client.auth": client_auth,
    }
    return server_credentials(CertificateStore("GRPC", parse_config(SslSettings, settings)))


async def reason(credentials: grpc.ServerCredentials | None, tls: ssl.SSLContext) -> str:
    async with serving(credentials) as address:
        found = await probe(address, 5, tls)
    assert isinstance(found, NoAnswer)
    return found.reason


@pytest.mark.parametrize("client", [None, OTHER.issue("bob", hosts=()), CA.issue("a", (), timedelta(days=-1))])
def test_client_without_an_accepted_certificate_learns_the_settings(tmp_path: Path, client: Issued | None) -> None:
    text = asyncio.run(
        reason(credentials_of(tmp_path, CA.issue("server"), "required"), context_of(CA, tmp_path, client))
    )
    assert "it may require a certificate of the client, of an authority that it trusts (ssl.certificate.loc" in text


@pytest.mark.parametrize(
    ("server", "authority", "text"),
    [
        (CA.issue("server"), OTHER, "; ssl.ca.location must name a file with the authority that issued it"),
        (CA.issue("server", ("10.9.9.9",)), CA, "; bootstrap.servers and advertised.listeners must name a host of"),
        (CA.issue("server", valid_for=timedelta(days=-1)), CA, "expired; the server needs a new one, or this machine"),
    ],
)
def test_client_that_refuses_the_servers_certificate_says_what_mends_it(
    tmp_path: Path, server: Issued, authority: Authority, text: str
) -> None:
    assert text in asyncio.run(reason(credentials_of(tmp_path, server), context_of(authority, tmp_path)))


def test_client_with_tls_at_a_port_without_tls_names_the_setting() -> None:
    text = asyncio.run(reason(None, ssl.create_default_context(cadata=CA.pem)))
    assert text == "it does not use TLS (security.protocol=plaintext or sasl_plaintext)"


def test_quorum_client_names_the_reason_in_place_of_a_closed_socket(tmp_path: Path) -> None:
    async def ask() -> str:
        async with serving(credentials_of(tmp_path, CA.issue("server"), "required")) as address:
            settings = {"security.protocol": "ssl", "ssl.ca.pem": CA.pem, "bootstrap.controllers": address}
            with QuorumAdmin(settings) as quorum, pytest.raises(TidelogError) as failed:
                await asyncio.to_thread(quorum.describe_metadata_quorum, request_timeout=0.6)
            assert address in failed.value.message
            return failed.value.message

    assert "it may require a certificate of the client" in asyncio.run(ask())
