"""The decoder from batches to Arrow columns, without a Python object per record. pyarrow is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_foundation.records._engine import engine
from tidelog_foundation.records.columns import BinaryBuffers, ColumnBuffers
from tidelog_foundation.records.compression import decompress_briefly
from tidelog_foundation.records.header import Buffer
from tidelog_foundation.records.scan import iter_headers
from tidelog_foundation.records.validation import record_section

if TYPE_CHECKING:
    import pyarrow


MAX_DECODED_BYTES = 64 * 1024 * 1024
"""The decompressed bytes after which readers of foreign batches release them before they continue."""


def to_arrow(
    buffer: Buffer, start_offset: int, end_offset: int, include_headers: bool = False, max_bytes: int | None = None
) -> pyarrow.RecordBatch:
    """Return the records in [start_offset, end_offset) of all whole batches in the buffer, in order.

    With ``max_bytes`` it stops after the batch with which the decompressed records reach that size, but not before
    there is a row. A caller that continues after the last row's offset gets the rest, and no row at the end.

    Columns: ``key`` and ``value`` (binary, nullable), ``offset`` and ``timestamp_ms`` (int64), ``timestamp_type``
    (int32) and optionally ``headers`` (list of struct of ``key`` string and ``value`` binary). Control batches are left
    out, and a torn batch at the end is ignored.

    Raises:
        CorruptRecordError: a batch in the range is damaged, cannot be decoded, or decompresses beyond the limit.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE; RECORD_LIST_TOO_LARGE if a column would exceed 2 GiB.
        ModuleNotFoundError: pyarrow is not installed.
    """
    arrow = _pyarrow()
    batches = [
        (position, header)
        for position, header in iter_headers(buffer)
        if not header.is_control and header.last_offset >= start_offset and header.base_offset < end_offset
    ]
    decoder = engine.ColumnDecoder(include_headers, sum(header.size_in_bytes for _, header in batches))
    decoded = 0
    for position, _ in batches:
        header = engine.validate_batch(buffer, position)
        records = decompress_briefly(header.compression, record_section(buffer, position, header))
        decoder.append(records, header, start_offset, end_offset)
        decoded += len(records)
        if max_bytes is not None and decoded >= max_bytes and decoder.rows:
            break
    return _record_batch(arrow, decoder.finish(), include_headers)


def _record_batch(arrow: Any, columns: ColumnBuffers, include_headers: bool) -> pyarrow.RecordBatch:
    rows = columns.rows
    arrays = {
        "key": _binary(arrow, arrow.binary(), rows, columns.key),
        "value": _binary(arrow, arrow.binary(), rows, columns.value),
        "offset": _numbers(arrow, arrow.int64(), rows, columns.offset),
        "timestamp_ms": _numbers(arrow, arrow.int64(), rows, columns.timestamp_ms),
        "timestamp_type": _numbers(arrow, arrow.int32(), rows, columns.timestamp_type),
    }
    if include_headers:
        arrays["headers"] = _headers(arrow, columns)
    return arrow.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _numbers(arrow: Any, kind: Any, rows: int, data: memoryview) -> Any:
    return arrow.Array.from_buffers(kind, rows, [None, arrow.py_buffer(data)], 0)


def _binary(arrow: Any, kind: Any, rows: int, buffers: BinaryBuffers) -> Any:
    validity, offsets, data, nulls = buffers
    valid = None if validity is None else arrow.py_buffer(validity)
    return arrow.Array.from_buffers(kind, rows, [valid, arrow.py_buffer(offsets), arrow.py_buffer(data)], nulls)


def _headers(arrow: Any, columns: ColumnBuffers) -> Any:
    total = len(columns.header_key[1]) - 1
    fields = [arrow.field("key", arrow.string()), arrow.field("value", arrow.binary())]
    entries = arrow.StructArray.from_arrays(
        [
            _binary(arrow, arrow.string(), total, columns.header_key),
            _binary(arrow, arrow.binary(), total, columns.header_value),
        ],
        fields=fields,
    )
    offsets = arrow.py_buffer(columns.header_offsets)
    return arrow.Array.from_buffers(arrow.list_(entries.type), columns.rows, [None, offsets], 0, children=[entries])


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "reading records as Arrow columns needs pyarrow: pip install tidelog[spark]", name="pyarrow"
        ) from error
    return pyarrow
