"""The latency of a producer beside a client that offers twenty times its quota, and the cost of measuring clients.

One controller and one node run as processes. Both clients speak Kafka's protocol over connections of their own, without
a library whose threads would compete for the cores: the modest one sends a batch of 1 KiB every 10 ms and waits for its
acknowledgement, the greedy one sends batches of 100 kB at 20 MB/s, in a process of its own. The greedy one ignores what
it is told about throttling.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import process
from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.suite import run_alone
from tidelog.admin import AdminClient, ClientQuotaAlteration, ClientQuotaAlterationOp, ClientQuotaEntity, NewTopic
from tidelog.testing import LocalCluster
from tidelog_foundation.records import RecordBatchBuilder

_TIMEOUT_S = 30.0
_QUOTA = 1_000_000
_GREED = 20
_GREEDY_BYTES = 100_000
_INTERVAL_S = 0.01
_GREEDY = ClientQuotaEntity({"client-id": "greedy"})
_OTHERS = ClientQuotaEntity({"client-id": "nobody"})
_MODEST = ClientQuotaEntity({"client-id": "modest"})


def run(options: Options) -> list[Result]:
    """Measure the modest producer alone, beside the greedy one without a quota, and beside it with one."""
    options.say("starting one controller and one node")
    with LocalCluster(controllers=1, nodes=1) as cluster, AdminClient(cluster.client_settings()) as admin:
        admin.create_topics([NewTopic("modest", 1, 1), NewTopic("greedy", 1, 1)])["greedy"].result(_TIMEOUT_S)
        address = cluster.nodes[1].kafka_address
        seconds = options.pick(30.0, 10.0)
        options.say("a modest producer alone")
        alone = _latencies(address, seconds)
        options.say("beside a greedy one without a quota")
        with _greedy(address):
            beside = _latencies(address, seconds)
        options.say("beside a greedy one with a quota")
        _limit(admin, _GREEDY, _QUOTA)
        with _greedy(address):
            # Ten windows of the quota are free at first.
            time.sleep(2)
            limited = _latencies(address, seconds)
        _limit(admin, _GREEDY, None)
        costs = _costs(cluster, admin, options)
    name = "a producer's p99"
    return [
        Result(f"{name}: alone", _p99_ms(alone), "ms"),
        Result(f"{name}: beside {_GREED} x 1 MB/s without a quota", _p99_ms(beside), "ms"),
        Result(
            f"{name}: beside {_GREED} x its quota of 1 MB/s",
            _p99_ms(limited),
            "ms",
            "alone",
            _p99_ms(alone) / _p99_ms(limited),
            Bar.on_ratio(at_least=0.5),
        ),
        *costs,
    ]


def _costs(cluster: LocalCluster, admin: AdminClient, options: Options) -> list[Result]:
    """Measure the node's CPU time per produce request: without quotas, with those of others, with its own."""
    used: dict[str, list[float]] = {"no quota": [], "a quota of others": [], "a quota of its own": []}
    count, address, pid = options.pick(10_000, 3_000), cluster.nodes[1].kafka_address, cluster.nodes[1].pid
    for turn in range(options.pick(10, 4) + 1):
        options.say(f"the cost of a request, round {turn}")
        for kind, entity in (("no quota", None), ("a quota of others", _OTHERS), ("a quota of its own", _MODEST)):
            if entity is not None:
                _limit(admin, entity, 10**12)
            taken = _cpu_per_request_us(address, pid, count)
            if entity is not None:
                _limit(admin, entity, None)
            if turn:
                used[kind].append(taken)
    without = statistics.median(used["no quota"])
    return [Result("CPU per produce request: no quota", without, "us")] + [
        Result(f"CPU per produce request: {kind}", statistics.median(used[kind]), "us", "no quota", ratio)
        for kind in ("a quota of others", "a quota of its own")
        for ratio in [statistics.median(a / b for a, b in zip(used["no quota"], used[kind], strict=True))]
    ]


def _cpu_per_request_us(address: str, pid: int, count: int) -> float:
    frame = _frame("modest", bytes(1_000))
    with _connected(address) as sock:
        before = process.cpu_seconds(pid)
        for _ in range(count):
            sock.sendall(frame)
            _receive(sock)
        return (process.cpu_seconds(pid) - before) / count * 1e6


def _latencies(address: str, seconds: float) -> list[float]:
    frame, taken = _frame("modest", bytes(1_000)), []
    with _connected(address) as sock:
        due = begin = time.perf_counter()
        while due - begin < seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            # From the time at which the request is due, so that a slow answer delays no measurement.
            sock.sendall(frame)
            _receive(sock)
            taken.append(time.perf_counter() - due)
            due += _INTERVAL_S
    return taken


def _p99_ms(latencies: list[float]) -> float:
    return sorted(latencies)[int(len(latencies) * 0.99)] * 1e3


@contextmanager
def _greedy(address: str) -> Iterator[None]:
    sender = multiprocessing.get_context("spawn").Process(target=_send_greedily, args=(address,), daemon=True)
    sender.start()
    try:
        time.sleep(1)
        yield
    finally:
        sender.terminate()
        sender.join()


def _send_greedily(address: str) -> None:
    frame = _frame("greedy", bytes(_GREEDY_BYTES))
    with _connected(address) as sock:
        sock.settimeout(None)
        begin, sent = time.perf_counter(), 0
        while True:
            sock.sendall(frame)
            _receive(sock)
            sent += len(frame)
            time.sleep(max(0.0, begin + sent / (_GREED * _QUOTA) - time.perf_counter()))


def _limit(admin: AdminClient, entity: ClientQuotaEntity, rate: float | None) -> None:
    alteration = ClientQuotaAlteration(entity, [ClientQuotaAlterationOp("producer_byte_rate", rate)])
    admin.alter_client_quotas([alteration])[entity].result(_TIMEOUT_S)


def _frame(client_id: str, value: bytes) -> bytes:
    """Return a Produce request of version 7 with one batch, for the topic of the client's name."""
    builder = RecordBatchBuilder()
    builder.append(None, value)
    records, name = builder.build(), _text(client_id)
    body = struct.pack(">hhi", -1, 1, 30_000)
    body += struct.pack(">i", 1) + name + struct.pack(">iii", 1, 0, len(records)) + records
    head = struct.pack(">hhi", 0, 7, 1) + name
    return struct.pack(">i", len(head) + len(body)) + head + body


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _receive(sock: socket.socket) -> None:
    size = int.from_bytes(_exactly(sock, 4), "big")
    _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("the node has closed the connection")
        data += part
    return data


@contextmanager
def _connected(address: str) -> Iterator[socket.socket]:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


if __name__ == "__main__":
    run_alone(run)
