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
from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.config import parse_config
from tidelog_foundation.config.endpoints import parse_address
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.quorum import DescribeQuorumRequest
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_foundation.transport.channels import ChannelSecurity, bind_port
from tidelog_foundation.transport.credentials import server_credentials
from tidelog_foundation.transport.diagnosis import Diagnosis
from tidelog_foundation.transport.probe import NoAnswer, probe
from tidelog_node.fetching import FetchRequest
from tidelog_node.server.controller_client import ControllerClient
from tidelog_node.server.grpc_replica_transport import GrpcReplicaTransport
from tidelog_quorum.raft.network.links import PeerLink, resolve_address

CA, OTHER = Authority(), Authority("Other")


def context_of(authority: Authority, folder: Path, client: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    if client is not None:
        context.load_cert_chain(client.write_pem(folder / "client.pem"))
    return context


def own_store(folder: Path, issued: Issued | None = None) -> CertificateStore:
    """Return the certificates of a server that connects to others."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str((issued or CA.issue("node")).write_pem(folder / "own.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA.pem,
    }
    return CertificateStore("GRPC", parse_config(SslSettings, settings), has_contexts=False)


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
        (
            CA.issue("server"),
            OTHER,
            "; ssl.ca.location (of servers ssl.truststore.location) must name a file with the authority that issued it",
        ),
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


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (CA.issue("server", ("10.9.9.9",)), "must name a host of the certificate"),
        (CA.issue("server", valid_for=timedelta(days=-1)), "certificate has expired; the server needs a new one"),
        (OTHER.issue("server"), "must name a file with the authority that issued it"),
    ],
    ids=["host", "expired", "authority"],
)
def test_servers_and_quorum_clients_name_the_cause_of_a_failed_connection(
    tmp_path: Path, server: Issued, text: str
) -> None:
    async def ask() -> tuple[TidelogError, TidelogError]:
        async with serving(credentials_of(tmp_path, server)) as address:
            settings = {"security.protocol": "ssl", "ssl.ca.pem": CA.pem, "bootstrap.controllers": address}
            with QuorumAdmin(settings) as quorum, pytest.raises(TidelogError) as of_client:
                await asyncio.to_thread(quorum.describe_metadata_quorum, request_timeout=0.6)
            node = ControllerClient({}, [parse_address(address)], ChannelSecurity(own_store(tmp_path)))
            with pytest.raises(TidelogError) as of_node:
                await node.ask(DescribeQuorumRequest(), 0.6)
            await node.close()
            return of_client.value, of_node.value

    of_client, of_node = asyncio.run(ask())
    assert of_client.code is ErrorCode._SSL
    assert text in of_client.message
    assert text in of_node.message


def test_server_whose_certificate_is_refused_learns_the_setting(tmp_path: Path) -> None:
    async def ask() -> str:
        async with serving(credentials_of(tmp_path, CA.issue("server"), "required")) as address:
            unknown = own_store(tmp_path, OTHER.issue("node"))
            transport = GrpcReplicaTransport(ChannelSecurity(unknown))
            with pytest.raises(TidelogError) as failed:
                await transport.fetch(address, FetchRequest({}, 1), 2)
            await transport.close()
            return failed.value.message

    assert "of servers ssl.keystore.location" in asyncio.run(ask())


def test_controller_names_the_cause_of_a_failed_connection_to_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect() -> None:
        expired = CA.issue("server", valid_for=timedelta(days=-1))
        async with serving(credentials_of(tmp_path, expired)) as address:
            link = PeerLink(
                pb.RaftHello(receiver_id=2), parse_address(address), lambda _: None, resolve_address,
                ChannelSecurity(own_store(tmp_path)),
            )  # fmt: skip
            running = asyncio.create_task(link.run())
            async with asyncio.timeout(20):
                while "cannot connect to controller 2" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            running.cancel()

    asyncio.run(connect())
    assert "certificate has expired" in caplog.text


def test_address_is_probed_once_per_interval_however_many_calls_fail() -> None:
    async def fail() -> int:
        accepted = 0

        async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            writer.close()

        async with await asyncio.start_server(close, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            diagnosis = Diagnosis()
            text = f"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:{port}: Socket closed"
            error = error_for(ErrorCode._TRANSPORT, text)
            explained = [diagnosis.explained(f"127.0.0.1:{port}", error) for _ in range(100)]
            assert {id(each) for each in await asyncio.gather(*explained)} == {id(error)}
        return accepted

    # One probe opens two connections: one for its request, one for a TLS handshake.
    assert asyncio.run(fail()) <= 2


def test_error_of_a_call_stays_if_the_certificates_for_a_probe_cannot_be_read() -> None:
    def gone() -> ssl.SSLContext:
        raise ConfigError("no such file")

    text = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed"
    error = error_for(ErrorCode._TRANSPORT, text)
    assert asyncio.run(Diagnosis(gone).explained("127.0.0.1:1", error)) is error
