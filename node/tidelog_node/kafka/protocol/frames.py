"""Makes frames of what a connection receives, as far as they may be received: four bytes of length, then so many."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tidelog_node.kafka.protocol.headers import LEAST_REQUEST_BYTES
from tidelog_node.kafka.protocol.reader import Http2PrefaceError, MalformedMessageError

_LENGTH: Final = Struct(">i")
_ANNOUNCEMENT: Final = Struct(">ih")
_LENGTH_BYTES: Final = _LENGTH.size
_HTTP2_PREFACE: Final = int.from_bytes(b"PRI ")
_FIRST_BYTES: Final = 1024**2
"""So much of a frame gets memory before it is there; what is larger gets more as it comes, to be paid for in bytes."""


class Announced(NamedTuple):
    """The next frame, as its first bytes announce it: its size in bytes and the API that it is for."""

    size: int
    api_key: int


class FrameReceiver:
    """One per connection, which puts what it receives into :meth:`buffer` and calls :meth:`received`.

    Small frames come through ``scratch``, which all connections of an event loop share: nothing may stay in it, see
    :meth:`keep`. A frame that is not there as a whole gets a bytearray of its own, into which the rest is received
    without a copy; it is made by :meth:`is_whole`, before which the caller sees to it that there is room.
    """

    __slots__ = ("_announced", "_data", "_end", "_filled", "_max_size", "_own", "_position", "_scratch")

    def __init__(self, scratch: bytearray, max_size: int) -> None:
        self._scratch = memoryview(scratch)
        self._max_size = max_size
        self._data = self._scratch
        self._position = self._end = 0
        self._own: bytearray | None = None
        self._announced = Announced(0, 0)
        """The frame that ``_own`` is for."""
        self._filled = 0

    @property
    def is_partial(self) -> bool:
        """True if bytes are there that are no frame yet, or were not asked for."""
        return self._own is not None or self._position < self._end

    @property
    def partial_bytes(self) -> int:
        """How many bytes are there of the next frame, or frames."""
        return self._filled if self._own is not None else self._end - self._position

    def buffer(self) -> memoryview:
        """Return where the next bytes go."""
        own = self._own
        if own is not None:
            if self._filled == len(own):
                own += bytes(min(len(own), self._announced.size - len(own)))
            return memoryview(own)[self._filled :]
        # They are copied, not moved: perhaps nothing comes, and the next to receive is another connection.
        left = self._end - self._position
        self._scratch[:left] = self._data[self._position : self._end]
        return self._scratch[left:]

    def received(self, count: int) -> None:
        """Count ``count`` bytes that are in :meth:`buffer` now, asked for just before."""
        if self._own is not None:
            self._filled += count
        else:
            left = self._end - self._position
            self._data, self._position, self._end = self._scratch, 0, left + count

    def announced(self) -> Announced | None:
        """Return what the next frame will be, None while its first bytes are not there.

        Raises:
            MalformedMessageError: it cannot be a request, or has more bytes than a request may have.
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
        """Return whether the announced frame is all there; one that is not is received into its own bytes from now."""
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
        """Return the announced frame, which :meth:`is_whole`, without its length; it is the caller's."""
        if self._own is not None:
            frame, self._own, self._filled = self._own, None, 0
            return frame
        [size] = _LENGTH.unpack_from(self._data, self._position)
        begin = self._position + _LENGTH_BYTES
        self._position = begin + size
        return bytearray(self._data[begin : begin + size])

    def keep(self) -> None:
        """Move what is left out of the shared bytes, before another connection receives."""
        if self._position == self._end:
            self._data, self._position, self._end = self._scratch, 0, 0
        elif self._data is self._scratch:
            self._data = memoryview(bytes(self._data[self._position : self._end]))
            self._position, self._end = 0, len(self._data)

    def _check(self, size: int) -> None:
        if size < LEAST_REQUEST_BYTES:
            raise MalformedMessageError(f"a frame of {size} bytes is announced, a request has {LEAST_REQUEST_BYTES}")
        if size == _HTTP2_PREFACE:
            raise Http2PrefaceError("it begins with HTTP/2, and gRPC is served by another listener")
        if size > self._max_size:
            raise MalformedMessageError(
                f"a frame of {size} bytes is announced, socket.request.max.bytes is {self._max_size}"
            )
