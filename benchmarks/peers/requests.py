"""Small produce requests of many connections, each of which waits for the answer before it sends the next one.

The client is a compiled program, ``requests_client``, which Go builds on the fly, so that it is not the bottleneck.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_SOURCE: Final = Path(__file__).parent / "requests_client"
_PROGRAM: Final = Path(__file__).parents[2] / "build" / "peers" / "requests-client"
_TOPIC: Final = "requests"
_PARTITIONS: Final = 3
_BYTES: Final = 100
_ALL, _LEADER, _NONE = -1, 1, 0
_TEXTS: Final = {_ALL: "acks=all", _LEADER: "acks=1", _NONE: "acks=0"}
_MICRO, _MILLI = 1e6, 1e3
_DEADLINE_S: Final = 300


@dataclass(frozen=True, slots=True)
class _Load:
    """The number of connections, their ``acks``, and whether the row has the bar of a rate or of the latency."""

    clients: int
    acks: int
    has_rate_bar: bool = False
    has_p99_bar: bool = False


_LOADS: Final = (
    _Load(8, _ALL),
    _Load(100, _ALL, has_rate_bar=True),
    _Load(400, _ALL, has_p99_bar=True),
    _Load(100, _LEADER),
    _Load(100, _NONE),
)


@dataclass(frozen=True, slots=True)
class _Served:
    """A round: requests per second, latencies in seconds, and the cluster's CPU seconds per request."""

    rate: float
    p50_s: float
    p99_s: float
    cpu_s: float


def requests(clusters: Clusters) -> list[Result]:
    """Send single records from 8, 100 and 400 connections."""
    program = _build()
    for peer in clusters.peers:
        create_topic(peer, _TOPIC, _PARTITIONS, clusters.replicas)
    return [line for load in _LOADS for line in _measure(clusters, program, load)]


def _measure(clusters: Clusters, program: Path, load: _Load) -> list[Result]:
    options = clusters.options
    found = clusters.in_turns(
        partial(_send, clusters, program, load), rounds=options.pick(5, 2), warm_up=options.pick(2, 1)
    )
    name = f"{load.clients} connections, {_BYTES} B, {clusters.text}, {_TEXTS[load.acks]}"
    rate_bar = 1 if load.has_rate_bar else None
    lines = [
        found.result(name, "requests/s", lambda served: served.rate, "higher", at_least=rate_bar),
        found.result(
            f"{name}: CPU of the cluster",
            "µs/request",
            lambda served: served.cpu_s * _MICRO,
            "lower",
            at_least=rate_bar,
        ),
    ]
    if load.acks != _NONE:
        p99_bar = 1 if load.has_p99_bar else None
        lines += [
            found.result(f"{name}: p50", "ms", lambda served: served.p50_s * _MILLI, "lower"),
            found.result(f"{name}: p99", "ms", lambda served: served.p99_s * _MILLI, "lower", at_least=p99_bar),
        ]
    return lines


def _send(clusters: Clusters, program: Path, load: _Load, peer: Peer) -> _Served:
    count = clusters.options.pick(30_000, 10_000)
    clusters.options.say(f"{load.clients} connections to {peer.name}, {_TEXTS[load.acks]}, {clusters.text}")
    cpu_s = peer.cpu_seconds()
    arguments = {"topic": _TOPIC, "clients": load.clients, "acks": load.acks, "requests": count, "bytes": _BYTES}
    command = [str(program), f"-servers={peer.bootstrap_servers}", *(f"-{k}={v}" for k, v in arguments.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{peer.name}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    used_s = peer.cpu_seconds() - cpu_s
    sent = found["requests"]
    return _Served(sent / found["seconds"], found["p50_s"], found["p99_s"], used_s / sent)


def _build() -> Path:
    """Build the client, and return its path.

    Raises:
        FileNotFoundError: Go is not installed.
        subprocess.CalledProcessError: The build failed.
    """
    go = shutil.which("go")
    if go is None:
        raise FileNotFoundError("there is no go on the PATH; the client of small requests is built with it")
    _PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "build", "-o", _PROGRAM, "."], cwd=_SOURCE, check=True)
    return _PROGRAM
