"""Kafka's primitive types in the encoding of __consumer_offsets records, without I/O.

The plain forms have lengths of int16 (strings) and int32 (bytes, arrays), with -1 for null. The compact forms of
flexible versions (KIP-482) have an unsigned varint of length + 1, with 0 for null, and tagged fields after every
struct.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
MAX_STRING_BYTES = 2**15 - 1
UUID_BYTES = 16
_VARINT_BYTES = 5
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def is_too_long(text: str) -> bool:
    """Return whether a string does not fit into a record: it has more than MAX_STRING_BYTES bytes."""
    # A character has at most four bytes.
    if len(text) <= MAX_STRING_BYTES // 4:
        return False
    return len(text) > MAX_STRING_BYTES or len(text.encode(errors="surrogatepass")) > MAX_STRING_BYTES


class Writer:
    """An encoder of one key or value."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def int8(self, number: int) -> None:
        """Write one signed byte."""
        self._data += _INT8.pack(number)

    def int16(self, number: int) -> None:
        """Write two bytes."""
        self._data += _INT16.pack(number)

    def int32(self, number: int) -> None:
        """Write four bytes."""
        self._data += _INT32.pack(number)

    def int32s(self, numbers: Sequence[int]) -> None:
        """Write four bytes for each number, without their count."""
        self._data += struct.pack(f">{len(numbers)}i", *numbers)

    def int64(self, number: int) -> None:
        """Write eight bytes."""
        self._data += _INT64.pack(number)

    def uuid(self, data: bytes) -> None:
        """Write 16 bytes.

        Raises:
            ValueError: ``data`` does not have 16 bytes.
        """
        if len(data) != UUID_BYTES:
            raise ValueError(f"a topic id has {UUID_BYTES} bytes, not {len(data)}")
        self._data += data

    def string(self, text: str | None) -> None:
        """Write a string of at most 32767 bytes, or null.

        Raises:
            ValueError: The string is longer.
        """
        if text is None:
            self.int16(-1)
            return
        data = text.encode()
        if len(data) > MAX_STRING_BYTES:
            raise ValueError(f"a string of {len(data)} bytes, at most {MAX_STRING_BYTES} can be written")
        self.int16(len(data))
        self._data += data

    def bytes_(self, data: bytes) -> None:
        """Write bytes preceded by their length."""
        self.int32(len(data))
        self._data += data

    def array(self, items: Iterable[T], write: Callable[[T], None]) -> None:
        """Write the number of items, then each item with ``write``."""
        items = tuple(items)
        self.int32(len(items))
        for item in items:
            write(item)

    def compact_string(self, text: str | None) -> None:
        """Write a string of a flexible version, or null."""
        if text is None:
            self.unsigned_varint(0)
            return
        data = text.encode()
        self.unsigned_varint(len(data) + 1)
        self._data += data

    def compact_bytes(self, data: bytes) -> None:
        """Write bytes of a flexible version."""
        self.unsigned_varint(len(data) + 1)
        self._data += data

    def compact_array(self, items: Iterable[T], write: Callable[[T], None]) -> None:
        """Write an array of a flexible version."""
        items = tuple(items)
        self.unsigned_varint(len(items) + 1)
        for item in items:
            write(item)

    def tags(self, fields: Mapping[int, bytes] | None = None) -> None:
        """Write the tagged fields that end a struct in ascending order of tag."""
        fields = fields or {}
        self.unsigned_varint(len(fields))
        for tag, data in sorted(fields.items()):
            self.unsigned_varint(tag)
            self.unsigned_varint(len(data))
            self._data += data

    def unsigned_varint(self, number: int) -> None:
        """Write seven bits per byte, lowest bits first."""
        while number >= 0x80:
            self._data.append(number & 0x7F | 0x80)
            number >>= 7
        self._data.append(number)


class Reader:
    """A decoder of one key or value. Every method raises ValueError if the bytes end too early."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        """The number of bytes that have not been read."""
        return len(self._data) - self._position

    def int8(self) -> int:
        """Read one signed byte."""
        return self._unpack(_INT8)

    def int16(self) -> int:
        """Read two bytes."""
        return self._unpack(_INT16)

    def int32(self) -> int:
        """Read four bytes."""
        return self._unpack(_INT32)

    def int32s(self, count: int) -> tuple[int, ...]:
        """Read so many numbers of four bytes."""
        return struct.unpack(f">{count}i", self._take(_INT32.size * self._counted(count)))

    def int64(self) -> int:
        """Read eight bytes."""
        return self._unpack(_INT64)

    def uuid(self) -> bytes:
        """Read 16 bytes."""
        return self._take(UUID_BYTES)

    def string(self) -> str:
        """Read a string.

        Raises:
            ValueError: The string is null, ends too early or is not UTF-8.
        """
        return self._not_null(self.nullable_string())

    def nullable_string(self) -> str | None:
        """Read a string or null."""
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def bytes_(self) -> bytes:
        """Read bytes preceded by their length."""
        return self._take(self.int32())

    def nullable_bytes(self) -> bytes | None:
        """Read bytes or null."""
        length = self.int32()
        return None if length < 0 else self._take(length)

    def array(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read the number of items, then each item with ``read``."""
        return tuple(read() for _ in range(self._counted(self.int32())))

    def nullable_array(self, read: Callable[[], T]) -> tuple[T, ...] | None:
        """Read an array, or null."""
        count = self.int32()
        return None if count < 0 else tuple(read() for _ in range(self._counted(count)))

    def compact_string(self) -> str:
        """Read a non-null string of a flexible version."""
        return self._not_null(self.nullable_compact_string())

    def nullable_compact_string(self) -> str | None:
        """Read a string of a flexible version, or null."""
        length = self.unsigned_varint() - 1
        return None if length < 0 else self._take(length).decode()

    def compact_bytes(self) -> bytes:
        """Read bytes of a flexible version."""
        return self._take(self.unsigned_varint() - 1)

    def compact_array(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read a non-null array of a flexible version."""
        return tuple(read() for _ in range(self._counted(self.unsigned_varint() - 1)))

    def nullable_compact_array(self, read: Callable[[], T]) -> tuple[T, ...] | None:
        """Read an array of a flexible version, or null."""
        count = self.unsigned_varint() - 1
        return None if count < 0 else tuple(read() for _ in range(self._counted(count)))

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that end a struct."""
        return {self.unsigned_varint(): self._take(self.unsigned_varint()) for _ in range(self.unsigned_varint())}

    def unsigned_varint(self) -> int:
        """Read seven bits per byte, lowest bits first, at most five bytes."""
        number = 0
        for shift in range(0, 7 * _VARINT_BYTES, 7):
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError(f"a varint of more than {_VARINT_BYTES} bytes at byte {self._position - _VARINT_BYTES}")

    def _unpack(self, form: struct.Struct) -> int:
        number: int
        (number,) = form.unpack(self._take(form.size))
        return number

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes expected at byte {self._position} of {len(self._data)}")
        data = self._data[self._position : end]
        self._position = end
        return data

    def _counted(self, count: int) -> int:
        if not 0 <= count <= self.remaining:
            raise ValueError(f"{count} items cannot be in {self.remaining} bytes")
        return count

    def _not_null(self, text: str | None) -> str:
        if text is None:
            raise ValueError(f"null before byte {self._position} where a string is expected")
        return text
