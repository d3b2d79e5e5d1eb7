# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog.records._pure`: the same interface, the same results, the same refusals.

Safety: bytes are read only by ``_read_varint`` and below a position that was compared with the end of the record before;
what a second pass over the same bytes needs was kept or is checked again; buffers grow before they are written, and
growing one that is exported to somebody raises BufferError. The GIL is held throughout.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from tidelog.errors import ErrorCode, error_for
from tidelog.records import _faults
from tidelog.records.columns import ColumnBuffers

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

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
MAX_RECORDS_SIZE = 2**31 - 1 - 49
MAX_COLUMN_SIZE = 2**31 - 1

cdef Py_ssize_t _MIN_RECORD_SIZE = MIN_RECORD_SIZE
cdef Py_ssize_t _MAX_RECORDS_SIZE = MAX_RECORDS_SIZE
cdef Py_ssize_t _MAX_COLUMN_SIZE = MAX_COLUMN_SIZE
cdef Py_ssize_t _FIRST_CAPACITY = 1024
cdef tuple _NO_HEADERS = ()


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


cdef class _Bytes:
    """Growing memory in a bytearray; ``data`` is valid until the next reserve."""

    cdef bytearray store
    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity

    def __cinit__(self):
        self.store = bytearray()
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.store)
        self.used = 0
        self.capacity = 0

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Make room behind ``used``; the room is not initialised."""
        cdef Py_ssize_t capacity
        if more <= self.capacity - self.used:
            return 0
        capacity = max(self.used + more, 2 * self.capacity, _FIRST_CAPACITY)
        PyByteArray_Resize(self.store, capacity)
        self.capacity = capacity
        self.data = <uint8_t*>PyByteArray_AS_STRING(self.store)
        return 0

    cdef object view(self):
        return memoryview(self.store)[:self.used]


cdef inline Py_ssize_t _varint_size(uint64_t zigzag) noexcept:
    cdef Py_ssize_t size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef inline uint64_t _zigzag(int64_t number) noexcept:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline uint8_t* _put_varint(uint8_t* target, uint64_t zigzag) noexcept:
    while zigzag >= 0x80:
        target[0] = <uint8_t>(zigzag & 0x7F) | 0x80
        target += 1
        zigzag >>= 7
    target[0] = <uint8_t>zigzag
    return target + 1


cdef inline Py_ssize_t _field_size(object content, str name) except -1:
    if content is None:
        return 1
    if not PyBytes_Check(content):
        raise TypeError(f"{name}: expected bytes or None, got {type(content).__name__}")
    return _varint_size(_zigzag(PyBytes_GET_SIZE(content))) + PyBytes_GET_SIZE(content)


cdef inline uint8_t* _put_field(uint8_t* target, object content) noexcept:
    if content is None:
        target[0] = 1
        return target + 1
    return _put_bytes(target, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))


cdef inline uint8_t* _put_bytes(uint8_t* target, const char* content, Py_ssize_t size) noexcept:
    target = _put_varint(target, _zigzag(size))
    memcpy(target, content, size)
    return target + size


cdef list _checked_headers(object headers):
    """Copy the headers into exact pairs, so that nobody can change them between measuring and writing."""
    cdef list pairs = []
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"header key: expected str, got {type(name).__name__}")
        pairs.append(name.encode())
        pairs.append(content)
    return pairs


cdef class RecordEncoder:
    """Encodes records one behind the other; offsets count from 0, the first timestamp is the base."""

    cdef _Bytes buffer
    cdef readonly Py_ssize_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    def __cinit__(self):
        self.buffer = _Bytes()
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1

    @property
    def size(self):
        """The bytes of the records so far."""
        return self.buffer.used

    def append(self, key, value, headers=(), timestamp_ms=-1):
        """Encode one record and return its offset in the batch. Nothing changes when it raises."""
        # All that can run the caller's code comes first: what is measured below must not change before it is written.
        cdef int64_t timestamp = _checked_timestamp(timestamp_ms)
        cdef list pairs = None if headers is _NO_HEADERS else _checked_headers(headers)
        cdef Py_ssize_t pairs_size = 0 if pairs is None else len(pairs)
        cdef int64_t base = self.base_timestamp if self.count else timestamp
        # In uint64, because the difference of the extremes wraps, as in Kafka.
        cdef uint64_t delta = _zigzag(<int64_t>(<uint64_t>timestamp - <uint64_t>base))
        cdef Py_ssize_t size = 1 + _varint_size(delta) + _varint_size(_zigzag(self.count)), total, index
        cdef uint8_t* target
        size += _field_size(key, "key") + _field_size(value, "value")
        for index in range(pairs_size):
            size += _field_size(pairs[index], "header value")
        size += _varint_size(_zigzag(pairs_size // 2))
        total = _varint_size(_zigzag(size)) + size
        if total > _MAX_RECORDS_SIZE - self.buffer.used:
            raise error_for(ErrorCode.MESSAGE_TOO_LARGE, f"a batch holds at most {MAX_RECORDS_SIZE} bytes of records")
        self.buffer.reserve(total)
        target = _put_varint(self.buffer.data + self.buffer.used, _zigzag(size))
        target[0] = 0
        target = _put_varint(target + 1, delta)
        target = _put_varint(target, _zigzag(self.count))
        target = _put_field(target, key)
        target = _put_field(target, value)
        target = _put_varint(target, _zigzag(pairs_size // 2))
        for index in range(pairs_size):
            target = _put_field(target, pairs[index])
        self.buffer.used += total
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count += 1
        return self.count - 1

    def records(self):
        """Return a view of what was encoded; release it before the next append."""
        return self.buffer.view()


cdef inline int64_t _checked_timestamp(object timestamp_ms) except? -2:
    cdef int overflow = 0
    cdef long long number
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms: expected int, got {type(timestamp_ms).__name__}")
    number = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    if overflow or number < -1:
        raise error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms}: expected -1 to {INT64_MAX}")
    return number


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


cdef inline bint _read_varint(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t end, int max_bytes, int64_t* result
) noexcept:
    """Read a zigzag varint of at most 5 bytes (32 bits) or 10 bytes (64 bits); False when there is none."""
    cdef uint64_t number = 0
    cdef uint8_t byte
    cdef Py_ssize_t place = position[0]
    cdef int index
    for index in range(max_bytes):
        if place >= end:
            return False
        byte = data[place]
        place += 1
        number |= <uint64_t>(byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if max_bytes == 5:
                number &= 0xFFFFFFFFU
            position[0] = place
            result[0] = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
            return True
    return False


cdef inline bint _read_extent(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t end, Py_ssize_t* start, Py_ssize_t* size
) noexcept:
    """Read a length and step over that many bytes; a size of -1 means null."""
    cdef int64_t length
    if not _read_varint(data, position, end, 5, &length):
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


cdef int _read_record(const uint8_t* data, Py_ssize_t position, Py_ssize_t size, Fields* fields) noexcept:
    """Read the fields of the record at a position and check that they fill it; return a fault or 0."""
    cdef int64_t number
    cdef Py_ssize_t end, start, length, index
    if not _read_varint(data, &position, size, 5, &number):
        return FAULT_BOUNDS
    if number < 0 or number > size - position:
        return FAULT_LENGTH
    end = position + <Py_ssize_t>number
    if position >= end:
        return FAULT_BOUNDS
    position += 1
    if not _read_varint(data, &position, end, 10, &fields.timestamp_delta):
        return FAULT_BOUNDS
    if not _read_varint(data, &position, end, 5, &fields.offset_delta):
        return FAULT_BOUNDS
    if not _read_extent(data, &position, end, &fields.key, &fields.key_size):
        return FAULT_BOUNDS
    if not _read_extent(data, &position, end, &fields.value, &fields.value_size):
        return FAULT_BOUNDS
    if not _read_varint(data, &position, end, 5, &number):
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
    cdef int64_t offset
    cdef int64_t timestamp_ms

    def __cinit__(self, data, header):
        self.base_offset = header.base_offset
        self.last_offset_delta = header.last_offset_delta
        self.base_timestamp = header.base_timestamp
        self.append_time = header.max_timestamp
        self.timestamp_type = header.timestamp_type
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

    cdef object fault(self, int number):
        cdef Py_ssize_t index = self.index
        if number == FAULT_REMAINDER:
            index -= 1
        return _faults.malformed(number, self.base_offset, index, self.position, self.size, self.count)

    cdef bint step(self) except? False:
        """Advance to the next record; False behind the last one."""
        cdef int fault
        cdef Fields* fields = &self.fields
        if self.index == self.count:
            if self.position != self.size:
                raise self.fault(FAULT_REMAINDER)
            return False
        fault = _read_record(self.data, self.position, self.size, fields)
        if fault:
            raise self.fault(fault)
        if not self.previous < fields.offset_delta <= self.last_offset_delta:
            raise self.fault(FAULT_OFFSET)
        self.offset = self.base_offset + fields.offset_delta
        if self.timestamp_type:
            self.timestamp_ms = self.append_time
        else:
            self.timestamp_ms = <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>fields.timestamp_delta)
        self.previous = fields.offset_delta
        self.position = fields.end
        self.index += 1
        return True

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
    cdef int64_t least = -1, greatest = -1
    cdef bint has_keyless = False
    while walk.step():
        has_keyless |= walk.fields.key_size < 0
        if walk.timestamp_ms == -1:
            continue
        if least == -1 or walk.timestamp_ms < least:
            least = walk.timestamp_ms
        if greatest == -1 or walk.timestamp_ms > greatest:
            greatest = walk.timestamp_ms
    return has_keyless, least, greatest


def decode_records(data, header):
    """Return the records. Raises CorruptRecordError as :func:`summarize_records` does."""
    cdef _Walk walk = _Walk(data, header)
    cdef list records = []
    cdef Record record
    while walk.step():
        record = Record.__new__(Record)
        record.offset = walk.offset
        record.timestamp_ms = walk.timestamp_ms
        record.timestamp_type = walk.timestamp_type
        record.key = walk.content(walk.fields.key, walk.fields.key_size)
        record.value = walk.content(walk.fields.value, walk.fields.value_size)
        record.headers = walk.headers()
        records.append(record)
    return records


cdef class _Numbers(_Bytes):
    cdef int put32(self, int32_t number) except -1:
        self.reserve(4)
        (<int32_t*>(self.data + self.used))[0] = number
        self.used += 4
        return 0

    cdef int put64(self, int64_t number) except -1:
        self.reserve(8)
        (<int64_t*>(self.data + self.used))[0] = number
        self.used += 8
        return 0


cdef class _BinaryColumn:
    cdef _Bytes valid
    cdef _Numbers offsets
    cdef _Bytes data
    cdef Py_ssize_t rows
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.valid = _Bytes()
        self.offsets = _Numbers()
        self.data = _Bytes()
        self.rows = 0
        self.nulls = 0
        self.offsets.put32(0)

    cdef int put(self, const uint8_t* content, Py_ssize_t size) except -1:
        """Append the bytes, or a null for a negative size."""
        if self.rows % 8 == 0:
            self.valid.reserve(1)
            self.valid.data[self.valid.used] = 0
            self.valid.used += 1
        if size < 0:
            self.nulls += 1
        else:
            if size > _MAX_COLUMN_SIZE - self.data.used:
                raise error_for(ErrorCode.RECORD_LIST_TOO_LARGE, f"one column holds at most {MAX_COLUMN_SIZE} bytes")
            self.data.reserve(size)
            memcpy(self.data.data + self.data.used, content, size)
            self.data.used += size
            self.valid.data[self.rows // 8] |= <uint8_t>(1 << (self.rows % 8))
        self.rows += 1
        self.offsets.put32(<int32_t>self.data.used)
        return 0

    cdef tuple finish(self):
        return self.valid.view(), self.offsets.view(), self.data.view(), self.nulls


cdef class ColumnDecoder:
    """Collects the records of several batches as Arrow buffers."""

    cdef bint include_headers
    cdef _Numbers offset
    cdef _Numbers timestamp_ms
    cdef _Numbers timestamp_type
    cdef _BinaryColumn key
    cdef _BinaryColumn value
    cdef _Numbers header_offsets
    cdef _BinaryColumn header_key
    cdef _BinaryColumn header_value
    cdef Py_ssize_t rows

    def __cinit__(self, include_headers):
        self.include_headers = include_headers
        self.offset, self.timestamp_ms, self.timestamp_type = _Numbers(), _Numbers(), _Numbers()
        self.key, self.value = _BinaryColumn(), _BinaryColumn()
        self.header_offsets = _Numbers()
        self.header_offsets.put32(0)
        self.header_key, self.header_value = _BinaryColumn(), _BinaryColumn()
        self.rows = 0

    def append(self, data, header, start_offset, end_offset):
        """Add the records of a batch whose offset is in [start_offset, end_offset)."""
        cdef _Walk walk = _Walk(data, header)
        cdef int64_t start = max(INT64_MIN, min(start_offset, INT64_MAX))
        cdef int64_t end = max(INT64_MIN, min(end_offset, INT64_MAX))
        while walk.step():
            if not start <= walk.offset < end:
                continue
            self.offset.put64(walk.offset)
            self.timestamp_ms.put64(walk.timestamp_ms)
            self.timestamp_type.put32(walk.timestamp_type)
            self.key.put(walk.data + walk.fields.key, walk.fields.key_size)
            self.value.put(walk.data + walk.fields.value, walk.fields.value_size)
            if self.include_headers:
                self.append_headers(walk)
            self.rows += 1

    cdef int append_headers(self, _Walk walk) except -1:
        cdef Py_ssize_t position = walk.fields.headers, end = walk.fields.end, index, start = 0, size = 0
        cdef bytes name
        for index in range(walk.fields.header_count):
            walk.extent(&position, end, &start, &size)
            name = PyUnicode_DecodeUTF8(<char*>walk.data + start, max(size, 0), "replace").encode()
            self.header_key.put(<const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            walk.extent(&position, end, &start, &size)
            self.header_value.put(walk.data + start, size)
        self.header_offsets.put32(<int32_t>self.header_key.rows)
        return 0

    def finish(self):
        """Return the buffers; the decoder is not used after that."""
        return ColumnBuffers(
            self.rows,
            self.offset.view().cast("q"),
            self.timestamp_ms.view().cast("q"),
            self.timestamp_type.view().cast("i"),
            _cast(self.key),
            _cast(self.value),
            self.header_offsets.view().cast("i"),
            _cast(self.header_key),
            _cast(self.header_value),
        )


cdef tuple _cast(_BinaryColumn column):
    valid, offsets, data, nulls = column.finish()
    return valid, offsets.cast("i"), data, nulls
