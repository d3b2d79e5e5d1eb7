"""What an engine hands over for Arrow: plain buffers in Arrow's layout, so that no engine needs pyarrow."""

from __future__ import annotations

from typing import NamedTuple

BinaryBuffers = tuple[memoryview, memoryview, memoryview, int]
"""Validity bits, int32 offsets (one more than rows), data, and the number of nulls."""


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
