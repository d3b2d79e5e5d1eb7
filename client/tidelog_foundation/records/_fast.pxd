# cython: language_level=3
from libc.stdint cimport int64_t


cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly int timestamp_type
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers
