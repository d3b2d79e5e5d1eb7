"""Assembly of a connection's received bytes into frames: a length of four bytes, then as many bytes."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tidelog_node.kafka.protocol.headers import LEAST_REQUEST_BYTES
from tidelog_node.kafka.protocol.reader import Http2PrefaceError, MalformedMessageError

_LENGTH: Final = Struct(">i")
_ANNOUNCEMENT: Final = Struct(">ih")
_LENGTH_BYTES: Final = _LENGTH.size
_HTTP2_PREFACE: Final = int.from_bytes(b"PRI ")
_TLS_HANDSHAKE: Final = 0x1603
"""The first bytes of a connection with TLS: a handshake record and the major version."""
_FIRST_BYTES: Final = 1024**2
"""The initial memory of a partially received frame.

It grows as bytes arrive, so that a sender must send bytes to use memory.
"""

_SMALL_BYTES: Final = 4096
"""The size of frames whose parts may stay in memory without a reservation."""


class Announced(NamedTuple):
    """The next frame as announced by its first bytes: its size in bytes and its API."""

    size: int
    api_key: int


class FrameReceiver:
    """Splits the bytes of one connection into frames. It receives into :meth:`buffer` and calls :meth:`received`.

    Small frames pass through ``scratch``, which all connections of an event loop share, so nothing may stay in it, see
    :meth:`keep`. An incomplete frame gets a bytearray of its own, and the rest is received into it without a copy.
    :meth:`is_whole` creates it; the caller reserves the memory first.
    """

    __slots__ = ("_announced", "_data", "_end", "_filled", "_max_size", "_own", "_position", "_scratch")

    def __init__(self, scratch: bytearray, max_size: int) -> None:
        self._scratch = memoryview(scratch)
        self._max_size = max_size
        self._data = self._scratch
        self._position = self._end = 0
        self._own: bytearray | None = None
        self._announced = Announced(0, 0)
        """The frame in ``_own``."""
        self._filled = 0

    @property
    def is_partial(self) -> bool:
        """True if there are bytes of an incomplete or unclaimed frame."""
        return self._own is not None or self._position < self._end

    @property
    def partial_bytes(self) -> int:
        """The number of received bytes of the next frame or frames."""
        return self._filled if self._own is not None else self._end - self._position

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        own = self._own
        if own is not None:
            if self._filled == len(own):
                own += bytes(min(len(own), self._announced.size - len(own)))
            return memoryview(own)[self._filled :]
        # The bytes are copied, not moved, since nothing may arrive and another connection may receive next.
        left = self._end - self._position
        if not left:
            return self._scratch
        self._scratch[:left] = self._data[self._position : self._end]
        return self._scratch[left:]

    def received(self, count: int) -> None:
        """Count ``count`` bytes received into the last :meth:`buffer`."""
        if self._own is not None:
            self._filled += count
        else:
            left = self._end - self._position
            self._data, self._position, self._end = self._scratch, 0, left + count

    @property
    def shared_bytes(self) -> int:
        """The number of bytes at the beginning of the shared buffer, right after :meth:`received`."""
        return self._end if self._own is None else 0

    def skip(self, count: int) -> None:
        """Drop the first ``count`` bytes, whose requests were served in the shared buffer."""
        self._position += count
        if self._position == self._end:
            self._position = self._end = 0

    @property
    def is_small_part(self) -> bool:
        """True if only a part of one frame is left, of at most 4 KiB, whose first bytes are known."""
        left = self._end - self._position
        if self._own is not None or left < _ANNOUNCEMENT.size:
            return False
        size: int = _LENGTH.unpack_from(self._data, self._position)[0]
        return LEAST_REQUEST_BYTES <= size <= _SMALL_BYTES and left - _LENGTH_BYTES < size

    def announced(self) -> Announced | None:
        """Return the size and API of the next frame, or None until its first bytes have arrived.

        Raises:
            MalformedMessageError: The frame is not a request, or exceeds the maximum request size.
        """
        if self._own is not None:
            return self._announced
        left = self._end - self._position
        if left < _LENGTH_BYTES:
            return None
        if left < _ANNOUNCEMENT.size:
            self._check(_LENGTH.unpack_from(self._data, self._position)[0])
            return None
        size, api_key = _ANNOUNCEMENT.unpack_from(self._data, self._position)
        self._check(size)
        return Announced(size, api_key)

    def is_whole(self) -> bool:
        """Return whether the announced frame is complete. An incomplete one gets its own buffer from now on."""
        if self._own is not None:
            return self._filled == self._announced.size
        begin = self._position + _LENGTH_BYTES
        left = self._end - begin
        size, api_key = _ANNOUNCEMENT.unpack_from(self._data, self._position)
        if left >= size:
            return True
        self._announced = Announced(size, api_key)
        self._own = bytearray(min(size, _FIRST_BYTES))
        self._own[:left] = self._data[begin : self._end]
        self._filled = left
        self._position = self._end
        return False

    def take(self) -> bytearray:
        """Return the announced frame without its length, once it :meth:`is_whole`. The caller owns it."""
        if self._own is not None:
            frame, self._own, self._filled = self._own, None, 0
            return frame
        [size] = _LENGTH.unpack_from(self._data, self._position)
        begin = self._position + _LENGTH_BYTES
        self._position = begin + size
        return bytearray(self._data[begin : begin + size])

    def keep(self) -> None:
        """Move the remaining bytes out of the shared buffer before another connection receives."""
        if self._position == self._end:
            self._data, self._position, self._end = self._scratch, 0, 0
        elif self._data is self._scratch:
            self._data = memoryview(bytes(self._data[self._position : self._end]))
            self._position, self._end = 0, len(self._data)

    def _check(self, size: int) -> None:
        if size < LEAST_REQUEST_BYTES:
            raise MalformedMessageError(f"a frame has {size} bytes, a request has at least {LEAST_REQUEST_BYTES}")
        check_size(size, self._max_size, "socket.request.max.bytes")


def check_size(size: int, max_size: int, setting: str) -> None:
    """Raise if a frame announces more bytes than ``setting`` permits.

    Raises:
        MalformedMessageError: The text states the size, or the protocol that the client speaks instead of Kafka's.
    """
    if size == _HTTP2_PREFACE:
        raise Http2PrefaceError("the client speaks HTTP/2, and gRPC has another listener")
    if size > max_size and size >> 16 == _TLS_HANDSHAKE:
        raise MalformedMessageError("the client speaks TLS, and this listener is not encrypted")
    if not 0 <= size <= max_size:
        raise MalformedMessageError(f"a frame has {size} bytes, {setting} is {max_size}")
