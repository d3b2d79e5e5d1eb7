"""Requests for delegation tokens to Apache Kafka and to Tidelog: the same codes and the same fields.

Times are compared by minutes from now; ids and HMACs by their lengths.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from compat.jars import Unavailable
from compat.wire.pair import addresses
from compat.wire.sasl import SETTINGS
from sasl_clients import handshake, plain, prefixed

from tidelog_foundation.config.endpoints import parse_address
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages import delegation_tokens as wire
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer

pytestmark = pytest.mark.compat

_READY_S = 60.0
_FLEXIBLE = 2
Seen = list[tuple[str, Any]]


class Client:
    """A connection of an authenticated user."""

    def __init__(self, address: tuple[str, int], user: str, password: str) -> None:
        self._socket = socket.create_connection(address, 10)
        for frame in (handshake(), plain(user, password)):
            self._exchange(prefixed(frame))

    def ask(self, request: Any, version: int, response: type[Any]) -> Any:
        writer = Writer()
        encode(request, writer, version)
        tags = b"\0" if version >= _FLEXIBLE else b""
        head = struct.pack(">hhihs", request.API_KEY, version, 7, 1, b"c") + tags
        answer = self._exchange(prefixed(head + b"".join(map(bytes, writer.chunks()))))
        return decode(response, Reader(memoryview(answer)[4 + len(tags) :]), version)

    def close(self) -> None:
        self._socket.close()

    def _exchange(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            chunk = self._socket.recv(size - len(found))
            if not chunk:
                raise ConnectionError("the broker has closed the connection")
            found += chunk
        return found


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    settings = SETTINGS | {"delegation.token.secret.key": "secret", "sasl.server.max.receive.size": "10000"}
    kafka_map = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"}
    tidelog_map = {"listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_PLAINTEXT"}
    try:
        with addresses(settings | kafka_map, settings | tidelog_map) as found:
            kafka, tidelog = map(parse_address, found)
            yield kafka, tidelog
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_answers_about_tokens_are_those_of_kafka(both: tuple[tuple[str, int], tuple[str, int]], version: int) -> None:
    kafka, tidelog = (_observed(address, version) for address in both)
    differences = [pair for pair in zip(kafka, tidelog, strict=True) if pair[0] != pair[1]]
    assert not differences, "\n".join(map(str, differences))


def _observed(address: tuple[str, int], version: int) -> Seen:
    alice, bob = _connected(address, "alice", "wonderland"), _connected(address, "bob", "builder")
    try:
        return list(_scenario(alice, bob, version))
    finally:
        alice.close()
        bob.close()


def _connected(address: tuple[str, int], user: str, password: str) -> Client:
    ends = time.monotonic() + _READY_S
    while True:
        try:
            client = Client(address, user, password)
            asked = wire.DescribeDelegationTokenRequest([])
            if client.ask(asked, 1, wire.DescribeDelegationTokenResponse).error_code == 0:
                return client
            client.close()
        except OSError:
            pass
        assert time.monotonic() < ends, "no login succeeds"
        time.sleep(0.2)


def _scenario(alice: Client, bob: Client, version: int) -> Iterator[tuple[str, Any]]:
    made = []
    for name, owner, renewers, lifetime_ms in (
        ("default", (None, None), (), -1),
        ("renewers", (None, None), (("User", "bob"), ("User", "carol")), 3_600_000),
        ("other owner", ("User", "dave"), (), -1),
        ("empty owner", ("User", ""), (), 0),
        ("too long", (None, None), (), 2**62),
        ("group", (None, None), (("Group", "x"),), -1),
    ):
        request = wire.CreateDelegationTokenRequest(
            *(owner if version >= 3 else (None, None)), [wire.PrincipalData(*each) for each in renewers], lifetime_ms
        )
        created = alice.ask(request, version, wire.CreateDelegationTokenResponse)
        made.append(bytes(created.hmac))
        yield f"create {name}", _shown(created)
    own, shared = made[0], made[1]
    _wait_for(alice, lambda found: shared in found)
    short = min(version, 2)
    for name, client, hmac, period in (
        ("own", alice, own, -1),
        ("own for an hour", alice, own, 3_600_000),
        ("beyond its life", alice, shared, 2**62),
        ("by a renewer", bob, shared, 600_000),
        ("by another", bob, own, -1),
        ("unknown", alice, b"x" * 64, -1),
        ("empty", alice, b"", 5),
    ):
        renewal = wire.RenewDelegationTokenRequest(hmac, period)
        yield f"renew {name}", _shown(client.ask(renewal, short, wire.RenewDelegationTokenResponse))
    _wait_for(alice, lambda found: _minutes(found[shared]) < 30 and _minutes(found[own]) < 90)
    for name, owners in (("alice", ["alice"]), ("bob", ["bob"]), ("nobody", ["nobody"]), ("none", []), ("all", None)):
        asked = None if owners is None else [wire.PrincipalData("User", owner) for owner in owners]
        for client in (alice, bob):
            found = client.ask(
                wire.DescribeDelegationTokenRequest(asked), version, wire.DescribeDelegationTokenResponse
            )
            mine = [_shown(token) for token in found.tokens]
            yield f"describe {name}", (found.error_code, sorted(mine, key=repr))
    for name, client, hmac, period in (
        ("by another", bob, own, -1),
        ("later", alice, own, 600_000),
        ("at once by a renewer", bob, shared, -1),
        ("own at once", alice, own, -5),
        ("unknown", alice, b"x" * 64, -1),
        *(("rest", alice, each, -1) for each in made[2:] if each),
    ):
        expiry = wire.ExpireDelegationTokenRequest(hmac, period)
        yield f"expire {name}", _shown(client.ask(expiry, short, wire.ExpireDelegationTokenResponse))


def _minutes(timestamp_ms: int) -> float:
    return (timestamp_ms / 1_000 - time.time()) / 60


def _wait_for(client: Client, condition: Callable[[dict[bytes, int]], bool]) -> None:
    """Wait until a condition holds of the broker's tokens, whose times of expiry are given by their HMACs."""
    ends = time.monotonic() + _READY_S
    while True:
        asked = wire.DescribeDelegationTokenRequest(None)
        found = client.ask(asked, 1, wire.DescribeDelegationTokenResponse).tokens
        if condition({bytes(token.hmac): token.expiry_timestamp for token in found}):
            return
        assert time.monotonic() < ends, "the broker does not know the change"
        time.sleep(0.05)


def _shown(message: Any) -> dict[str, Any]:
    """Return the fields of a message in a form that does not depend on times and random values."""
    shown: dict[str, Any] = {}
    for name in (field.name for field in dataclasses.fields(message)):
        value = getattr(message, name)
        if "timestamp" in name and value > 0:
            value = f"{round((value - time.time() * 1_000) / 60_000)} min"
        elif name in ("hmac", "token_id"):
            value = len(value)
        elif name == "renewers":
            value = [(each.principal_type, each.principal_name) for each in value]
        shown[name] = value
    return shown
