"""The polls of a connection for other compiled modules."""

from libc.stdint cimport int64_t, uint8_t

from tidelog_node.kafka.server._fast_callers cimport KnownCallers
from tidelog_node.kafka.server._fast_wire cimport Answered


cdef class FollowerPolls:
    cdef object connection, transport, outbox, loop, node, context, times
    cdef KnownCallers callers
    cdef object held, timer
    cdef double fires_at

    cdef Py_ssize_t serve(self, const uint8_t* data, Py_ssize_t received, int64_t received_ns) except -1
    cdef int close(self) except -1
    cdef int send(self, response) except -1
    cdef int count(self, Answered* each, int64_t received_ns, int64_t local_ns) except -1
    cdef int watch(self, double deadline) except -1
