"""The callers of a connection for other compiled modules."""

from libc.stdint cimport uint8_t


cdef class KnownCallers:
    cdef object callers, session
    cdef object of(self, int api_key, int version, const uint8_t* client, Py_ssize_t client_size)
