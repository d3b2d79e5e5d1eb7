"""A modest producer's latency alone, and beside a client that sends at twenty times its quota."""

from __future__ import annotations

import socket
import struct
import time

from benchmarks.abuse import GREED, GREEDY, MODEST, QUOTA, greedy, latencies, p99_ms
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_ALTER_CLIENT_QUOTAS = 49
_TIMEOUT_S = 30.0
_SETTLED_S = 2.0
"""The windows of a quota are empty at first, and the greedy producer has its burst."""


def abuse(clusters: Clusters) -> list[Result]:
    """Measure both producers at each cluster. The quota holds from the start."""
    seconds = clusters.options.pick(15.0, 5.0)
    for peer in clusters.peers:
        for topic in (MODEST, GREEDY):
            create_topic(peer, topic, 1, clusters.replicas)
        _set_quota(_address(peer))

    def measure(peer: Peer) -> tuple[float, float]:
        address = _address(peer)
        clusters.options.say(f"a modest producer at {peer.name}")
        alone = p99_ms(latencies(address, seconds))
        clusters.options.say(f"a modest producer beside a greedy one at {peer.name}")
        with greedy(address):
            time.sleep(_SETTLED_S)
            return alone, p99_ms(latencies(address, seconds))

    found = clusters.in_turns(measure, rounds=clusters.options.pick(5, 2), warm_up=1)
    name = f"a producer's p99, {clusters.text}"
    return [
        found.result(f"{name}: alone", "ms", lambda each: each[0], "lower"),
        found.result(f"{name}: beside {GREED} x its quota of 1 MB/s", "ms", lambda each: each[1], "lower"),
    ]


def _address(peer: Peer) -> str:
    return peer.bootstrap_servers.split(",")[0]


def _set_quota(address: str) -> None:
    """Give the greedy producer its quota, with AlterClientQuotas 0 over Kafka's protocol."""
    host, _, port = address.rpartition(":")
    entity = struct.pack(">i", 1) + _text("client-id") + _text(GREEDY)
    op = struct.pack(">i", 1) + _text("producer_byte_rate") + struct.pack(">d?", QUOTA, False)
    head = struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 1) + _text("admin")
    request = head + struct.pack(">i", 1) + entity + op + struct.pack(">?", False)
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as sock, sock.makefile("rwb") as stream:
        stream.write(struct.pack(">i", len(request)) + request)
        stream.flush()
        response = stream.read(int.from_bytes(stream.read(4), "big"))
    _, _, results, error_code = struct.unpack_from(">iiih", response)
    assert (results, error_code) == (1, 0), f"AlterClientQuotas failed: {response!r}"


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
