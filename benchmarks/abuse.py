"""A modest producer and a greedy one, over connections of Kafka's protocol without a library.

The modest one sends a batch of 1 KiB every 10 ms and waits for its acknowledgement. The greedy one sends batches of
100 kB at 20 MB/s, twenty times its quota, from a process of its own, and ignores what it is told about throttling. The
topic of each has its name, which is also its client id.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.rounds import quantile
from tidelog_foundation.records import RecordBatchBuilder

QUOTA = 1_000_000
"""The greedy producer's quota in bytes per second."""
GREED = 20
MODEST, GREEDY = "modest", "greedy"
_TIMEOUT_S = 30.0
_GREEDY_BYTES = 100_000
_INTERVAL_S = 0.01
_MODEST_BYTES = 1_000


def latencies(address: str, seconds: float) -> list[float]:
    """Return the seconds of the modest producer's requests, each from the time at which it is due."""
    frame, taken = _frame(MODEST, bytes(_MODEST_BYTES)), []
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


def p99_ms(seconds: list[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return quantile(seconds, 0.99) * 1e3


@contextmanager
def greedy(address: str) -> Iterator[None]:
    """Let the greedy producer send."""
    sender = multiprocessing.get_context("spawn").Process(target=_send_greedily, args=(address,), daemon=True)
    sender.start()
    try:
        time.sleep(1)
        yield
    finally:
        sender.terminate()
        sender.join()


def _send_greedily(address: str) -> None:
    frame = _frame(GREEDY, bytes(_GREEDY_BYTES))
    with _connected(address) as sock:
        sock.settimeout(None)
        begin, sent = time.perf_counter(), 0
        while True:
            sock.sendall(frame)
            _receive(sock)
            sent += len(frame)
            time.sleep(max(0.0, begin + sent / (GREED * QUOTA) - time.perf_counter()))


def send(address: str, count: int) -> None:
    """Send requests of the modest producer, each after the acknowledgement of the one before."""
    frame = _frame(MODEST, bytes(_MODEST_BYTES))
    with _connected(address) as sock:
        for _ in range(count):
            sock.sendall(frame)
            _receive(sock)


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
