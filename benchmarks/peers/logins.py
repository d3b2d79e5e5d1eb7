"""New connections with a login: TLS 1.3, then SCRAM-SHA-512, one after the other, as a client in C would open them.

The figure is the rate per CPU second of the cluster's processes, so that the client's own speed does not matter.
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from benchmarks.peers import tls
from benchmarks.peers.clusters import Clusters
from benchmarks.peers.comparison import Cost
from benchmarks.peers.peer import Peer
from benchmarks.process import cpu_seconds
from benchmarks.result import Result
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.scram import ScramLogin
from tidelog_foundation.sasl.scram_credentials import ScramMechanism as Mechanism

_MODULES = "org.apache.kafka.common.security"
_ADMIN, _ADMIN_PASSWORD = "admin", "admin-password"
_USER, _PASSWORD, _MECHANISM = "alice", "alice-password", Mechanism.SCRAM_SHA_512
_DEADLINE_S = 60.0
_HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 17, 18, 36


def settings(folder: Path, open_listener: str) -> Mapping[str, object]:
    """Return the settings of a cluster whose Kafka listener has SASL_SSL, with its files in ``folder``.

    ``open_listener`` is the entry of the listener without TLS, of the controllers or of gRPC.
    """
    plain = f'{_MODULES}.plain.PlainLoginModule required username="{_ADMIN}" password="{_ADMIN_PASSWORD}"'
    return {
        **tls.settings(folder, open_listener, "SASL_SSL"),
        "sasl.enabled.mechanisms": f"PLAIN,{_MECHANISM.sasl_name}",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{plain} user_{_ADMIN}="{_ADMIN_PASSWORD}";',
        f"listener.name.plaintext.{_MECHANISM.sasl_name.lower()}.sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required;"
        ),
    }


def logins(clusters: Clusters, folders: Mapping[str, Path]) -> list[Result]:
    """Open connections and log in. ``folders`` has the folder of each peer's :func:`settings` by the peer's name."""
    count = clusters.options.pick(500, 200)
    clients = {}
    for peer in clusters.peers:
        clusters.options.say(f"starting {peer.name} with SASL_SSL")
        peer.start()
    for peer in clusters.peers:
        authorities = tls.authority_file(folders[peer.name])
        _create_user(peer, authorities)
        clients[peer.name] = _Client(peer.bootstrap_servers, authorities)

    def log_in(peer: Peer) -> Cost:
        clusters.options.say(f"logins at {peer.name}")
        cpu_s, own_cpu_s, began = peer.cpu_seconds(), cpu_seconds(os.getpid()), time.monotonic()
        for _ in range(count):
            clients[peer.name].log_in()
        seconds = time.monotonic() - began
        return Cost(seconds, peer.cpu_seconds() - cpu_s, cpu_seconds(os.getpid()) - own_cpu_s)

    found = clusters.in_turns(log_in, rounds=clusters.options.pick(9, 5), warm_up=clusters.options.pick(6, 4))
    name = f"connections with TLS and {_MECHANISM.sasl_name}, {clusters.text}"
    return [
        found.result(
            f"{name}: per CPU second of the cluster",
            "logins/s",
            lambda cost: count / cost.cluster_cpu_s,
            "higher",
            at_least=0.5,
        ),
        found.result(f"{name}: one after the other", "logins/s", lambda cost: count / cost.seconds, "higher"),
    ]


def _create_user(peer: Peer, authorities: Path) -> None:
    """Create the user, once the cluster serves."""
    admin = AdminClient(
        {
            "bootstrap.servers": peer.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": _ADMIN,
            "sasl.password": _ADMIN_PASSWORD,
            "ssl.ca.location": str(authorities),
            "log_level": 0,
        }
    )
    info = ScramCredentialInfo(ScramMechanism[_MECHANISM.name], 4_096)
    user = UserScramCredentialUpsertion(_USER, info, _PASSWORD.encode())
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        try:
            admin.alter_user_scram_credentials([user], request_timeout=5)[_USER].result(10)
            return
        except confluent_kafka.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class _Client:
    """A client that opens a connection for each login, without TLS sessions to resume."""

    def __init__(self, servers: str, authorities: Path) -> None:
        host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
        self._address = (host, int(port))
        self._context = ssl.create_default_context(cafile=str(authorities))
        self._login: SaslLogin = ScramLogin(_MECHANISM, _USER, _PASSWORD, lambda: secrets.token_urlsafe(24))

    def log_in(self) -> None:
        """Open a connection, log in and close it."""
        host, _ = self._address
        with (
            socket.create_connection(self._address, timeout=_DEADLINE_S) as raw,
            self._context.wrap_socket(raw, server_hostname=host) as connection,
        ):
            _ask(connection, _API_VERSIONS, 0, b"")
            mechanism = self._login.mechanism.encode()
            _ask(connection, _HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
            exchange = self._login.client(host)
            token: bytes | None = exchange.first()
            while token is not None:
                token = exchange.evaluate(_authenticate(connection, token))
            assert exchange.is_complete


def _authenticate(connection: ssl.SSLSocket, token: bytes) -> bytes:
    body = _ask(connection, _AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
    error_code, text_size = struct.unpack_from(">hh", body)
    assert error_code == 0, f"the login failed with {error_code}"
    at = 4 + max(text_size, 0)
    (size,) = struct.unpack_from(">i", body, at)
    return body[at + 4 : at + 4 + size]


def _ask(connection: ssl.SSLSocket, api_key: int, version: int, body: bytes) -> bytes:
    """Send a request with version 1 of the header, and return the response without its header."""
    header = struct.pack(">hhih", api_key, version, 1, -1)
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)[4:]


def _receive(connection: ssl.SSLSocket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError(f"closed after {len(received)} of {size} bytes")
        received += part
    return received
