"""Reads Kafka's primitive types from bytes that nobody vouches for."""

from __future__ import annotations

from struct import Struct
from typing import Final

_INT16: Final = Struct(">h").unpack_from
_UINT16: Final = Struct(">H").unpack_from
_INT32: Final = Struct(">i").unpack_from
_UINT32: Final = Struct(">I").unpack_from
_INT64: Final = Struct(">q").unpack_from
_FLOAT64: Final = Struct(">d").unpack_from
MAX_ELEMENTS: Final = 100_000
"""How many elements the arrays of one message may have, all together: each becomes an object much larger than it, and
takes some ten microseconds to answer, of which only a few are shared with others where it is one step of a group."""


class MalformedMessageError(Exception):
    """The bytes are not what they claim to be: whoever sent them does not speak the protocol."""


class Http2PrefaceError(MalformedMessageError):
    """An HTTP/2 connection begins: a client of Tidelog tries gRPC on the address that it was given."""


class Reader:
    """A place in ``view``. Lengths and counts are held against the bytes that remain before anything is made of them.

    Every method raises :class:`MalformedMessageError` where the bytes end too soon or cannot be.
    """

    __slots__ = ("_elements", "end", "position", "view")

    def __init__(self, view: memoryview, position: int = 0) -> None:
        self.view = view
        self.position = position
        self.end = len(view)
        self._elements = MAX_ELEMENTS

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return self.end - self.position

    def advance(self, size: int) -> int:
        """Step over ``size`` bytes, and return where they begin."""
        begin = self.position
        if size < 0 or size > self.end - begin:
            raise MalformedMessageError(f"{size} bytes are announced at {begin}, {self.end - begin} remain")
        self.position = begin + size
        return begin

    def boolean(self) -> bool:
        """Read one byte; all but zero are true."""
        return self.view[self.advance(1)] != 0

    def int8(self) -> int:
        """Read a signed byte."""
        value = self.view[self.advance(1)]
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        """Read two bytes."""
        value: int = _INT16(self.view, self.advance(2))[0]
        return value

    def uint16(self) -> int:
        """Read two bytes without a sign."""
        value: int = _UINT16(self.view, self.advance(2))[0]
        return value

    def int32(self) -> int:
        """Read four bytes."""
        value: int = _INT32(self.view, self.advance(4))[0]
        return value

    def uint32(self) -> int:
        """Read four bytes without a sign."""
        value: int = _UINT32(self.view, self.advance(4))[0]
        return value

    def int64(self) -> int:
        """Read eight bytes."""
        value: int = _INT64(self.view, self.advance(8))[0]
        return value

    def float64(self) -> float:
        """Read a double."""
        value: float = _FLOAT64(self.view, self.advance(8))[0]
        return value

    def uuid(self) -> bytes:
        """Read sixteen bytes."""
        begin = self.advance(16)
        return bytes(self.view[begin : begin + 16])

    def unsigned_varint(self) -> int:
        """Read at most five bytes of seven bits each, the lowest first."""
        byte = self.view[self.advance(1)]
        if byte < 0x80:
            return byte
        value, shift = byte & 0x7F, 7
        while True:
            byte = self.view[self.advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise MalformedMessageError(f"the varint that ends at {self.position} has more than five bytes")

    def blob(self, length: int) -> memoryview:
        """Read ``length`` bytes, by reference."""
        begin = self.advance(length)
        return self.view[begin : begin + length]

    def text(self, length: int) -> str:
        """Read ``length`` bytes of UTF-8."""
        begin = self.advance(length)
        try:
            return str(self.view[begin : begin + length], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"the string at {begin} is not UTF-8: {error}") from error

    def count(self, count: int) -> int:
        """Check how many elements an array claims to have: each takes a byte at least."""
        if count > self.end - self.position or count > self._elements:
            limit = min(self.end - self.position, self._elements)
            raise MalformedMessageError(f"{count} elements are announced at {self.position}, at most {limit} can be")
        self._elements -= count
        return count

    def skip_tagged_fields(self) -> None:
        """Step over the tagged fields of a struct, none of which is known here (KIP-482)."""
        for _ in range(self.count(self.unsigned_varint())):
            self.unsigned_varint()
            self.advance(self.unsigned_varint())
