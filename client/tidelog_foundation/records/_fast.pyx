# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog_foundation.records._pure`: the same interface, results and errors.

This module turns records into objects or columns; ``_fast_walk`` checks their bytes. A second pass over the same bytes
relies on stored values or checks again, and memory is reserved before it is written. The GIL is held, and offered to
other threads between blocks of a large batch.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from tidelog_foundation.records._bytes cimport Memory, memory_release, memory_reserve, memory_view, tidelog_copy
from tidelog_foundation.records._fast_walk cimport Block, Walk

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records._fast_encoder import MAX_RECORDS_SIZE, RecordEncoder
from tidelog_foundation.records._fast_scan import parse_header, scan_batches, summarize_batches, validate_batch
from tidelog_foundation.records._fast_search import find_greatest, find_keyless, find_outside, find_timestamp, summarize_records
from tidelog_foundation.records._fast_walk import MIN_RECORD_SIZE
from tidelog_foundation.records.columns import ColumnBuffers

MAX_COLUMN_SIZE = 2**31 - 1

cdef Py_ssize_t _MAX_COLUMN_SIZE = MAX_COLUMN_SIZE

cdef enum:
    # Blocks between two offers of the GIL: about a tenth of a millisecond.
    BLOCKS_AT_ONCE = 32


# Untracked by the garbage collector: bytes, and tuples of text and bytes, cannot form a cycle.
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Record:
    """One record of a batch: the compiled form of :class:`tidelog_foundation.records.record.Record`."""

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly int timestamp_type
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers

    def __init__(
        self, int64_t offset, int64_t timestamp_ms, int timestamp_type, bytes key, bytes value, tuple headers not None = ()
    ):
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return _as_tuple(self) == _as_tuple(<Record>other)

    def __hash__(self):
        return hash(_as_tuple(self))

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, timestamp_type={self.timestamp_type}, "
            f"key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self):
        return Record, _as_tuple(self)


cdef tuple _as_tuple(Record record):
    return (record.offset, record.timestamp_ms, record.timestamp_type, record.key, record.value, record.headers)


@cython.final
cdef class RecordDecoder:
    """Decodes the records of one batch from front to end, a requested number at a time."""

    cdef Walk walk
    cdef Block block
    cdef Py_ssize_t row
    cdef Py_ssize_t rows
    cdef int64_t start_offset

    def __cinit__(self, data, header, start_offset=0):
        self.walk = Walk(data, header)
        self.start_offset = max(INT64_MIN, min(start_offset, INT64_MAX))
        self.row = self.rows = 0

    def read(self, Py_ssize_t most):
        """Return the next records from ``start_offset`` on; fewer than ``most`` only at the end."""
        cdef Walk walk = self.walk
        cdef list records = []
        cdef Py_ssize_t wanted = most
        while wanted > 0:
            if self.row == self.rows:
                self.row = 0
                self.rows = walk.next_block(&self.block)
                if self.rows == 0:
                    break
            if walk.base_offset + self.block.offset_deltas[self.row] >= self.start_offset:
                records.append(self.record(self.row))
                wanted -= 1
            self.row += 1
        return records

    cdef Record record(self, Py_ssize_t row):
        cdef Walk walk = self.walk
        cdef Block* block = &self.block
        cdef Record record = Record.__new__(Record)
        record.offset = walk.base_offset + block.offset_deltas[row]
        record.timestamp_ms = walk.timestamp(block.timestamp_deltas[row])
        record.timestamp_type = walk.timestamp_type
        record.key = _content(walk, block.keys[row], block.key_sizes[row])
        record.value = _content(walk, block.values[row], block.value_sizes[row])
        record.headers = () if block.header_counts[row] == 0 else _headers(walk, block, row)
        return record


def decode_records(data, header):
    """Return the records. Raise CorruptRecordError as :func:`summarize_records` does."""
    cdef RecordDecoder decoder = RecordDecoder(data, header, INT64_MIN)
    # Request one more than exist, to check the end too.
    return decoder.read(decoder.walk.count + 1)


cdef inline bytes _content(Walk walk, Py_ssize_t start, Py_ssize_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>walk.data + start, size)


cdef tuple _headers(Walk walk, const Block* block, Py_ssize_t row):
    cdef Py_ssize_t position = block.headers[row], end = block.ends[row], count = block.header_counts[row]
    cdef Py_ssize_t index, start = 0, size = 0
    cdef tuple headers = PyTuple_New(count)
    cdef object pair
    for index in range(count):
        walk.extent(&position, end, &start, &size)
        name = PyUnicode_DecodeUTF8(<char*>walk.data + start, max(size, 0), "replace")
        walk.extent(&position, end, &start, &size)
        pair = (name, _content(walk, start, size))
        Py_INCREF(pair)
        PyTuple_SET_ITEM(headers, index, pair)
    return headers


cdef struct Column:
    # All validity bits are set in advance, and cleared for null rows.
    Memory valid
    Memory offsets
    Memory data
    Py_ssize_t rows
    Py_ssize_t nulls


cdef int _reserve_rows(Column* column, Py_ssize_t more) except -1:
    cdef Py_ssize_t valid_size = (column.rows + more + 7) >> 3
    memory_reserve(&column.offsets, 4 * (more + 1))
    if column.rows == 0:
        (<int32_t*>column.offsets.data)[0] = 0
        column.offsets.used = 4
    if valid_size > column.valid.used:
        memory_reserve(&column.valid, valid_size - column.valid.used)
        memset(column.valid.data + column.valid.used, 0xFF, valid_size - column.valid.used)
        column.valid.used = valid_size
    return 0


cdef int _reserve_data(Memory* data, Py_ssize_t more) except -1:
    if more > _MAX_COLUMN_SIZE - data.used:
        raise error_for(ErrorCode.RECORD_LIST_TOO_LARGE, f"one column holds at most {MAX_COLUMN_SIZE} bytes")
    return memory_reserve(data, max(more, 0))


cdef inline void _clear_bits(uint8_t* bits, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
    """Clear the bits from first to end, exclusive, in whole bytes where possible."""
    while first < end and first & 7:
        bits[first >> 3] &= ~<uint8_t>(1 << (first & 7))
        first += 1
    if end - first >= 8:
        memset(bits + (first >> 3), 0, (end - first) >> 3)
        first += (end - first) & ~<Py_ssize_t>7
    while first < end:
        bits[first >> 3] &= ~<uint8_t>(1 << (first & 7))
        first += 1


cdef int _put_cells(
    Column* column, const uint8_t* data, const Py_ssize_t* starts, const int32_t* sizes, Py_ssize_t rows
) except -1:
    """Append rows for which :func:`_reserve_rows` has reserved memory; a negative size is a null."""
    cdef Py_ssize_t row, nulls = 0, total = 0, first = column.rows, used = column.data.used
    cdef int32_t* ends
    cdef uint8_t* target
    for row in range(rows):
        nulls += sizes[row] < 0
        total += max(sizes[row], 0)
    if total > min(column.data.capacity, _MAX_COLUMN_SIZE) - used:
        _reserve_data(&column.data, total)
    ends = <int32_t*>column.offsets.data + first + 1
    target = column.data.data
    if nulls == rows:
        _clear_bits(column.valid.data, first, first + rows)
        for row in range(rows):
            ends[row] = <int32_t>used
    elif nulls == 0:
        for row in range(rows):
            tidelog_copy(target + used, data + starts[row], sizes[row])
            used += sizes[row]
            ends[row] = <int32_t>used
    else:
        for row in range(rows):
            if sizes[row] < 0:
                _clear_bits(column.valid.data, first + row, first + row + 1)
            else:
                tidelog_copy(target + used, data + starts[row], sizes[row])
                used += sizes[row]
            ends[row] = <int32_t>used
    column.data.used = used
    column.nulls += nulls
    column.rows = first + rows
    column.offsets.used = 4 * (column.rows + 1)
    return 0


cdef int _put_row(Column* column, const uint8_t* content, Py_ssize_t size) except -1:
    """Append one row for which :func:`_reserve_rows` has reserved memory."""
    cdef Py_ssize_t start = 0
    cdef int32_t length = <int32_t>size
    if size > _MAX_COLUMN_SIZE:
        _reserve_data(&column.data, size)
    return _put_cells(column, content, &start, &length, 1)


cdef tuple _finished(Column* column):
    cdef object valid = None
    _reserve_rows(column, 0)
    if column.nulls:
        column.valid.used = (column.rows + 7) >> 3
        if column.rows & 7:
            column.valid.data[column.valid.used - 1] &= <uint8_t>((1 << (column.rows & 7)) - 1)
        valid = memory_view(&column.valid)
    return valid, (memory_view(&column.offsets)).cast("i"), memory_view(&column.data), column.nulls


cdef void _release(Column* column) noexcept:
    memory_release(&column.valid)
    memory_release(&column.offsets)
    memory_release(&column.data)


@cython.final
cdef class ColumnDecoder:
    """Collects the records of several batches as Arrow buffers."""

    cdef bint include_headers
    cdef readonly Py_ssize_t rows
    cdef Memory offset
    cdef Memory timestamp_ms
    cdef Memory timestamp_type
    cdef Column key
    cdef Column value
    cdef Memory header_offsets
    cdef Column header_key
    cdef Column header_value

    def __cinit__(self, include_headers, expected_size):
        self.include_headers = include_headers
        self.rows = 0
        # One extra byte, so that memory exists even for empty rows only.
        memory_reserve(&self.key.data, 1)
        memory_reserve(&self.value.data, min(expected_size, MAX_COLUMN_SIZE) + 1)
        memory_reserve(&self.header_key.data, 1)
        memory_reserve(&self.header_value.data, 1)
        self.put_header_offset()

    def __dealloc__(self):
        memory_release(&self.offset)
        memory_release(&self.timestamp_ms)
        memory_release(&self.timestamp_type)
        memory_release(&self.header_offsets)
        _release(&self.key)
        _release(&self.value)
        _release(&self.header_key)
        _release(&self.header_value)

    def append(self, data, header, start_offset, end_offset):
        """Add the records of a batch whose offset is in [start_offset, end_offset)."""
        cdef Walk walk = Walk(data, header)
        cdef int64_t start = max(INT64_MIN, min(start_offset, INT64_MAX))
        cdef int64_t end = max(INT64_MIN, min(end_offset, INT64_MAX))
        cdef Py_ssize_t first, rows, blocks = 0
        cdef Block block
        self.reserve(walk.count, walk.size)
        rows = walk.next_block(&block)
        while rows:
            first = 0
            # Offsets increase, so the requested rows are contiguous.
            while first < rows and walk.base_offset + block.offset_deltas[first] < start:
                first += 1
            while rows > first and walk.base_offset + block.offset_deltas[rows - 1] >= end:
                rows -= 1
            self.put_block(walk, &block, first, rows)
            blocks += 1
            if blocks % BLOCKS_AT_ONCE == 0:
                with nogil:
                    pass
            rows = walk.next_block(&block)

    cdef int put_block(self, Walk walk, const Block* block, Py_ssize_t first, Py_ssize_t end) except -1:
        """Add rows of a block for which :meth:`reserve` has reserved memory."""
        cdef Py_ssize_t rows = end - first, row
        cdef int64_t base_offset = walk.base_offset
        cdef uint64_t base = <uint64_t>walk.base_timestamp
        cdef int32_t timestamp_type = walk.timestamp_type
        cdef int64_t* offsets = <int64_t*>self.offset.data + self.rows
        cdef int64_t* timestamps = <int64_t*>self.timestamp_ms.data + self.rows
        cdef int32_t* timestamp_types = <int32_t*>self.timestamp_type.data + self.rows
        _put_cells(&self.key, walk.data, block.keys + first, block.key_sizes + first, rows)
        _put_cells(&self.value, walk.data, block.values + first, block.value_sizes + first, rows)
        for row in range(rows):
            offsets[row] = base_offset + block.offset_deltas[first + row]
        for row in range(rows):
            timestamps[row] = <int64_t>(base + <uint64_t>block.timestamp_deltas[first + row])
            timestamp_types[row] = timestamp_type
        if timestamp_type:
            for row in range(rows):
                timestamps[row] = walk.append_time
        self.rows += rows
        self.offset.used = self.timestamp_ms.used = 8 * self.rows
        self.timestamp_type.used = 4 * self.rows
        if self.include_headers:
            for row in range(first, end):
                self.append_headers(walk, block.headers[row], block.ends[row], block.header_counts[row])
        return 0

    cdef int reserve(self, Py_ssize_t more, Py_ssize_t size) except -1:
        """Reserve memory for rows, whose number the batch's size backs, and for values of ``size`` bytes."""
        memory_reserve(&self.value.data, min(size, MAX_COLUMN_SIZE - self.value.data.used))
        memory_reserve(&self.offset, 8 * more)
        memory_reserve(&self.timestamp_ms, 8 * more)
        memory_reserve(&self.timestamp_type, 4 * more)
        _reserve_rows(&self.key, more)
        _reserve_rows(&self.value, more)
        return 0

    cdef int append_headers(self, Walk walk, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count) except -1:
        cdef Py_ssize_t index, start = 0, size = 0
        cdef bytes name
        if count:
            _reserve_rows(&self.header_key, count)
            _reserve_rows(&self.header_value, count)
        for index in range(count):
            walk.extent(&position, end, &start, &size)
            name = PyUnicode_DecodeUTF8(<char*>walk.data + start, max(size, 0), "replace").encode()
            _put_row(&self.header_key, <const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            walk.extent(&position, end, &start, &size)
            _put_row(&self.header_value, walk.data + start, size)
        self.put_header_offset()
        return 0

    cdef int put_header_offset(self) except -1:
        memory_reserve(&self.header_offsets, 4)
        (<int32_t*>(self.header_offsets.data + self.header_offsets.used))[0] = <int32_t>self.header_key.rows
        self.header_offsets.used += 4
        return 0

    def finish(self):
        """Return the buffers; the decoder cannot be used afterwards."""
        return ColumnBuffers(
            self.rows,
            memory_view(&self.offset).cast("q"),
            (memory_view(&self.timestamp_ms)).cast("q"),
            (memory_view(&self.timestamp_type)).cast("i"),
            _finished(&self.key),
            _finished(&self.value),
            (memory_view(&self.header_offsets)).cast("i"),
            _finished(&self.header_key),
            _finished(&self.header_value),
        )
