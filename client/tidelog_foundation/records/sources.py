"""The conversion of columns of records to the two forms that the engines encode.

Contents (keys or values) become a list or tuple of ``bytes | None``, or a :class:`BinaryColumn` over the buffers of an
Arrow array, without a copy and without a Python object per record. Timestamps become one int, or a memoryview of int64.
This module never imports pyarrow; it recognizes arrays by their attributes.
"""

from __future__ import annotations

import typing
from array import array
from collections.abc import Sequence
from typing import Any, Protocol

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records.columns import BinaryColumn
from tidelog_foundation.records.header import MAX_INT64, NO_TIMESTAMP


class ArrowArray(Protocol):
    """The part of ``pyarrow.Array`` that gives access to its buffers."""

    type: Any
    offset: int
    null_count: int

    def __len__(self) -> int:
        """Return the number of rows."""

    def buffers(self) -> list[Any]:
        """Return validity, offsets if the type has them, and data."""


Contents = Sequence[bytes | None] | ArrowArray | BinaryColumn
"""Keys or values: bytes and None, buffers, or an Arrow array of (large) binary, (large) string, fixed-size binary."""

Timestamps = int | Sequence[int] | memoryview | ArrowArray
"""One timestamp in ms for all records, or one each: ints, a buffer of int64, an Arrow array of
int64 or timestamp[ms].
"""

ContentSource = list[bytes | None] | tuple[bytes | None, ...] | BinaryColumn
TimestampSource = int | memoryview

_OFFSET_SIZES = {"binary": 4, "string": 4, "large_binary": 8, "large_string": 8}


def content_source(contents: Contents, name: str) -> ContentSource:
    """Return keys or values in an engine's form; ``name`` is for errors.

    Raises:
        TypeError: not a sequence, or an Arrow array of another type.
    """
    if type(contents) is list or type(contents) is tuple or type(contents) is BinaryColumn:
        return contents
    _refuse_chunks(contents, name)
    if hasattr(contents, "buffers"):
        return _binary_column(contents, name)
    return list(typing.cast("Sequence[bytes | None]", contents))


def rows_of(contents: ContentSource) -> int:
    """Return the number of rows."""
    return contents.rows if isinstance(contents, BinaryColumn) else len(contents)


def content_at(contents: ContentSource, row: int, name: str) -> bytes | None:
    """Return a row's bytes, None for null.

    Raises:
        TypeError: the content is of another type.
        ValueError: a column's offsets lie outside its data.
    """
    if not isinstance(contents, BinaryColumn):
        content = contents[row]
        if isinstance(content, bytes | None):
            return content
        raise TypeError(f"{name} {row}: expected bytes or None, got {type(content).__name__}")
    bit = contents.first_bit + row
    if contents.validity is not None and not contents.validity[bit >> 3] >> (bit & 7) & 1:
        return None
    if contents.offsets is None:
        return bytes(contents.data[row * contents.width : (row + 1) * contents.width])
    start, end = contents.offsets[row], contents.offsets[row + 1]
    if not 0 <= start <= end <= len(contents.data):
        raise ValueError(f"{name} {row}: bytes {start} to {end} of {len(contents.data)}")
    return bytes(contents.data[start:end])


def timestamp_source(timestamps: Timestamps, rows: int) -> TimestampSource:
    """Return the timestamps of ``rows`` rows in an engine's form; nulls become -1.

    Raises:
        TypeError: not ints, or an Arrow array of another type.
        ValueError: their number differs.
        TidelogError: INVALID_TIMESTAMP beyond int64.
    """
    if isinstance(timestamps, int):
        return timestamps
    _refuse_chunks(timestamps, "timestamp")
    view = _arrow_timestamps(timestamps) if hasattr(timestamps, "buffers") else _int64_view(timestamps)
    if len(view) != rows:
        raise ValueError(f"{len(view)} timestamps for {rows} values")
    return view


def _refuse_chunks(column: object, name: str) -> None:
    if hasattr(column, "chunks"):
        raise TypeError(f"{name}: a chunked array is not supported: extend by each of its chunks")


def _binary_column(column: Any, name: str) -> BinaryColumn:
    kind, rows, first = str(column.type), len(column), column.offset
    offset_size = _OFFSET_SIZES.get(kind)
    if offset_size is None and not kind.startswith("fixed_size_binary"):
        raise TypeError(f"{name}: expected an Arrow array of binary or string, got {kind}")
    validity, *offsets, data = [None if part is None else memoryview(part).cast("B") for part in column.buffers()]
    if not rows:
        return BinaryColumn(0, None, 0, None, 0, memoryview(b""))
    validity = validity if column.null_count else None
    if validity is not None and 8 * len(validity) < first + rows:
        raise ValueError(f"{name}: validity of {len(validity)} bytes for rows {first} to {first + rows}")
    data = data or memoryview(b"")
    if offset_size is None:
        width = column.type.byte_width
        return BinaryColumn(rows, validity, first, None, width, data[first * width : (first + rows) * width])
    places = (offsets[0] or memoryview(b""))[first * offset_size : (first + rows + 1) * offset_size]
    if len(places) != (rows + 1) * offset_size:
        raise ValueError(f"{name}: {len(places) // offset_size} offsets for {rows} rows")
    return BinaryColumn(rows, validity, first, places.cast("i" if offset_size == 4 else "q"), 0, data)


def _arrow_timestamps(column: Any) -> memoryview:
    kind, first, rows = str(column.type), column.offset, len(column)
    if kind != "int64" and not kind.startswith("timestamp[ms"):
        raise TypeError(f"timestamp: expected an Arrow array of int64 or timestamp[ms], got {kind}")
    data = column.buffers()[-1]
    if column.null_count or data is None:
        return memoryview(array("q", _filled(column)))
    return memoryview(data).cast("B")[8 * first : 8 * (first + rows)].cast("q")


def _filled(column: Any) -> list[int]:
    """Return the numbers, with -1 for null."""
    numbers = column.cast("int64").fill_null(NO_TIMESTAMP).to_pylist()
    return list(numbers)


def _int64_view(timestamps: Any) -> memoryview:
    try:
        view = memoryview(timestamps)
    except TypeError:
        try:
            return memoryview(array("q", timestamps))
        except OverflowError as error:
            raise error_for(
                ErrorCode.INVALID_TIMESTAMP, f"timestamp: expected {NO_TIMESTAMP} to {MAX_INT64}: {error}"
            ) from error
    if view.ndim != 1 or view.format not in ("q", "l") or view.itemsize != 8 or not view.contiguous:
        raise TypeError(f"timestamp: expected a buffer of int64, got format {view.format} of {view.ndim} dimensions")
    return view
