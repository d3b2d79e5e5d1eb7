"""What other compiled modules use of the encoder: columns of contents, and one record appended without a call of Python."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from tidelog_foundation.records._bytes cimport Memory

cdef enum:
    NULL_CONTENT = -1
    WRONG_TYPE = -2
    WRONG_PLACE = -3


cdef struct View:
    # The objects of a list or tuple; or, where there are none, a column's buffers.
    PyObject** items
    const uint8_t* valid
    Py_ssize_t first_bit
    const int32_t* offsets32
    const int64_t* offsets64
    Py_ssize_t width
    const char* data
    Py_ssize_t data_size


cdef Py_ssize_t content_of(const View* view, Py_ssize_t row, const char** content) noexcept


cdef class Source:
    cdef View view
    cdef object owner
    cdef str name
    cdef Py_buffer validity
    cdef Py_buffer offsets
    cdef Py_buffer data
    cdef Py_ssize_t rows
    cdef Py_ssize_t contents(self, Py_ssize_t row, Py_ssize_t end, Py_ssize_t room) except -1
    cdef object fault(self, Py_ssize_t row, Py_ssize_t size)


cdef class _Timestamps:
    cdef Py_buffer view
    cdef const int64_t* each
    cdef int64_t all
    cdef int64_t at(self, Py_ssize_t row) except? -2


cdef class RecordEncoder:
    cdef Memory memory
    cdef bint is_shared
    cdef readonly Py_ssize_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef Py_ssize_t put(self, object key, object value, list pairs, int64_t timestamp) except -1
    cdef int reserve(
        self, Source values, Source keys, _Timestamps times, Py_ssize_t row, Py_ssize_t room, bint needs_all
    ) except -1
    cdef Py_ssize_t write(
        self, Source values, Source keys, _Timestamps times, Py_ssize_t row, Py_ssize_t room, bint is_limited
    ) except -1
