# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog_foundation.records._pure_scan` and of ``parse_header``: the same results and
errors.

Safety: a header's 61 bytes are compared with the remaining size, then read once into a struct that is checked and
returned. A concurrent write to the buffer cannot change checked values. If anything is invalid, the pure twin repeats
the check and creates the error.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_FromLong, PyLong_FromLongLong, PyLong_FromUnsignedLong
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from crc32c import crc32c

from tidelog_foundation.records import _pure_scan, header as _header
from tidelog_foundation.records.header import BatchScan, RecordBatchHeader

cdef extern from *:
    """
    /* What tuple.__new__ does for a subclass, without the tuple that it would copy from. */
    #define TIDELOG_NEW_TUPLE(type, size) ((PyTypeObject*)(type))->tp_alloc((PyTypeObject*)(type), size)
    """
    object TIDELOG_NEW_TUPLE(object type, Py_ssize_t size)

cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    COVERED = 21
    FIELDS = 12

assert _header.HEADER_SIZE == HEADER_SIZE and _header.LOG_OVERHEAD == LOG_OVERHEAD
assert _header.ATTRIBUTES_POSITION == COVERED and len(RecordBatchHeader._fields) == FIELDS

cdef object _HEADER_TYPE = RecordBatchHeader
cdef object _crc32c = crc32c


cdef struct Header:
    int64_t base_offset
    int32_t batch_length
    int32_t partition_leader_epoch
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef inline uint16_t _read16(const uint8_t* place) noexcept nogil:
    return <uint16_t>(<uint16_t>place[0] << 8 | place[1])


cdef inline uint32_t _read32(const uint8_t* place) noexcept nogil:
    return <uint32_t>place[0] << 24 | <uint32_t>place[1] << 16 | <uint32_t>place[2] << 8 | place[3]


cdef inline uint64_t _read64(const uint8_t* place) noexcept nogil:
    return <uint64_t>_read32(place) << 32 | _read32(place + 4)


cdef inline bint _read_header(const uint8_t* place, Header* header) noexcept nogil:
    """Read a header that is fully in the buffer; return False for one that the pure twin rejects."""
    header.base_offset = <int64_t>_read64(place)
    header.batch_length = <int32_t>_read32(place + 8)
    header.partition_leader_epoch = <int32_t>_read32(place + 12)
    header.crc = _read32(place + 17)
    header.attributes = <int16_t>_read16(place + 21)
    header.last_offset_delta = <int32_t>_read32(place + 23)
    header.base_timestamp = <int64_t>_read64(place + 27)
    header.max_timestamp = <int64_t>_read64(place + 35)
    header.producer_id = <int64_t>_read64(place + 43)
    header.producer_epoch = <int16_t>_read16(place + 51)
    header.base_sequence = <int32_t>_read32(place + 53)
    header.record_count = <int32_t>_read32(place + 57)
    return (
        place[16] == 2
        and header.batch_length >= HEADER_SIZE - LOG_OVERHEAD
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
        and header.last_offset_delta < INT64_MAX - header.base_offset
        and header.record_count >= 0
    )


cdef inline int _put(object header, Py_ssize_t place, object number) except -1:
    Py_INCREF(number)
    PyTuple_SET_ITEM(header, place, number)
    return 0


cdef object _as_tuple(const Header* fields):
    cdef object header = TIDELOG_NEW_TUPLE(_HEADER_TYPE, FIELDS)
    _put(header, 0, PyLong_FromLongLong(fields.base_offset))
    _put(header, 1, PyLong_FromLong(fields.batch_length))
    _put(header, 2, PyLong_FromLong(fields.partition_leader_epoch))
    _put(header, 3, PyLong_FromUnsignedLong(fields.crc))
    _put(header, 4, PyLong_FromLong(fields.attributes))
    _put(header, 5, PyLong_FromLong(fields.last_offset_delta))
    _put(header, 6, PyLong_FromLongLong(fields.base_timestamp))
    _put(header, 7, PyLong_FromLongLong(fields.max_timestamp))
    _put(header, 8, PyLong_FromLongLong(fields.producer_id))
    _put(header, 9, PyLong_FromLong(fields.producer_epoch))
    _put(header, 10, PyLong_FromLong(fields.base_sequence))
    _put(header, 11, PyLong_FromLong(fields.record_count))
    return header


cdef bint _is_unchanged(const uint8_t* place, const Header* header) except -1:
    """Return True if the whole batch at a position matches its header's CRC."""
    cdef Py_ssize_t size = <Py_ssize_t>header.batch_length + LOG_OVERHEAD - COVERED
    cdef uint32_t actual = _crc32c(PyMemoryView_FromMemory(<char*>place + COVERED, size, PyBUF_READ))
    return actual == header.crc


def parse_header(buffer, Py_ssize_t position=0, first_position=0):
    """Return the header at a position; the rest of the batch may be missing."""
    cdef Py_buffer view
    cdef Header header
    cdef bint is_sound
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    is_sound = (
        position >= 0
        and view.len - position >= HEADER_SIZE
        and _read_header(<const uint8_t*>view.buf + position, &header)
    )
    PyBuffer_Release(&view)
    return _as_tuple(&header) if is_sound else _header.parse_header(buffer, position, first_position)


def validate_batch(buffer, Py_ssize_t position=0, first_position=0):
    """Return the header of the whole batch at a position, after checking its structure and its CRC-32C."""
    cdef Py_buffer view
    cdef const uint8_t* place
    cdef Header header
    cdef bint is_sound = False
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position >= 0 and view.len - position >= HEADER_SIZE:
            place = <const uint8_t*>view.buf + position
            is_sound = (
                _read_header(place, &header)
                and <Py_ssize_t>header.batch_length + LOG_OVERHEAD <= view.len - position
                and _is_unchanged(place, &header)
            )
    finally:
        PyBuffer_Release(&view)
    return _as_tuple(&header) if is_sound else _pure_scan.validate_batch(buffer, position, first_position)


def scan_batches(buffer, int64_t first_position=0, int64_t least_offset=0):
    """Return the batches from the beginning of a buffer."""
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef Py_ssize_t place = 0
    cdef Header header
    cdef list batches = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    data = <const uint8_t*>view.buf
    try:
        while view.len - place >= HEADER_SIZE:
            if not _read_header(data + place, &header) or header.base_offset < least_offset:
                break
            if <Py_ssize_t>header.batch_length + LOG_OVERHEAD > view.len - place or not _is_unchanged(data + place, &header):
                break
            batches.append((first_position + place, _as_tuple(&header)))
            place += <Py_ssize_t>header.batch_length + LOG_OVERHEAD
            least_offset = header.base_offset + header.last_offset_delta + 1
    finally:
        PyBuffer_Release(&view)
    with memoryview(buffer) as whole, whole[place:] as remaining:
        rest = _pure_scan.scan_batches(remaining, first_position + place, least_offset)
    return BatchScan(batches + rest.batches, place + rest.size, rest.wanted, rest.fault)
