"""The compiled message, for the module that makes the messages of fetched records."""

from libc.stdint cimport int64_t


cdef class Message:
    cdef object _topic
    cdef object _partition
    cdef object _key
    cdef object _value
    cdef object _leader_epoch
    cdef object _headers
    cdef object _error
    cdef object _latency_s
    # The offset and timestamp of a record that was read are the numbers below, not these, while ``is_read`` is set.
    cdef object _offset
    cdef object _timestamp
    # The headers as they are in the record; None once they are decoded, or without any.
    cdef bytes encoded_headers
    cdef bint is_read
    cdef int read_timestamp_type
    cdef int64_t read_offset
    cdef int64_t read_timestamp_ms

    cdef int take_headers(self) except -1
    cdef int track(self) except -1
