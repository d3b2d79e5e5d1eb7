"""Plain buffers in Arrow's layout, so that the engines do not need pyarrow."""

from __future__ import annotations

from typing import NamedTuple

Bytes = bytes | memoryview

BinaryBuffers = tuple[Bytes | None, memoryview, Bytes, int]
"""Validity bits (None without nulls), int32 offsets (one more than rows), data, and the number of nulls."""


class ColumnBuffers(NamedTuple):
    """The columns of ``rows`` records; ``header_offsets`` delimits each row's entries in the two header columns."""

    rows: int
    offset: memoryview
    timestamp_ms: memoryview
    timestamp_type: memoryview
    key: BinaryBuffers
    value: BinaryBuffers
    header_offsets: memoryview
    header_key: BinaryBuffers
    header_value: BinaryBuffers


class BinaryColumn(NamedTuple):
    """A column of ``rows`` byte strings to encode, in its owner's memory.

    Row ``i`` is ``data[offsets[i]:offsets[i + 1]]`` if there are ``offsets`` (int32 or int64, rows + 1 of them), else
    the ``width`` bytes from ``i * width`` on. It is null if bit ``first_bit + i`` of ``validity`` is not set.
    """

    rows: int
    validity: memoryview | None
    first_bit: int
    offsets: memoryview | None
    width: int
    data: memoryview
