"""Conversion of the arguments of ``produce_batch()`` to columns: frames, series, lists of bytes or text.

pyarrow is imported only for data that is, or becomes, Arrow's; only pandas that is already loaded is used.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.cluster.config import MAX_INT32
from tidelog.message import Headers
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records.columns import BinaryColumn
from tidelog_foundation.records.sources import ContentSource, content_source, rows_of, timestamp_source

COLUMNS = ("value", "key", "timestamp", "partition", "headers")
_PLAIN = ("binary", "string", "large_binary", "large_string")
ANY_PARTITION = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows: their contents, and one timestamp and one partition for all rows or for each."""

    values: ContentSource
    keys: ContentSource | None
    timestamps: int | memoryview
    partitions: int | array[int]
    headers: Sequence[Headers | None] | None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return rows_of(self.values)


def read_columns(data: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> list[Columns]:
    """Return the rows of ``data``, one piece per batch of an Arrow table.

    Raises:
        TypeError: an unsupported type; a table column with another name or type; a duplicate column.
        ValueError: the columns differ in length.
        TidelogError: INVALID_TIMESTAMP, _UNKNOWN_PARTITION.
    """
    data = to_arrow(data)
    if hasattr(data, "column_names"):
        return [_columns(*_named(part, key, partition, timestamp, headers)) for part in _parts(data)]
    if isinstance(data, str | bytes | dict) or (isinstance(data, Sequence) and data and isinstance(data[0], dict)):
        raise TypeError(
            "data must be a frame or series of pandas, polars or Arrow, or a list of bytes or text; "
            "dicts are for produce()"
        )
    return [_columns(data, key, partition, timestamp, headers)]


def slice_rows(contents: ContentSource, start: int, end: int) -> ContentSource:
    """Return the rows from ``start`` to ``end`` without copying their bytes."""
    if not isinstance(contents, BinaryColumn):
        return contents[start:end]
    count, first_bit = end - start, contents.first_bit + start
    if contents.offsets is None:
        data = contents.data[start * contents.width : end * contents.width]
        return contents._replace(rows=count, first_bit=first_bit, data=data)
    return contents._replace(rows=count, first_bit=first_bit, offsets=contents.offsets[start : end + 1])


def _parts(table: Any) -> Iterator[Any]:
    yield from (part for part in table.to_batches() if part.num_rows) if hasattr(table, "to_batches") else (table,)


def _named(part: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> tuple[Any, ...]:
    found = dict(zip(part.column_names, part.columns, strict=True))
    unknown = [f'"{name}"' for name in found if name not in COLUMNS]
    if unknown:
        columns = "column" if len(unknown) == 1 else "columns"
        raise TypeError(f"unknown {columns} {', '.join(unknown)}: a table of records has {', '.join(COLUMNS)}")
    given = {"key": key, "partition": None if _is_any(partition) else partition, "timestamp": timestamp}
    for name, argument in {**given, "headers": headers}.items():
        if argument is None:
            continue
        if name in found:
            raise TypeError(f'"{name}" is given twice: as a column and as an argument')
        if not isinstance(argument, int):
            raise TypeError(f'"{name}" must be a column of the table, or one number for all rows')
        found[name] = argument
    if "value" not in found:
        raise TypeError('the table has no column "value"')
    return tuple(found.get(name, ANY_PARTITION if name == "partition" else None) for name in _ORDER)


_ORDER = ("value", "key", "partition", "timestamp", "headers")


def _columns(values: Any, key: Any, partition: Any, timestamp: Any, headers: Any) -> Columns:
    value_source = _contents(values, "value")
    rows = rows_of(value_source)
    key_source = None if key is None else _contents(key, "key")
    if key_source is not None and rows_of(key_source) != rows:
        raise ValueError(f"{rows_of(key_source)} keys for {rows} values")
    partitions = _partitions(partition, rows)
    pairs = _headers(headers, rows)
    return Columns(value_source, key_source, _timestamps(timestamp, rows), partitions, pairs)


def _contents(column: Any, name: str) -> ContentSource:
    source = content_source(_plain(column), name)
    if isinstance(source, BinaryColumn):
        return source
    if isinstance(next((content for content in source if content is not None), None), str):
        return tuple(_encoded(content, row, name) for row, content in enumerate(source))
    # Callbacks run while rows wait for room; a copy protects the rows from changes to the application's list.
    return tuple(source) if source is column and isinstance(source, list) else source


def _encoded(content: Any, row: int, name: str) -> Any:
    try:
        return content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} {row} cannot be encoded as UTF-8: {error}") from error


def _plain(column: Any) -> Any:
    column = to_arrow(column)
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
        if hasattr(column, "chunks"):
            import pyarrow

            column = pyarrow.concat_arrays(column.chunks) if column.num_chunks else pyarrow.array([], column.type)
    if hasattr(column, "buffers") and str(column.type) not in _PLAIN:
        if str(column.type).startswith("fixed_size_binary"):
            return column
        if str(column.type).startswith("dictionary"):
            # Not a cast: Arrow cannot cast dictionaries of views, which polars uses.
            return column.dictionary.cast("large_binary").take(column.indices)
        if str(column.type) in ("binary_view", "string_view", "null"):
            return column.cast("large_binary")
    return column


def _timestamps(timestamp: Any, rows: int) -> int | memoryview:
    now_ms = int(time.time() * 1000)
    if timestamp is None:
        return now_ms
    if isinstance(timestamp, int):
        return timestamp_source(timestamp or now_ms, rows)
    timestamp = _plain(timestamp)
    if hasattr(timestamp, "buffers"):
        import pyarrow

        if pyarrow.types.is_timestamp(timestamp.type) and timestamp.type.unit != "ms":
            timestamp = timestamp.cast(pyarrow.timestamp("ms", timestamp.type.tz), safe=False)
        timestamp = timestamp.cast(pyarrow.int64()).fill_null(now_ms)
    return timestamp_source(timestamp, rows)


def _is_any(partition: Any) -> bool:
    return isinstance(partition, int) and partition == ANY_PARTITION


def _partitions(partition: Any, rows: int) -> int | array[int]:
    if partition is None or isinstance(partition, int):
        lowest, count = ANY_PARTITION if partition is None else partition, rows
        chosen: int | array[int] = lowest
    else:
        try:
            each = array("i", _numbers(_plain(partition)))
        except OverflowError as error:
            text = f"a partition is not valid: must be from -1 (any) to {MAX_INT32}: {error}"
            raise error_for(ErrorCode._UNKNOWN_PARTITION, text) from error
        lowest, count, chosen = min(each, default=0), len(each), each
    if count != rows:
        raise ValueError(f"{count} partitions for {rows} values")
    if lowest < ANY_PARTITION:
        raise error_for(
            ErrorCode._UNKNOWN_PARTITION, f"partition {lowest} is not valid: must be -1 (any) or at least 0"
        )
    return chosen


def _numbers(column: Any) -> Any:
    if not hasattr(column, "buffers"):
        return column
    filled = column.cast("int32").fill_null(ANY_PARTITION)
    return memoryview(filled.buffers()[1]).cast("B")[4 * filled.offset : 4 * (filled.offset + len(filled))].tobytes()


def _headers(headers: Any, rows: int) -> Sequence[Headers | None] | None:
    if headers is None:
        return None
    pairs = headers.to_pylist() if hasattr(headers, "to_pylist") else list(headers)
    if len(pairs) != rows:
        raise ValueError(f"{len(pairs)} headers for {rows} values")
    return [None if each is None else [_pair(pair) for pair in each] for each in pairs]


def _pair(pair: Any) -> tuple[str, bytes | None]:
    name, value = (pair["key"], pair["value"]) if isinstance(pair, dict) else pair
    value = value.encode() if isinstance(value, str) else value
    if not isinstance(name, str) or not isinstance(value, bytes | None):
        raise TypeError(f"a header must be (text, bytes), not {pair!r}")
    return name, value


_IS_ARROWS = ("column_names", "chunks", "buffers")
"""The attributes of pyarrow's tables and batches, chunked arrays, and arrays."""


def to_arrow(data: Any) -> Any:
    """Return a frame as an Arrow table and a series as an Arrow array; return anything else unchanged.

    Frames and series may be those of pandas, without their index, and all with Arrow's PyCapsule interface, such as
    polars'.

    Raises:
        TypeError: a column has values without an Arrow type, or a frame is lazy.
        ModuleNotFoundError: pyarrow is not installed.
    """
    if any(hasattr(data, name) for name in _IS_ARROWS):
        return data
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame | pandas.Series):
        return _from_pandas(data, is_frame=isinstance(data, pandas.DataFrame))
    if hasattr(data, "__arrow_c_stream__"):
        return _from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return _from_array(data)
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise TypeError("data is a lazy query: pass the result of collect()")
    return data


def _from_pandas(data: Any, *, is_frame: bool) -> Any:
    pyarrow = _pyarrow()
    try:
        if is_frame:
            return pyarrow.Table.from_pandas(data, preserve_index=False)
        return pyarrow.array(data, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise TypeError(
            f"a column has values that Arrow cannot take together: {'; '.join(map(str, error.args))}"
        ) from error


def _from_stream(data: Any) -> Any:
    pyarrow = _pyarrow()
    try:
        return pyarrow.table(data)
    except pyarrow.ArrowInvalid:
        # Only a stream of structs is a table.
        return pyarrow.chunked_array(data)


def _from_array(data: Any) -> Any:
    pyarrow = _pyarrow()
    array = pyarrow.array(data)
    return pyarrow.RecordBatch.from_struct_array(array) if pyarrow.types.is_struct(array.type) else array


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        text = "frames and series require pyarrow: pip install 'tidelog[spark]'"
        raise ModuleNotFoundError(text) from error
    return pyarrow
