# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The walk over one batch's records for the other compiled modules; part of the twin of
:mod:`tidelog_foundation.records._pure`.

Safety: the slow path, ``_read_record``, reads bytes only through ``read_varint``, and below a position that was
compared with the end of the record. The fast path, ``_read_usual``, reads only bytes that it has compared with the end
of the records; for a record of unusual form it returns no verdict, and the slow path repeats the check. Neither needs
the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from tidelog_foundation.records._bytes cimport raw_varint, read_varint
from tidelog_foundation.records._header cimport TIMESTAMP_TYPE_MASK, Header

from tidelog_foundation.records import _faults

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

cdef Py_ssize_t _MIN_RECORD_SIZE = MIN_RECORD_SIZE


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
    """Read a length and skip that many bytes; a size of -1 means null."""
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


cdef int _read_thorough(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t size, int64_t* previous, int64_t last, Block* block, Py_ssize_t row
) noexcept nogil:
    """Read one record of any form into a row of the block; return a fault, with the position unchanged, or 0."""
    cdef Fields fields
    cdef int fault = _read_record(data, position[0], size, &fields)
    if fault:
        return fault
    if not previous[0] < fields.offset_delta <= last:
        return FAULT_OFFSET
    previous[0] = fields.offset_delta
    position[0] = fields.end
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
    """Read records into rows while they have the usual form; return the row after them.

    Every length is even before it is halved, unless it is null's. At the beginning of a record, sixteen bytes are
    present, of which at most thirteen are read up to the key and three after it. The end of the record proves that all
    of it lies inside: the sizes, none of them negative, must add up there. Unset keys are null, and unset header counts
    0.
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
    """Read a number of records, at most a block, and return their number; ``fault`` explains a smaller one."""
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
cdef class Walk:
    """A walk over one batch's records that checks the bounds of each; it holds the buffer for its lifetime."""

    def __cinit__(self, data=None, header=None):
        """Begin with one batch; without ``data``, :meth:`begin` or :meth:`begin_in` follows."""
        cdef Header fields
        if data is None:
            return
        fields.base_offset = header.base_offset
        fields.last_offset_delta = header.last_offset_delta
        fields.base_timestamp = header.base_timestamp
        fields.max_timestamp = header.max_timestamp
        fields.attributes = header.attributes
        fields.record_count = header.record_count
        self.begin_in(&fields, data)

    cdef int begin_in(self, const Header* header, object data) except -1:
        """Begin with the records of a batch, and hold their buffer until the next call."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        PyBuffer_Release(&self.view)
        self.view = view
        return self.begin(header, <const uint8_t*>view.buf, view.len)

    cdef int begin(self, const Header* header, const uint8_t* data, Py_ssize_t size) except -1:
        """Begin with the records of a batch, which the caller keeps in memory."""
        self.base_offset = header.base_offset
        self.last_offset_delta = header.last_offset_delta
        self.base_timestamp = header.base_timestamp
        self.append_time = header.max_timestamp
        self.timestamp_type = (header.attributes & TIMESTAMP_TYPE_MASK) != 0
        self.count = header.record_count
        self.previous = -1
        self.position = 0
        self.index = 0
        self.data = data
        self.size = size
        # Division, because the product with a claimed count could overflow.
        if self.count > size // _MIN_RECORD_SIZE:
            raise self.fault(FAULT_COUNT)
        return 0

    cdef int check(self) except -1:
        """Walk the rest of the batch and return to the present position. Raise CorruptRecordError for a malformed rest."""
        cdef Block block
        cdef Py_ssize_t position = self.position, index = self.index
        cdef int64_t previous = self.previous
        with nogil:
            while self.next_block(&block):
                pass
        self.position, self.index, self.previous = position, index, previous
        return 0

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef Py_ssize_t next_block(self, Block* block) except -1 nogil:
        """Read the next block of records, or fewer at the end; return 0 after the last, where no bytes may remain."""
        cdef Py_ssize_t rows
        cdef int fault = 0
        if self.index == self.count:
            if self.position != self.size:
                fault = FAULT_REMAINDER
            rows = 0
        else:
            rows = _read_block(
                self.data, &self.position, self.size, min(BLOCK, self.count - self.index), &self.previous,
                self.last_offset_delta, block, &fault,
            )
            self.index += rows
        if fault:
            with gil:
                raise self.fault(fault)
        return rows

    cdef object fault(self, int number):
        cdef Py_ssize_t index = self.index
        if number == FAULT_REMAINDER:
            index -= 1
        return _faults.malformed(number, self.base_offset, index, self.position, self.size, self.count)

    cdef int64_t timestamp(self, int64_t delta) noexcept nogil:
        return self.append_time if self.timestamp_type else <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>delta)

    cdef int extent(self, Py_ssize_t* position, Py_ssize_t end, Py_ssize_t* start, Py_ssize_t* size) except -1:
        """Read a header's extent again; it fails only if the bytes have changed since their check."""
        if not _read_extent(self.data, position, end, start, size):
            raise self.fault(FAULT_HEADERS)
        return 0
