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
from libc.stdint cimport int64_t, uint8_t, uint32_t

from tidelog_foundation.records._header cimport (
    COMPRESSION_MASK,
    CONTROL_MASK,
    COVERED,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    Header,
    batch_size,
    next_offset,
    read_header,
)

from crc32c import crc32c

from tidelog_foundation.records import _pure_scan, header as _header
from tidelog_foundation.records.header import BatchesSummary, BatchScan, RecordBatchHeader

cdef extern from *:
    """
    /* What tuple.__new__ does for a subclass, without the tuple that it would copy from. */
    #define TIDELOG_NEW_TUPLE(type, size) ((PyTypeObject*)(type))->tp_alloc((PyTypeObject*)(type), size)
    """
    object TIDELOG_NEW_TUPLE(object type, Py_ssize_t size)

cdef enum:
    FIELDS = 12

assert _header.HEADER_SIZE == HEADER_SIZE and _header.LOG_OVERHEAD == LOG_OVERHEAD
assert _header.COMPRESSION_MASK == COMPRESSION_MASK and _header.TIMESTAMP_TYPE_MASK == TIMESTAMP_TYPE_MASK
assert _header.CONTROL_MASK == CONTROL_MASK
assert _header.ATTRIBUTES_POSITION == COVERED and len(RecordBatchHeader._fields) == FIELDS

cdef object _HEADER_TYPE = RecordBatchHeader
cdef object _crc32c = crc32c


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


cdef bint is_unchanged(const uint8_t* place, const Header* header) except -1:
    """Return True if the whole batch at a position matches its header's CRC."""
    cdef Py_ssize_t size = batch_size(header) - COVERED
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
        and read_header(<const uint8_t*>view.buf + position, &header)
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
                read_header(place, &header)
                and batch_size(&header) <= view.len - position
                and is_unchanged(place, &header)
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
            if not read_header(data + place, &header) or header.base_offset < least_offset:
                break
            if batch_size(&header) > view.len - place or not is_unchanged(data + place, &header):
                break
            batches.append((first_position + place, _as_tuple(&header)))
            place += batch_size(&header)
            least_offset = next_offset(&header)
    finally:
        PyBuffer_Release(&view)
    with memoryview(buffer) as whole, whole[place:] as remaining:
        rest = _pure_scan.scan_batches(remaining, first_position + place, least_offset)
    return BatchScan(batches + rest.batches, place + rest.size, rest.wanted, rest.fault)


def summarize_batches(buffer):
    """Return the sum of the record counts, the end and the greatest leader epoch of the whole batches."""
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef Py_ssize_t place = 0
    cdef Header header
    cdef bint is_sound = True
    cdef int64_t records = 0, end = -1, epoch = -1
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    data = <const uint8_t*>view.buf
    while view.len - place >= HEADER_SIZE:
        is_sound = read_header(data + place, &header)
        if not is_sound or batch_size(&header) > view.len - place:
            break
        records += header.record_count
        end = max(end, next_offset(&header))
        epoch = max(epoch, header.partition_leader_epoch)
        place += batch_size(&header)
    PyBuffer_Release(&view)
    return BatchesSummary(records, end, epoch) if is_sound else _pure_scan.summarize_batches(buffer)
