"""A writer of Kafka's primitive types that keeps large values by reference."""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
_INT8: Final = Struct(">b").pack
_INT16: Final = Struct(">h").pack
_UINT16: Final = Struct(">H").pack
_INT32: Final = Struct(">i").pack
_INT64: Final = Struct(">q").pack
_FLOAT64: Final = Struct(">d").pack
_BY_REFERENCE: Final = 4_096
"""Blobs of at least this size are not copied."""


class Writer:
    """The bytes of a message. ``buffer`` is its current part; :meth:`chunks` returns all parts for ``writelines``.

    Values out of their type's range raise :class:`struct.error`; the caller must handle it.
    """

    __slots__ = ("_chunks", "buffer")

    def __init__(self) -> None:
        self._chunks: list[Buffer] = []
        self.buffer = bytearray()

    def chunks(self) -> list[Buffer]:
        """Return the written bytes without copying the large parts."""
        return [*self._chunks, self.buffer] if self.buffer else self._chunks

    def boolean(self, value: bool) -> None:
        """Write one byte."""
        self.buffer.append(1 if value else 0)

    def int8(self, value: int) -> None:
        """Write a signed byte."""
        self.buffer += _INT8(value)

    def int16(self, value: int) -> None:
        """Write two bytes."""
        self.buffer += _INT16(value)

    def uint16(self, value: int) -> None:
        """Write two bytes of an unsigned number."""
        self.buffer += _UINT16(value)

    def int32(self, value: int) -> None:
        """Write four bytes."""
        self.buffer += _INT32(value)

    def int64(self, value: int) -> None:
        """Write eight bytes."""
        self.buffer += _INT64(value)

    def float64(self, value: float) -> None:
        """Write eight bytes of an IEEE 754 number."""
        self.buffer += _FLOAT64(value)

    def uuid(self, value: bytes) -> None:
        """Write sixteen bytes, or sixteen zeros for no bytes.

        Raises:
            ValueError: There is another number of bytes.
        """
        if len(value) not in (0, 16):
            raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
        self.buffer += value or bytes(16)

    def unsigned_varint(self, value: int) -> None:
        """Write seven bits per byte, lowest bits first."""
        while value > 0x7F:
            self.buffer.append(value & 0x7F | 0x80)
            value >>= 7
        self.buffer.append(value)

    def blob(self, value: Buffer) -> None:
        """Write bytes, large ones by reference."""
        if len(value) < _BY_REFERENCE:
            self.buffer += value
            return
        if self.buffer:
            self._chunks.append(self.buffer)
        self._chunks.append(value)
        self.buffer = bytearray()
