"""The restart of a broker with thousands of partitions and gigabytes of records, after a clean stop and after a kill.

The clusters run one after the other, since the disk would have to hold four copies of the records otherwise. A broker
answers when its listener for clients does, and is in sync when the other broker names both in all in-sync replica sets.
"""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks import process
from benchmarks.peers.client import Topics, acknowledge_first_record, wait_for
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import Found
from benchmarks.peers.load_client import LoadClient
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_TOPIC: Final = "restart"
_REPLICAS: Final = 2
_RESTARTED, _OTHER = 1, 2
_RECORD_BYTES: Final = 16 * 1024
_SAME_KEY: Final = 32
"""So many records in a row go to one partition: a batch of 512 KiB costs a cluster little more than one record."""
_FILL_S: Final = 1_500.0
_RESTART_S: Final = 600.0
"""The timeout of each step of a restart. After a kill, a broker may read all its records before it answers."""
_BUFFERED: Final = 2_000
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Request 18 in version 0, without a client id."""
_ANSWER_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Restart:
    """One restart: seconds to the end of the broker, and from its launch on; its CPU seconds and MB once in sync."""

    stopped_s: float
    answered_s: float
    in_sync_s: float
    cpu_s: float
    resident_mb: float


def restart(clusters: Clusters) -> list[Result]:
    """Fill each cluster, and restart one of its brokers several times in both ways."""
    partitions, gib = clusters.options.pick((5_000, 20), (500, 1))
    client = LoadClient()
    stops: dict[str, list[_Restart]] = {}
    kills: dict[str, list[_Restart]] = {}
    for peer in clusters.peers:
        clusters.options.say(f"starting {peer.name}, {peer.size}")
        peer.start()
        try:
            acknowledge_first_record(peer.bootstrap_servers, "first", _REPLICAS)
            _fill(clusters, client, peer, partitions, gib)
            rounds = range(clusters.options.pick(3, 1))
            stops[peer.name] = [_restarted(clusters, peer, peer.stop, "stopping") for _ in rounds]
            kills[peer.name] = [_restarted(clusters, peer, peer.kill, "killing") for _ in rounds]
        except Exception as error:
            error.add_note(peer.last_words())
            raise
        finally:
            peer.close()
    name = f"restart of one of 2 nodes, {partitions:,} partitions, {gib} GiB, RF {_REPLICAS}"
    stopped, killed = Found(stops), Found(kills)
    return [
        stopped.result(f"{name}: clean stop", "s", lambda it: it.stopped_s, "lower"),
        *_rows(stopped, f"{name}, after a clean stop"),
        *_rows(killed, f"{name}, after a kill"),
    ]


def _rows(found: Found[_Restart], name: str) -> list[Result]:
    return [
        found.result(f"{name}: launched to answering", "s", lambda it: it.answered_s, "lower"),
        found.result(f"{name}: launched to in sync", "s", lambda it: it.in_sync_s, "lower", at_least=1),
        found.result(f"{name}: CPU of the node until then", "s", lambda it: it.cpu_s, "lower"),
        found.result(f"{name}: resident memory of the node", "MB", lambda it: it.resident_mb, "lower"),
    ]


def _fill(clusters: Clusters, client: LoadClient, peer: Peer, partitions: int, gib: int) -> None:
    needed, free = _REPLICAS * gib * 1.1, shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    if free < needed:
        raise RuntimeError(f"{needed:.0f} GiB must be free for the records of {peer.name}, {free:.0f} GiB are")
    clusters.options.say(f"writing {gib} GiB to {partitions:,} partitions of {peer.name}")
    create_topic(peer, _TOPIC, partitions, _REPLICAS)
    records = gib * 2**30 // _RECORD_BYTES
    flags = {"topic": _TOPIC, "bytes": _RECORD_BYTES, "records": records, "seconds": _FILL_S}
    batching = {"buffered": _BUFFERED, "same_key": _SAME_KEY}
    written = client.run(peer, "produce", {**flags, **batching}, 2 * _FILL_S)["records"]
    if written < records:
        raise RuntimeError(f"{peer.name} took {written:,} of {records:,} records in {_FILL_S:.0f} s")


def _restarted(clusters: Clusters, peer: Peer, end: Callable[[int], None], how: str) -> _Restart:
    clusters.options.say(f"{how} a broker of {peer.name}")
    restarted, other = (peer.bootstrap_servers.split(",")[broker - 1] for broker in (_RESTARTED, _OTHER))
    topics = Topics(other)
    topics.wait_whole(_TOPIC)
    started_s = time.monotonic()
    end(_RESTARTED)
    stopped_s = time.monotonic() - started_s
    wait_for(lambda: not topics.is_whole(_TOPIC), f"{peer.name} notices that broker {_RESTARTED} is gone", _RESTART_S)
    launched_s = time.monotonic()
    peer.restart(_RESTARTED)
    wait_for(lambda: _answers(restarted), f"broker {_RESTARTED} of {peer.name} answers", _RESTART_S)
    answered_s = time.monotonic() - launched_s
    topics.wait_whole(_TOPIC, _RESTART_S)
    in_sync_s = time.monotonic() - launched_s
    pid = peer.broker_pid(_RESTARTED)
    return _Restart(stopped_s, answered_s, in_sync_s, process.cpu_seconds(pid), process.resident_mb(pid))


def _answers(address: str) -> bool:
    """Return true if a broker answers the request with which clients begin."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _ANSWER_S) as connection:
            connection.sendall(_API_VERSIONS)
            return bool(connection.recv(4))
    except OSError:
        return False
