"""Sends hostile bytes to the Kafka listener of a real node for as long as one likes.

    python -m tests.fuzz.fuzz_kafka_listener --minutes 30 --seed 7
    python -m tests.fuzz.fuzz_kafka_listener --sasl

Connections send well-formed and mutated requests of every API, in any cut, read their responses or do not, and vanish.
Meanwhile one well-behaved connection asks again and again and must be answered, the node's memory is watched, and its
log must have no failure without a name. Exit code 1 says that one of these did not hold.

With ``--sasl`` the listener has SASL, and all but the well-behaved connection have no password: they send the frames of
logins too, in any order. No topic, group or record may come of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import sasl_clients
from tests.support.kafka_requests import any_request, declarations, framed, mutated, pieces
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster
from tidelog_node.kafka.protocol.api_keys import ApiKey

_ATTACKERS = 16
_TOPICS = ("topic-1", "topic-2")
_ANSWER_DEADLINE_S = 10.0
_MOST_GROWTH_BYTES = 400 * 1024**2
_SETTINGS = {
    "socket.request.max.bytes": 2 * 1024**2,
    "queued.max.request.bytes": 16 * 1024**2,
    "queued.max.response.bytes": 32 * 1024**2,
    "connections.max.idle.ms": 5_000,
}
_SASL_SETTINGS = {
    "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "GRPC",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "connection.failed.authentication.delay.ms": 20,
    "listener.name.plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    "required user_alice=wonderland;",
}
_LOGIN_FRAMES = (
    *(sasl_clients.handshake(name, version) for name in ("PLAIN", "SCRAM-SHA-256", "OTHER") for version in (0, 1)),
    *(sasl_clients.plain(password="wrong", version=version) for version in (0, 1, 2)),
    sasl_clients.authenticate(b"n,,n=alice,r=abcdefghij"),
    sasl_clients.authenticate(b"c=biws,r=abcdefghij,p=AAAA"),
    sasl_clients.authenticate(bytes(100_000)),
)
_NAMELESS = (
    "with an unexpected error",
    "Traceback (most recent call last)",
    "never retrieved",
)
_LEFT_OUT = frozenset(
    {
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""APIs that would change the cluster permanently."""


@dataclass
class Attack:
    """A request that was sent, and the response."""

    address: tuple[str, int]
    ends: float
    has_sasl: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.ends


async def attack(attack: Attack, rng: random.Random) -> None:
    """Open connection after connection until the time is over."""
    kinds = {key: kind for key, kind in declarations().items() if key not in _LEFT_OUT}
    while not attack.is_over:
        try:
            reader, writer = await asyncio.open_connection(*attack.address)
        except OSError:
            attack.counts["refused connections"] += 1
            await asyncio.sleep(0.1)
            continue
        attack.counts["connections"] += 1
        sent = bytearray()
        for _ in range(rng.choice((1, 1, 1, 3, 20))):
            if attack.has_sasl and rng.random() < 0.7:
                sent += framed(rng.choice(_LOGIN_FRAMES))
                continue
            kind = kinds[rng.choice(tuple(kinds))]
            version = rng.randint(*kind.VERSIONS)
            frame = any_request(kind, version, rng, _TOPICS)
            sent += framed(mutated(frame, rng) if rng.random() < 0.3 else frame)
            attack.counts["requests"] += 1
        whole = mutated(bytes(sent), rng) if rng.random() < 0.2 else bytes(sent)
        reading = asyncio.create_task(_read(reader, attack)) if rng.random() < 0.8 else None
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(rng.choice((0.02, 0.1, 0.1, 1))):
                for piece in pieces(whole, rng):
                    writer.write(piece)
                    await writer.drain()
                if reading is not None:
                    await asyncio.shield(reading)
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        writer.transport.abort()
        await asyncio.sleep(0)


async def _read(reader: asyncio.StreamReader, attack: Attack) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            attack.counts["bytes of responses"] += len(data)
        attack.counts["connections closed by the node"] += 1


async def behave(attack: Attack) -> None:
    """Ask for the versions and the metadata, and be answered; raises TimeoutError or IncompleteReadError."""
    reader, writer = await asyncio.open_connection(*attack.address)
    if attack.has_sasl:
        for frame in (sasl_clients.handshake(), sasl_clients.plain()):
            writer.write(framed(frame))
            [size] = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
    correlation_id = 0
    while not attack.is_over:
        for key, body in ((ApiKey.API_VERSIONS, b""), (ApiKey.METADATA, struct.pack(">i", 0))):
            correlation_id += 1
            begin = time.monotonic()
            writer.write(framed(struct.pack(">hhih", key, 0 if not body else 1, correlation_id, -1) + body))
            async with asyncio.timeout(_ANSWER_DEADLINE_S):
                [size] = struct.unpack(">i", await reader.readexactly(4))
                answer = await reader.readexactly(size)
            assert int.from_bytes(answer[:4], "big") == correlation_id, "a response of another request"
            attack.slowest_s = max(attack.slowest_s, time.monotonic() - begin)
            attack.counts["answers to the well-behaved connection"] += 1
        await asyncio.sleep(0.02)
    writer.transport.abort()


async def watch(attack: Attack, pid: int) -> int:
    """Return by how many bytes the node's resident memory grew; raises AssertionError when it is too much."""
    first = most = _resident_bytes(pid)
    while not attack.is_over:
        most = max(most, _resident_bytes(pid))
        assert most - first < _MOST_GROWTH_BYTES, f"the node's memory grew from {first:,} to {most:,} bytes"
        await asyncio.sleep(0.5)
    return most - first


def _resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


async def run(
    address: tuple[str, int], pid: int, minutes: float, seed: int, *, has_sasl: bool = False
) -> tuple[Attack, int]:
    """Attack a node, and return what happened and by how much its memory grew."""
    state = Attack(address, time.monotonic() + minutes * 60, has_sasl)
    async with asyncio.TaskGroup() as tasks:
        for n in range(_ATTACKERS):
            tasks.create_task(attack(state, random.Random(f"{seed}-{n}")), name=f"attacker-{n}")
        tasks.create_task(behave(state), name="well-behaved")
        growth = tasks.create_task(watch(state, pid), name="memory")
    return state, growth.result()


def main() -> int:
    """Run the fuzz against a cluster of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sasl", action="store_true")
    options = parser.parse_args()
    settings = _SETTINGS | (_SASL_SETTINGS if options.sasl else {})
    with LocalCluster(controllers=1, nodes=1, config=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in admin.create_topics([NewTopic(name, 2, 1) for name in _TOPICS]).values():
            future.result()
        [node] = cluster.nodes.values()
        host, _, port = cluster.kafka_bootstrap_servers.rpartition(":")
        address = host, int(port)
        state, growth = asyncio.run(run(address, node.pid, options.minutes, options.seed, has_sasl=options.sasl))
        for what, count in sorted(state.counts.items()):
            print(f"{count:>12,} {what}")
        print(f"slowest answer {state.slowest_s * 1000:.0f} ms, the node's memory grew by {growth / 1024**2:.0f} MiB")
        log = node.log_path.read_text(errors="replace")
        found = [line for line in log.splitlines() if any(mark in line for mark in _NAMELESS)]
        print(f"{log.count('is closed: '):>12,} closed connections in the node's log")
        topics = set(admin.list_topics(timeout=_ANSWER_DEADLINE_S).topics)
        if options.sasl and topics != set(_TOPICS):
            found.append(f"requests without a login have changed the topics: {sorted(topics)}")
        if found or cluster.failures:
            print(f"seed {options.seed}: {len(found)} failures without a name, {cluster.failures}")
            Path("fuzz_kafka_listener.log").write_text(log)
            print("the node's log is in fuzz_kafka_listener.log")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
