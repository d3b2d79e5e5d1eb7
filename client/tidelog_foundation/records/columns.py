"""Plain buffers in Arrow's layout between the engines and Arrow, so that no engine needs pyarrow."""

from __future__ import annotations

from typing import NamedTuple

Bytes = bytes | memoryview

BinaryBuffers = tuple[Bytes | None, memoryview, Bytes, int]
"""Validity bits (None where nothing is null), int32 offsets (one more than rows), data, and the number of nulls."""


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
    """A column of ``rows`` byte strings to encode, in the memory of whoever made it.

    Row ``i`` is ``data[offsets[i]:offsets[i + 1]]`` where there are ``offsets`` (int32 or int64, rows + 1 of them),
    else the ``width`` bytes from ``i * width`` on. It is null where bit ``first_bit + i`` of ``validity`` is not set.
    """

    rows: int
    validity: memoryview | None
    first_bit: int
    offsets: memoryview | None
    width: int
    data: memoryview
