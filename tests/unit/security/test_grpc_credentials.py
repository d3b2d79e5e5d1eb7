"""gRPC listeners with TLS: the principals of callers, changed certificates, and settings that gRPC does not have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from certificates import Authority, Issued

from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_foundation.transport.channels import Channels, ChannelSecurity, bind_port, open_channel
from tidelog_foundation.transport.credentials import channel_credentials, identify_callers, server_credentials

CA = Authority()
SERVER, ALICE = CA.issue("server"), CA.issue("alice", hosts=())


def store_of(folder: Path, **settings: str) -> CertificateStore:
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(SERVER.write_pem(folder / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA.pem,
    }
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    return CertificateStore("GRPC", parse_config(SslSettings, given | keys))


@asynccontextmanager
async def serving(store: CertificateStore, answer: Callable[[Any], str]) -> AsyncIterator[str]:
    async def handle(_: bytes, rpc: Any) -> bytes:
        return answer(rpc).encode()

    server = grpc.aio.server()
    handlers = {"Call": grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", handlers),))
    credentials = server_credentials(store)
    port = bind_port(server, "127.0.0.1", 0, credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def call(channel: grpc.aio.Channel) -> str:
    answer: bytes = await channel.unary_unary("/Test/Call")(b"", timeout=10)
    return answer.decode()


def credentials_of(client: Issued | None) -> grpc.ChannelCredentials:
    if client is None:
        return grpc.ssl_channel_credentials(CA.pem.encode())
    return grpc.ssl_channel_credentials(CA.pem.encode(), client.key_pem().encode(), client.certificate_pem.encode())


@pytest.mark.parametrize(
    ("auth", "client", "principal"),
    [("required", ALICE, "User:alice"), ("none", None, "User:ANONYMOUS"), ("none", ALICE, "User:ANONYMOUS")],
)
def test_caller_over_grpc_has_the_mapped_name_of_its_certificate(
    tmp_path: Path, auth: str, client: Issued | None, principal: str
) -> None:
    async def main() -> None:
        rules = "RULE:^CN=(.*)$/$1/"
        store = store_of(tmp_path, ssl_client_auth=auth, ssl_principal_mapping_rules=rules)
        identify = identify_callers(store.settings)
        async with (
            serving(store, lambda rpc: str(identify(rpc))) as address,
            open_channel(address, credentials=credentials_of(client)) as channel,
        ):
            assert await call(channel) == principal

    asyncio.run(main())


def test_caller_whose_certificate_no_rule_maps_is_refused(tmp_path: Path) -> None:
    def answer(rpc: Any) -> str:
        with pytest.raises(TidelogError, match=r"no rule of .* matches .*CN=alice") as caught:
            identify_callers(store.settings)(rpc)
        return caught.value.code.name

    store = store_of(tmp_path, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=bob$/b/")

    async def main() -> None:
        async with (
            serving(store, answer) as address,
            open_channel(address, credentials=credentials_of(ALICE)) as channel,
        ):
            assert await call(channel) == "SASL_AUTHENTICATION_FAILED"

    asyncio.run(main())


def test_servers_use_changed_certificates_on_both_ends_of_their_channels(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_of(tmp_path, ssl_client_auth="required")
        channels = Channels(ChannelSecurity(store))
        identify = identify_callers(store.settings)
        async with serving(store, lambda rpc: str(identify(rpc))) as address:
            first = channels.get(address)
            assert await call(first) == "User:CN=server"
            CA.issue("renewed").write_pem(tmp_path / "server.pem")
            store.refresh(datetime.now(UTC))
            assert await call(channels.get(address)) == "User:CN=renewed"
            assert await call(first) == "User:CN=server", "what exists continues"
            await channels.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl_client_auth", "requested"),
        ("ssl_cipher_suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        ("ssl_enabled_protocols", "TLSv1.3"),
    ],
)
def test_grpc_listener_refuses_settings_that_grpc_does_not_have(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"listener GRPC: {key.replace('_', '.')} .*, but gRPC"):
        server_credentials(store_of(tmp_path, **{key: value}))


def test_channel_refuses_to_check_no_host(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gRPC always checks the host"):
        channel_credentials(store_of(tmp_path, ssl_endpoint_identification_algorithm=""))
