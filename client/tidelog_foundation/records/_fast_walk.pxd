"""The walk over a batch's records that the compiled modules share: a block of records at a time, each one checked."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from tidelog_foundation.records._header cimport Header

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


cdef class Walk:
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

    cdef int begin(self, const Header* header, const uint8_t* data, Py_ssize_t size) except -1
    cdef int begin_in(self, const Header* header, object data) except -1
    cdef int check(self) except -1
    cdef Py_ssize_t next_block(self, Block* block) except -1 nogil
    cdef object fault(self, int number)
    cdef int64_t timestamp(self, int64_t delta) noexcept nogil
    cdef int extent(self, Py_ssize_t* position, Py_ssize_t end, Py_ssize_t* start, Py_ssize_t* size) except -1
