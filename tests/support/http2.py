"""A hostile client of gRPC: it sends a message without end, as fast as the server's flow control permits."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_HEADERS = 4
_ACK = _END_STREAM = 1
_INITIAL_WINDOW = 4
_DEFAULT_WINDOW = 65_535
_CHUNK = bytes(16_384)


async def sent_of_message(port: int, path: str, size: int, quiet_s: float = 0.2) -> int:
    """Return how many bytes of a request of ``size`` bytes the server lets its client send.

    The call ends when the server ends it, when only the last byte is missing, or when nothing happens for ``quiet_s``.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0) + _frame(_HEADERS, _END_HEADERS, 1, _headers(path)))
        upload = _Upload(struct.pack(">BI", 0, size), size - 1)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while not upload.is_over:
                upload.send(writer)
                async with asyncio.timeout(quiet_s):
                    await writer.drain()
                    head = await reader.readexactly(9)
                    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                upload.receive(head[3], head[4], int.from_bytes(head[5:]) & 0x7FFFFFFF, payload, writer)
        return upload.sent
    finally:
        writer.close()


@dataclass
class _Upload:
    """A request on stream 1. ``head`` is gRPC's prefix, ``left`` the rest of its bytes to send."""

    head: bytes
    left: int
    connection: int = _DEFAULT_WINDOW
    stream: int = _DEFAULT_WINDOW
    initial: int = _DEFAULT_WINDOW
    sent: int = 0
    is_over: bool = False

    def send(self, writer: asyncio.StreamWriter) -> None:
        """Send as much as the windows permit."""
        while self.left and min(self.connection, self.stream) > len(_CHUNK):
            chunk = self.head + _CHUNK[: min(self.left, len(_CHUNK)) - len(self.head)]
            self.head = b""
            writer.write(_frame(_DATA, 0, 1, chunk))
            self.left -= len(chunk)
            self.sent += len(chunk)
            self.connection -= len(chunk)
            self.stream -= len(chunk)

    def receive(self, kind: int, flags: int, stream: int, payload: bytes, writer: asyncio.StreamWriter) -> None:
        """Take a frame of the server."""
        if kind == _SETTINGS and not flags & _ACK:
            for key, value in struct.iter_unpack(">HI", payload):
                if key == _INITIAL_WINDOW:
                    self.stream += value - self.initial
                    self.initial = value
            writer.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE and stream:
            self.stream += int.from_bytes(payload)
        elif kind == _WINDOW_UPDATE:
            self.connection += int.from_bytes(payload)
        elif kind in (_RST_STREAM, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
            self.is_over = True
        self.is_over = self.is_over or not self.left


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _headers(path: str) -> bytes:
    """Return the headers of a call, each as a literal without index."""
    pairs = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
    pairs["content-type"] = "application/grpc"
    texts = (text.encode() for pair in pairs.items() for text in pair)
    return b"".join((b"\0" if n % 2 == 0 else b"") + bytes((len(text),)) + text for n, text in enumerate(texts))
