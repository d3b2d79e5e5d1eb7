# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :class:`tidelog_foundation.records._pure.RecordEncoder`: the same interface, bytes and errors.

Safety: every record is compared with the reserved memory before it is written. No foreign code runs between measuring
and writing: anything that could run it (iterating headers, converting columns) comes first, and the GIL is held. The
batch is written in place, after space for its header, and returned without a copy if little memory is unused. Later
records go to a copy.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from tidelog_foundation.records._bytes cimport (
    Memory, length_size, memory_bytes, memory_move, memory_release, memory_reserve, put_varint, tidelog_copy, varint_size,
    zigzag,
)

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records.columns import BinaryColumn
from tidelog_foundation.records.header import HEADER_SIZE, encode_prefix

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    PyObject** PySequence_Fast_ITEMS(object sequence)

MAX_RECORDS_SIZE = 2**31 - 1 - 49

cdef Py_ssize_t _MAX_RECORDS_SIZE = MAX_RECORDS_SIZE
cdef Py_ssize_t _HEADER_SIZE = HEADER_SIZE
cdef tuple _NO_HEADERS = ()


cdef inline Py_ssize_t _field_size(object content, str name) except -1:
    if content is None:
        return 1
    if not PyBytes_Check(content):
        raise TypeError(f"{name}: expected bytes or None, got {type(content).__name__}")
    return _content_size(PyBytes_GET_SIZE(content))


cdef inline Py_ssize_t _content_size(Py_ssize_t size) noexcept nogil:
    """Return the encoded size of a field with ``size`` bytes, -1 for null."""
    return 1 if size < 0 else length_size(size) + size


cdef inline uint8_t* _put_field(uint8_t* target, object content) noexcept:
    if content is None:
        return _put_content(target, NULL, -1)
    return _put_content(target, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))


cdef inline uint8_t* _put_content(uint8_t* target, const char* content, Py_ssize_t size) noexcept:
    if size < 0:
        target[0] = 1
        return target + 1
    target = put_varint(target, <uint64_t>size << 1)
    tidelog_copy(target, <const uint8_t*>content, size)
    return target + size


cdef list _checked_headers(object headers):
    """Copy the headers into exact pairs, so that no code can change them between measuring and writing."""
    cdef list pairs = []
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"header key: expected str, got {type(name).__name__}")
        pairs.append(name.encode())
        pairs.append(content)
    return pairs


cdef Py_ssize_t content_of(const View* view, Py_ssize_t row, const char** content) noexcept:
    """Return a row's size and the place of its bytes; or NULL_CONTENT, WRONG_TYPE or WRONG_PLACE."""
    cdef PyObject* item
    cdef int64_t start, end
    cdef Py_ssize_t bit
    if view.items != NULL:
        item = view.items[row]
        if not PyBytes_Check(<object>item):
            return NULL_CONTENT if item == <PyObject*>None else WRONG_TYPE
        content[0] = PyBytes_AS_STRING(<object>item)
        return PyBytes_GET_SIZE(<object>item)
    if view.valid != NULL:
        bit = view.first_bit + row
        if not view.valid[bit >> 3] >> (bit & 7) & 1:
            return NULL_CONTENT
    if view.offsets32 != NULL:
        start, end = view.offsets32[row], view.offsets32[row + 1]
    elif view.offsets64 != NULL:
        start, end = view.offsets64[row], view.offsets64[row + 1]
    else:
        start = row * view.width
        end = start + view.width
    if start < 0 or end < start or end > view.data_size:
        return WRONG_PLACE
    content[0] = view.data + start
    return end - start


cdef Py_ssize_t _write_plain(
    const View* values, Py_ssize_t row, Py_ssize_t rows, uint64_t delta, Py_ssize_t count, uint8_t** place, const uint8_t* limit
) noexcept:
    """Write records without keys and with one timestamp, and return the row after them.

    Stop before a row that needs a closer look: wrong contents, no memory, or a size beyond a three-byte varint.
    """
    cdef const char* content = NULL
    cdef uint8_t* target = place[0]
    cdef Py_ssize_t size, content_size, fixed_size = 3 + varint_size(delta)
    while row < rows:
        content_size = content_of(values, row, &content)
        if content_size < 0 or content_size >= 1 << 19:
            break
        size = fixed_size + length_size(count) + length_size(content_size) + content_size
        if size + 3 > limit - target:
            break
        target = put_varint(target, <uint64_t>size << 1)
        target[0] = 0
        target = put_varint(target + 1, delta)
        target = put_varint(target, <uint64_t>count << 1)
        target[0] = 1
        target = put_varint(target + 1, <uint64_t>content_size << 1)
        tidelog_copy(target, <const uint8_t*>content, content_size)
        target += content_size
        target[0] = 0
        target += 1
        count += 1
        row += 1
    place[0] = target
    return row


@cython.final
cdef class Source:
    """The source of many records' contents; it holds the buffers."""

    def __cinit__(self, source, str name):
        self.owner = source
        self.name = name
        if not isinstance(source, BinaryColumn):
            self.rows = len(source)
            self.view.items = PySequence_Fast_ITEMS(source)
            return
        self.rows, validity, self.view.first_bit, offsets, self.view.width, data = source
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.view.data, self.view.data_size = <const char*>self.data.buf, self.data.len
        if validity is not None:
            PyObject_GetBuffer(validity, &self.validity, PyBUF_SIMPLE)
            self.view.valid = <const uint8_t*>self.validity.buf
        if offsets is not None:
            PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
            if self.offsets.len // (self.rows + 1) >= 8:
                self.view.offsets64 = <const int64_t*>self.offsets.buf
            else:
                self.view.offsets32 = <const int32_t*>self.offsets.buf

    def __dealloc__(self):
        PyBuffer_Release(&self.validity)
        PyBuffer_Release(&self.offsets)
        PyBuffer_Release(&self.data)

    cdef Py_ssize_t contents(self, Py_ssize_t row, Py_ssize_t end, Py_ssize_t room) except -1:
        """Return the size of the rows' contents; once it exceeds ``room``, only the next row counts."""
        cdef const char* content = NULL
        cdef Py_ssize_t size, all = 0
        if self.view.items == NULL and self.view.offsets32 != NULL:
            return max(0, min(self.view.offsets32[end] - self.view.offsets32[row], self.data.len))
        if self.view.items == NULL and self.view.offsets64 != NULL:
            return max(0, min(self.view.offsets64[end] - self.view.offsets64[row], self.data.len))
        if self.view.items == NULL:
            return (end - row) * self.view.width
        while row < end and all <= room:
            size = content_of(&self.view, row, &content)
            if size < NULL_CONTENT:
                raise self.fault(row, size)
            all += max(0, size)
            row += 1
        return all

    cdef object fault(self, Py_ssize_t row, Py_ssize_t size):
        if size == WRONG_TYPE:
            kind = type(self.owner[row]).__name__
            return TypeError(f"{self.name} {row}: expected bytes or None, got {kind}")
        place = self.owner.offsets[row], self.owner.offsets[row + 1]
        return ValueError(f"{self.name} {row}: bytes {place[0]} to {place[1]} of {self.data.len}")


@cython.final
cdef class _Timestamps:
    """One timestamp for all records, or one for each."""

    def __cinit__(self, timestamps):
        if isinstance(timestamps, int):
            self.all = _checked_timestamp(timestamps)
            return
        PyObject_GetBuffer(timestamps, &self.view, PyBUF_SIMPLE)
        self.each = <const int64_t*>self.view.buf

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef int64_t at(self, Py_ssize_t row) except? -2:
        if self.each == NULL:
            return self.all
        if self.each[row] < -1:
            raise _invalid_timestamp(self.each[row])
        return self.each[row]


@cython.final
cdef class RecordEncoder:
    """Encodes records in sequence; offsets count from 0, and the first timestamp is the base."""

    def __cinit__(self):
        memory_move(&self.memory, 1024)
        self.memory.used = _HEADER_SIZE
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1

    def __dealloc__(self):
        memory_release(&self.memory)

    @property
    def size(self):
        """The bytes of the records so far."""
        return self.memory.used - _HEADER_SIZE

    def append(self, key, value, headers=(), timestamp_ms=-1):
        """Encode one record and return its offset in the batch. A call that raises changes nothing."""
        # Calls that can run the caller's code come first: the contents must not change between measuring and writing.
        cdef int64_t timestamp = _checked_timestamp(timestamp_ms)
        cdef list pairs = None if headers is _NO_HEADERS else _checked_headers(headers)
        return self.put(key, value, pairs, timestamp)

    cdef Py_ssize_t put(self, object key, object value, list pairs, int64_t timestamp) except -1:
        """Encode one record with checked timestamp and header names, without running the caller's code."""
        cdef Py_ssize_t pairs_size = 0 if pairs is None else len(pairs)
        cdef int64_t base = self.base_timestamp if self.count else timestamp
        cdef uint64_t delta = _delta(timestamp, base)
        cdef Py_ssize_t size = 1 + varint_size(delta) + length_size(self.count), total, index
        cdef uint8_t* target
        size += _field_size(key, "key") + _field_size(value, "value")
        for index in range(pairs_size):
            size += _field_size(pairs[index], "header value")
        size += length_size(pairs_size // 2)
        total = length_size(size) + size
        if total > _MAX_RECORDS_SIZE - (self.memory.used - _HEADER_SIZE):
            raise _too_large()
        memory_reserve(&self.memory, total)
        target = put_varint(self.memory.data + self.memory.used, <uint64_t>size << 1)
        target[0] = 0
        target = put_varint(target + 1, delta)
        target = put_varint(target, <uint64_t>self.count << 1)
        target = _put_field(target, key)
        target = _put_field(target, value)
        target = put_varint(target, <uint64_t>(pairs_size // 2) << 1)
        for index in range(pairs_size):
            target = _put_field(target, pairs[index])
        self.memory.used += total
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count += 1
        self.is_shared = False
        return self.count - 1

    def extend(self, values, keys, timestamps, start, max_size):
        """Encode the records from row ``start`` on and return the row after the last one encoded."""
        cdef Source value_source = Source(values, "value")
        cdef Source key_source = None if keys is None else Source(keys, "key")
        cdef _Timestamps times = _Timestamps(timestamps)
        cdef Py_ssize_t limit = _MAX_RECORDS_SIZE if max_size is None else max(0, min(max_size, _MAX_RECORDS_SIZE))
        cdef Py_ssize_t row = start, rows = value_source.rows, room = limit - self.memory.used + _HEADER_SIZE
        if row == rows:
            return row
        self.reserve(value_source, key_source, times, row, max(room, 0), max_size is None)
        return self.write(value_source, key_source, times, row, room, max_size is not None)

    cdef int reserve(
        self, Source values, Source keys, _Timestamps times, Py_ssize_t row, Py_ssize_t room, bint needs_all
    ) except -1:
        """Reserve memory for the most that the rows can take, up to the limit, and for one record in any case."""
        cdef Py_ssize_t first = values.contents(row, row + 1, room), all = values.contents(row, values.rows, room)
        cdef Py_ssize_t overhead
        if keys is not None:
            first += keys.contents(row, row + 1, room)
            all += keys.contents(row, values.rows, room)
        if needs_all and values.view.items != NULL and all > room:
            raise _too_large()
        # Attributes, header count, timestamp, offset, and the lengths of the record, the key and the value.
        overhead = 2 + (1 if times.each == NULL and self.count == 0 else 10) + length_size(self.count + values.rows)
        overhead += length_size(all + 40) + length_size(all) + (1 if keys is None else length_size(all))
        return memory_reserve(&self.memory, min(all + overhead * (values.rows - row), max(room, first + overhead)))

    cdef Py_ssize_t write(
        self, Source values, Source keys, _Timestamps times, Py_ssize_t row, Py_ssize_t room, bint is_limited
    ) except -1:
        """Write the rows that fit and return the row after them; state changes only after all writes."""
        cdef View value_view = values.view, key_view = values.view
        cdef uint8_t* begin = self.memory.data + self.memory.used
        cdef uint8_t* target = begin
        cdef uint8_t* limit = self.memory.data + self.memory.capacity
        cdef const char* key = NULL
        cdef const char* value = NULL
        cdef Py_ssize_t count = self.count, rows = values.rows, key_size = NULL_CONTENT, value_size, size
        cdef int64_t timestamp = times.at(row), latest = max(self.max_timestamp, timestamp)
        cdef int64_t base = self.base_timestamp if count else timestamp
        cdef uint64_t delta = _delta(timestamp, base)
        cdef Py_ssize_t delta_size = varint_size(delta), first
        cdef bint is_plain = keys is None and times.each == NULL
        if keys is not None:
            key_view = keys.view
        limit = begin + min(limit - begin, max(room, 0)) if count or not is_limited else limit
        while row < rows:
            if is_plain and (count or not is_limited):
                is_plain = False
                first = row
                row = _write_plain(&value_view, row, rows, delta, count, &target, limit)
                count += row - first
                continue
            if times.each != NULL:
                timestamp = times.at(row)
                delta = _delta(timestamp, base)
                delta_size = varint_size(delta)
            value_size = content_of(&value_view, row, &value)
            if value_size < NULL_CONTENT:
                raise values.fault(row, value_size)
            if keys is not None:
                key_size = content_of(&key_view, row, &key)
                if key_size < NULL_CONTENT:
                    raise keys.fault(row, key_size)
            size = 2 + delta_size + length_size(count) + _content_size(key_size) + _content_size(value_size)
            if size > limit - target - length_size(size) or size > _MAX_RECORDS_SIZE - 5:
                if is_limited and count:
                    break
                raise _too_large()
            target = put_varint(target, <uint64_t>size << 1)
            target[0] = 0
            target = put_varint(target + 1, delta)
            target = put_varint(target, <uint64_t>count << 1)
            target = _put_content(target, key, key_size)
            target = _put_content(target, value, value_size)
            target[0] = 0
            target += 1
            latest = max(latest, timestamp)
            if count == 0 and is_limited:
                limit = begin + max(min(limit - begin, room), target - begin)
            count += 1
            row += 1
        if count != self.count:
            self.memory.used += target - begin
            self.count, self.base_timestamp, self.max_timestamp = count, base, latest
            self.is_shared = False
        return row

    def records(self):
        """Return a view of the encoded records; later records do not change it."""
        self.is_shared = True
        return memoryview(memory_bytes(&self.memory))[_HEADER_SIZE:]

    def batch(self, covered):
        """Return the batch without compression, given the header fields that the CRC covers."""
        cdef bytes batch, prefix
        if self.is_shared:
            memory_move(&self.memory, self.memory.used)
        batch = memory_bytes(&self.memory)
        self.is_shared = True
        with memoryview(batch) as view, view[_HEADER_SIZE:] as records:
            prefix = encode_prefix(0, -1, covered, records)
        memcpy(self.memory.data, PyBytes_AS_STRING(prefix), _HEADER_SIZE)
        return batch


cdef inline uint64_t _delta(int64_t timestamp, int64_t base) noexcept nogil:
    """Return the encoded timestamp, in uint64, because the difference of the extremes wraps, as in Kafka."""
    return zigzag(<int64_t>(<uint64_t>timestamp - <uint64_t>base))


cdef inline int64_t _checked_timestamp(object timestamp_ms) except? -2:
    cdef int overflow = 0
    cdef long long number
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms: expected int, got {type(timestamp_ms).__name__}")
    number = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    if overflow or number < -1:
        raise _invalid_timestamp(timestamp_ms)
    return number


cdef object _invalid_timestamp(object timestamp_ms):
    return error_for(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms}: expected -1 to {INT64_MAX}")


cdef object _too_large():
    return error_for(ErrorCode.MESSAGE_TOO_LARGE, f"a batch holds at most {MAX_RECORDS_SIZE} bytes of records")
