# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog.records._pure`: the same interface, the same results, the same refusals.

Safety: the thorough way, ``_read_record``, reads bytes only by ``read_varint`` and below a position that was compared with
the end of the record before. The short way, ``_read_short``, reads no more bytes than it has compared with the end of the
records; where a record is not of the usual form it gives no verdict and the thorough way looks again. What a second pass
over the same bytes needs was kept or is checked again; room is reserved before it is written. The GIL is held throughout.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from tidelog.records._bytes cimport Memory, memory_release, memory_reserve, memory_view, raw_varint, read_varint, short_varint, tidelog_copy

from tidelog.errors import ErrorCode, error_for
from tidelog.records import _faults
from tidelog.records._fast_encoder import MAX_RECORDS_SIZE, RecordEncoder
from tidelog.records._fast_scan import parse_header, scan_batches, validate_batch
from tidelog.records.columns import ColumnBuffers

cdef enum:
    FAULT_COUNT = 1
    FAULT_LENGTH = 2
    FAULT_BOUNDS = 3
    FAULT_HEADERS = 4
    FAULT_END = 5
    FAULT_OFFSET = 6
    FAULT_REMAINDER = 7

assert _faults.FAULT_COUNT == FAULT_COUNT and _faults.FAULT_REMAINDER == FAULT_REMAINDER

MIN_RECORD_SIZE = 7
MAX_COLUMN_SIZE = 2**31 - 1

cdef Py_ssize_t _MIN_RECORD_SIZE = MIN_RECORD_SIZE
cdef Py_ssize_t _MAX_COLUMN_SIZE = MAX_COLUMN_SIZE


# Outside of the garbage collector: bytes and tuples of text and bytes cannot form a cycle.
@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Record:
    """One record of a batch: the compiled form of :class:`tidelog.records.record.Record`."""

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


cdef struct Fields:
    Py_ssize_t end
    int64_t timestamp_delta
    int64_t offset_delta
    Py_ssize_t key
    Py_ssize_t key_size
    Py_ssize_t value
    Py_ssize_t value_size
    Py_ssize_t headers
    Py_ssize_t header_count


cdef inline bint _read_extent(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t end, Py_ssize_t* start, Py_ssize_t* size
) noexcept nogil:
    """Read a length and step over that many bytes; a size of -1 means null."""
    cdef int64_t length
    if not read_varint(data, position, end, 5, &length):
        return False
    start[0] = position[0]
    if length < 0:
        size[0] = -1
        return True
    if length > end - position[0]:
        return False
    size[0] = <Py_ssize_t>length
    position[0] += <Py_ssize_t>length
    return True


cdef int _read_record(const uint8_t* data, Py_ssize_t position, Py_ssize_t size, Fields* fields) noexcept nogil:
    """Read the fields of the record at a position and check that they fill it; return a fault or 0."""
    cdef int64_t number
    cdef Py_ssize_t end, start, length, index
    if not read_varint(data, &position, size, 5, &number):
        return FAULT_BOUNDS
    if number < 0 or number > size - position:
        return FAULT_LENGTH
    end = position + <Py_ssize_t>number
    if position >= end:
        return FAULT_BOUNDS
    position += 1
    if not read_varint(data, &position, end, 10, &fields.timestamp_delta):
        return FAULT_BOUNDS
    if not read_varint(data, &position, end, 5, &fields.offset_delta):
        return FAULT_BOUNDS
    if not _read_extent(data, &position, end, &fields.key, &fields.key_size):
        return FAULT_BOUNDS
    if not _read_extent(data, &position, end, &fields.value, &fields.value_size):
        return FAULT_BOUNDS
    if not read_varint(data, &position, end, 5, &number):
        return FAULT_BOUNDS
    if number < 0 or number > end - position:
        return FAULT_HEADERS
    fields.headers = position
    fields.header_count = <Py_ssize_t>number
    for index in range(fields.header_count):
        if not _read_extent(data, &position, end, &start, &length):
            return FAULT_BOUNDS
        if length < 0:
            return FAULT_HEADERS
        if not _read_extent(data, &position, end, &start, &length):
            return FAULT_BOUNDS
    if position != end:
        return FAULT_END
    fields.end = end
    return 0


cdef inline bint _read_short(const uint8_t* data, Py_ssize_t position, Py_ssize_t size, Fields* fields) noexcept nogil:
    """Read the record at a position in the way that is fast for most; False where the thorough way must look."""
    cdef const uint8_t* place = data + position
    cdef const uint8_t* limit = data + size
    cdef const uint8_t* end
    cdef int64_t length
    if limit - place < 16:
        return False
    place = short_varint(place, &length)
    if place == NULL or length < 0 or length > limit - place:
        return False
    end = place + length
    place = short_varint(place + 1, &fields.timestamp_delta)
    if place == NULL:
        return False
    place = short_varint(place, &fields.offset_delta)
    if place == NULL:
        return False
    place = short_varint(place, &length)
    if place == NULL or length > end - place:
        return False
    fields.key, fields.key_size = place - data, -1
    if length >= 0:
        fields.key_size = <Py_ssize_t>length
        place += length
    if limit - place < 3:
        return False
    place = short_varint(place, &length)
    if place == NULL or length > end - place:
        return False
    fields.value, fields.value_size = place - data, -1
    if length >= 0:
        fields.value_size = <Py_ssize_t>length
        place += length
    if end - place != 1 or place[0]:
        return False
    fields.headers, fields.header_count, fields.end = end - data, 0, end - data
    return True


cdef inline int _advance(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t size, int64_t* previous, int64_t last, Fields* fields
) noexcept nogil:
    """Read the record at the position and step behind it; return a fault, with the position unchanged, or 0."""
    cdef Fields thorough
    cdef int fault
    if not _read_short(data, position[0], size, fields):
        fault = _read_record(data, position[0], size, &thorough)
        if fault:
            return fault
        fields[0] = thorough
    if not previous[0] < fields.offset_delta <= last:
        return FAULT_OFFSET
    previous[0] = fields.offset_delta
    position[0] = fields.end
    return 0


cdef enum:
    BLOCK = 128


cdef struct Block:
    # Some records one behind the other, a field in each array; ``headers`` and ``ends`` are set where there are headers.
    int64_t timestamp_deltas[BLOCK]
    int32_t offset_deltas[BLOCK]
    Py_ssize_t keys[BLOCK]
    int32_t key_sizes[BLOCK]
    Py_ssize_t values[BLOCK]
    int32_t value_sizes[BLOCK]
    int32_t header_counts[BLOCK]
    Py_ssize_t headers[BLOCK]
    Py_ssize_t ends[BLOCK]


cdef int _read_thorough(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t size, int64_t* previous, int64_t last, Block* block, Py_ssize_t row
) noexcept nogil:
    """Read one record of any form into a row of the block; return a fault, with the position unchanged, or 0."""
    cdef Fields fields
    cdef int fault = _advance(data, position, size, previous, last, &fields)
    if fault:
        return fault
    block.timestamp_deltas[row] = fields.timestamp_delta
    block.offset_deltas[row] = <int32_t>fields.offset_delta
    block.keys[row] = fields.key
    block.key_sizes[row] = <int32_t>fields.key_size
    block.values[row] = fields.value
    block.value_sizes[row] = <int32_t>fields.value_size
    block.header_counts[row] = <int32_t>fields.header_count
    block.headers[row] = fields.headers
    block.ends[row] = fields.end
    return 0


cdef Py_ssize_t _read_usual(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t size, Py_ssize_t row, Py_ssize_t rows,
    int64_t* previous, int64_t last, Block* block
) noexcept nogil:
    """Read records into the rows as long as they are of the usual form; return the row behind them.

    Every length is even before it is halved, or it is null's. Sixteen bytes are there at the begin of a record, of which
    thirteen are read at most up to the key and three behind it. That all lies in the record follows at its end, where the
    sizes, none of them negative, must add up. Keys are null and headers none where nothing else is set.
    """
    cdef const uint8_t* start = data + position[0]
    cdef const uint8_t* limit = data + size
    cdef const uint8_t* place
    cdef const uint8_t* end
    cdef uint64_t number, key_size
    cdef int64_t before = previous[0], offset_delta
    while row < rows and limit - start >= 16:
        place = raw_varint(start, &number)
        if place == NULL or number & 1 or <int64_t>(number >> 1) > limit - place:
            break
        end = place + (number >> 1)
        place = raw_varint(place + 1, &number)
        if place == NULL:
            break
        block.timestamp_deltas[row] = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
        place = raw_varint(place, &number)
        offset_delta = <int64_t>(number >> 1)
        if place == NULL or number & 1 or offset_delta <= before or offset_delta > last:
            break
        block.offset_deltas[row] = <int32_t>offset_delta
        place = raw_varint(place, &key_size)
        if place == NULL:
            break
        if not key_size & 1:
            key_size >>= 1
            if limit - place < <int64_t>key_size + 3:
                break
            block.keys[row] = place - data
            block.key_sizes[row] = <int32_t>key_size
            place += key_size
        place = raw_varint(place, &number)
        if place == NULL:
            break
        block.values[row] = place - data
        if number & 1:
            block.value_sizes[row] = -1
        else:
            block.value_sizes[row] = <int32_t>(number >> 1)
            place += number >> 1
        if place + 1 != end or place[0]:
            break
        before = offset_delta
        start = end
        row += 1
    position[0] = start - data
    previous[0] = before
    return row


cdef Py_ssize_t _read_block(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t size, Py_ssize_t rows,
    int64_t* previous, int64_t last, Block* block, int* fault
) noexcept nogil:
    """Read so many records, at most a block, and return how many; fewer only where ``fault`` says why."""
    cdef Py_ssize_t row = 0
    memset(block.key_sizes, 0xFF, sizeof(block.key_sizes))
    memset(block.header_counts, 0, sizeof(block.header_counts))
    fault[0] = 0
    while True:
        row = _read_usual(data, position, size, row, rows, previous, last, block)
        if row == rows:
            return row
        fault[0] = _read_thorough(data, position, size, previous, last, block, row)
        if fault[0]:
            return row
        row += 1


@cython.final
cdef class _Walk:
    """Steps over the records of one batch and checks the place of each; holds the buffer until it is closed."""

    cdef Py_buffer view
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t position
    cdef Py_ssize_t index
    cdef Py_ssize_t count
    cdef int64_t previous
    cdef int64_t base_offset
    cdef int64_t last_offset_delta
    cdef int64_t base_timestamp
    cdef int64_t append_time
    cdef int timestamp_type
    cdef Fields fields

    def __cinit__(self, data, header):
        self.base_offset = header.base_offset
        self.last_offset_delta = header.last_offset_delta
        self.base_timestamp = header.base_timestamp
        self.append_time = header.max_timestamp
        self.timestamp_type = header.attributes >> 3 & 1
        self.count = header.record_count
        self.previous = -1
        self.position = 0
        self.index = 0
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t*>self.view.buf
        self.size = self.view.len
        # Divided, because the product of a claimed count could overflow.
        if self.count > self.size // _MIN_RECORD_SIZE:
            raise self.fault(FAULT_COUNT)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef int stand_at(self, Py_ssize_t index, Py_ssize_t position) noexcept:
        """Take over where a loop without this object has come to."""
        self.index, self.position = index, position
        return 0

    cdef object fault_at(self, int number, Py_ssize_t index, Py_ssize_t position):
        self.stand_at(index, position)
        return self.fault(number)

    cdef object fault(self, int number):
        cdef Py_ssize_t index = self.index
        if number == FAULT_REMAINDER:
            index -= 1
        return _faults.malformed(number, self.base_offset, index, self.position, self.size, self.count)

    cdef bint step(self) except? False:
        """Advance to the next record; False behind the last one."""
        cdef int fault
        if self.index == self.count:
            self.end()
            return False
        fault = _advance(
            self.data, &self.position, self.size, &self.previous, self.last_offset_delta, &self.fields
        )
        if fault:
            raise self.fault(fault)
        self.index += 1
        return True

    cdef int end(self) except -1:
        """Check that nothing remains behind the last record."""
        if self.position != self.size:
            raise self.fault(FAULT_REMAINDER)
        return 0

    cdef inline int64_t timestamp(self, int64_t delta) noexcept:
        return self.append_time if self.timestamp_type else <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>delta)

    cdef bytes content(self, Py_ssize_t start, Py_ssize_t size):
        if size < 0:
            return None
        return PyBytes_FromStringAndSize(<const char*>self.data + start, size)

    cdef tuple headers(self):
        """Return the headers of the record that was stepped to."""
        cdef Py_ssize_t position = self.fields.headers, end = self.fields.end, index, start = 0, size = 0
        cdef tuple headers
        cdef object pair
        if self.fields.header_count == 0:
            return ()
        headers = PyTuple_New(self.fields.header_count)
        for index in range(self.fields.header_count):
            self.extent(&position, end, &start, &size)
            name = PyUnicode_DecodeUTF8(<char*>self.data + start, max(size, 0), "replace")
            self.extent(&position, end, &start, &size)
            pair = (name, self.content(start, size))
            Py_INCREF(pair)
            PyTuple_SET_ITEM(headers, index, pair)
        return headers

    cdef int extent(self, Py_ssize_t* position, Py_ssize_t end, Py_ssize_t* start, Py_ssize_t* size) except -1:
        """Read an extent once more; it fails only when the bytes were changed since they were checked."""
        if not _read_extent(self.data, position, end, start, size):
            raise self.fault(FAULT_HEADERS)
        return 0


def summarize_records(data, header):
    """Return whether a key is null, and the least and greatest timestamp other than -1 (-1 where there is none)."""
    cdef _Walk walk = _Walk(data, header)
    cdef Py_ssize_t position = 0, index = 0, rows, row
    cdef int64_t least = -1, greatest = -1, previous = -1, base = walk.base_timestamp, timestamp
    cdef bint has_keyless = False
    cdef int fault = 0
    cdef Block block
    while index < walk.count:
        rows = _read_block(
            walk.data, &position, walk.size, min(BLOCK, walk.count - index), &previous, walk.last_offset_delta, &block, &fault
        )
        index += rows
        if fault:
            raise walk.fault_at(fault, index, position)
        for row in range(rows):
            has_keyless |= block.key_sizes[row] < 0
            timestamp = <int64_t>(<uint64_t>base + <uint64_t>block.timestamp_deltas[row])
            if timestamp == -1:
                continue
            if least == -1 or timestamp < least:
                least = timestamp
            if greatest == -1 or timestamp > greatest:
                greatest = timestamp
    walk.stand_at(walk.count, position)
    walk.end()
    if walk.timestamp_type and walk.count:
        return has_keyless, walk.append_time, walk.append_time
    return has_keyless, least, greatest


def decode_records(data, header):
    """Return the records. Raises CorruptRecordError as :func:`summarize_records` does."""
    cdef _Walk walk = _Walk(data, header)
    cdef list records = []
    cdef Record record
    while walk.step():
        record = Record.__new__(Record)
        record.offset = walk.base_offset + walk.fields.offset_delta
        record.timestamp_ms = walk.timestamp(walk.fields.timestamp_delta)
        record.timestamp_type = walk.timestamp_type
        record.key = walk.content(walk.fields.key, walk.fields.key_size)
        record.value = walk.content(walk.fields.value, walk.fields.value_size)
        record.headers = walk.headers()
        records.append(record)
    return records


cdef struct Column:
    # Validity bits are all there, set in advance, and cleared where a row is null.
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
    """Clear the bits from first to end, exclusive; whole bytes at once."""
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
    """Append so many rows, for which :func:`_reserve_rows` has made room; a negative size is a null."""
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
    """Append one row, for which :func:`_reserve_rows` has made room."""
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
    cdef Py_ssize_t rows
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
        # One byte more, so that there is memory even for nothing but empty rows.
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
        cdef _Walk walk = _Walk(data, header)
        cdef int64_t start = max(INT64_MIN, min(start_offset, INT64_MAX))
        cdef int64_t end = max(INT64_MIN, min(end_offset, INT64_MAX))
        cdef Py_ssize_t position = 0, index = 0, first, rows
        cdef int64_t previous = -1
        cdef int fault = 0
        cdef Block block
        self.reserve(walk.count, walk.size)
        while index < walk.count:
            rows = _read_block(
                walk.data, &position, walk.size, min(BLOCK, walk.count - index), &previous, walk.last_offset_delta, &block,
                &fault,
            )
            index += rows
            first = 0
            # Offsets increase, so those that are wanted are in one piece.
            while first < rows and walk.base_offset + block.offset_deltas[first] < start:
                first += 1
            while rows > first and walk.base_offset + block.offset_deltas[rows - 1] >= end:
                rows -= 1
            self.put_block(walk, &block, first, rows)
            if fault:
                raise walk.fault_at(fault, index, position)
        walk.stand_at(walk.count, position)
        walk.end()

    cdef int put_block(self, _Walk walk, const Block* block, Py_ssize_t first, Py_ssize_t end) except -1:
        """Add rows of a block, for which :meth:`reserve` has made room."""
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
        """Make room for so many rows, which the bytes back, and for the values in so many bytes."""
        memory_reserve(&self.value.data, min(size, MAX_COLUMN_SIZE - self.value.data.used))
        memory_reserve(&self.offset, 8 * more)
        memory_reserve(&self.timestamp_ms, 8 * more)
        memory_reserve(&self.timestamp_type, 4 * more)
        _reserve_rows(&self.key, more)
        _reserve_rows(&self.value, more)
        return 0

    cdef int append_headers(self, _Walk walk, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count) except -1:
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
        """Return the buffers; the decoder is not used after that."""
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
