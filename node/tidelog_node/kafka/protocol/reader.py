"""A reader of Kafka's primitive types from untrusted bytes."""

from __future__ import annotations

from struct import Struct
from typing import Final

_INT16: Final = Struct(">h").unpack_from
_UINT16: Final = Struct(">H").unpack_from
_INT32: Final = Struct(">i").unpack_from
_INT64: Final = Struct(">q").unpack_from
_FLOAT64: Final = Struct(">d").unpack_from
MAX_ELEMENTS: Final = 100_000
"""The maximum number of elements in all arrays of one message together.

Each becomes an object much larger than its bytes, and takes some ten microseconds to answer, of which only a few are
shared where it is one step of a group.
"""


class MalformedMessageError(Exception):
    """The bytes are not a valid message: the sender does not speak the protocol."""


class Http2PrefaceError(MalformedMessageError):
    """The bytes begin an HTTP/2 connection: a Tidelog client tries gRPC on the address that it was given."""


class Reader:
    """A position in ``view``. Lengths and counts are checked against the remaining bytes before use.

    Every method raises :class:`MalformedMessageError` if the bytes end too soon or are invalid.
    """

    __slots__ = ("_elements", "end", "position", "view")

    def __init__(self, view: memoryview, position: int = 0) -> None:
        self.view = view
        self.position = position
        self.end = len(view)
        self._elements = MAX_ELEMENTS

    @property
    def remaining(self) -> int:
        """The number of remaining bytes."""
        return self.end - self.position

    def advance(self, size: int) -> int:
        """Skip ``size`` bytes and return their position."""
        begin = self.position
        if size < 0 or size > self.end - begin:
            raise MalformedMessageError(f"the field at byte {begin} has {size} bytes, {self.end - begin} remain")
        self.position = begin + size
        return begin

    def boolean(self) -> bool:
        """Read one byte. Every value except zero is true."""
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
        """Read two bytes as an unsigned number."""
        value: int = _UINT16(self.view, self.advance(2))[0]
        return value

    def int32(self) -> int:
        """Read four bytes."""
        value: int = _INT32(self.view, self.advance(4))[0]
        return value

    def int64(self) -> int:
        """Read eight bytes."""
        value: int = _INT64(self.view, self.advance(8))[0]
        return value

    def float64(self) -> float:
        """Read eight bytes as an IEEE 754 number."""
        value: float = _FLOAT64(self.view, self.advance(8))[0]
        return value

    def uuid(self) -> bytes:
        """Read sixteen bytes."""
        begin = self.advance(16)
        return bytes(self.view[begin : begin + 16])

    def unsigned_varint(self) -> int:
        """Read at most five bytes of seven bits each, lowest bits first."""
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
        """Read ``length`` bytes by reference."""
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
        """Check the announced number of array elements, each of which has at least one byte."""
        if count > self.end - self.position or count > self._elements:
            limit = min(self.end - self.position, self._elements)
            raise MalformedMessageError(
                f"the array before byte {self.position} has {count} elements, at most {limit} are possible"
            )
        self._elements -= count
        return count

    def bound_elements(self, most: int) -> None:
        """Let the arrays from here on have at most so many elements, all together."""
        self._elements = min(self._elements, most)

    def skip_tagged_fields(self) -> None:
        """Skip the tagged fields of a struct, none of which is known here (KIP-482)."""
        for _ in range(self.count(self.unsigned_varint())):
            self.unsigned_varint()
            self.advance(self.unsigned_varint())
