"""Produce and consume over TLS: clients and replicas use a listener with SSL, in both clusters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.client import Sender, Topics, consume
from benchmarks.peers.clusters import Clusters
from benchmarks.peers.comparison import Cost, work_results
from benchmarks.peers.peer import Peer
from benchmarks.peers.work import cost_of
from benchmarks.result import Result
from tidelog_foundation.security.authority import Authority

_TOPIC, _PARTITIONS, _BYTES = "encrypted", 3, 1024


def settings(folder: Path, open_listener: str, protocol: str = "SSL") -> Mapping[str, object]:
    """Return the settings of a cluster whose Kafka listener has TLS, with its files in ``folder``.

    ``open_listener`` is the entry of the listener without TLS, of the controllers or of gRPC.
    """
    authority = Authority()
    return {
        "listener.security.protocol.map": f"{open_listener},PLAINTEXT:{protocol}",
        # Without it, Kafka's brokers send plaintext to each other's listener with TLS.
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").write_pem(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.write_pem(authority_file(folder)),
        # Kafka's brokers look up the name of 127.0.0.1, which differs between machines.
        "ssl.endpoint.identification.algorithm": "",
    }


def produce_and_consume(clusters: Clusters, folders: Mapping[str, Path]) -> list[Result]:
    """Start the clusters and measure. ``folders`` has the folder of each peer's :func:`settings` by the peer's name."""
    count, value = clusters.options.pick(150_000, 50_000), os.urandom(_BYTES)
    security = {name: _client_settings(folder) for name, folder in folders.items()}
    for peer in clusters.peers:
        clusters.options.say(f"starting {peer.name} with SSL")
        peer.start()
    senders = {}
    for peer in clusters.peers:
        topics = Topics(peer.bootstrap_servers, security[peer.name])
        topics.create(_TOPIC, _PARTITIONS, clusters.replicas)
        topics.wait_whole(_TOPIC)
        senders[peer.name] = Sender(peer.bootstrap_servers, _TOPIC, **security[peer.name])

    def send(peer: Peer) -> Cost:
        clusters.options.say(f"producing {count:,} records over TLS to {peer.name}")
        return cost_of(peer, lambda: senders[peer.name].send(value, count))

    def read(peer: Peer) -> Cost:
        clusters.options.say(f"consuming {count:,} records over TLS from {peer.name}")
        servers, own = peer.bootstrap_servers, security[peer.name]
        return cost_of(peer, lambda: consume(servers, _TOPIC, _PARTITIONS, count, security=own))

    produced = clusters.in_turns(send, rounds=clusters.options.pick(5, 2), warm_up=clusters.options.pick(2, 1))
    consumed = clusters.in_turns(read, rounds=clusters.options.pick(5, 2))
    of = f"over TLS, 1 KiB, {clusters.text}"
    return [
        *work_results(f"produce {of}, acks=all", produced, count, _BYTES, at_least=1.0),
        *work_results(f"consume from cache {of}", consumed, count, _BYTES, at_least=1.0),
    ]


def authority_file(folder: Path) -> Path:
    """Return the file with the authority that clients trust."""
    return folder / "ca.pem"


def _client_settings(folder: Path) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(authority_file(folder))}
