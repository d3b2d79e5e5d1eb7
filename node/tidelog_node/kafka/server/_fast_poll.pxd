"""The polls of a connection for other compiled modules."""

from libc.stdint cimport int64_t, uint8_t

from tidelog_node.kafka.server._fast_parts cimport AnswerCounts, KnownCallers, LastingTimer


cdef class FollowerPolls:
    cdef object connection, transport, loop, node, context, times
    cdef KnownCallers callers
    cdef AnswerCounts counts
    cdef LastingTimer timer
    cdef object held

    cdef Py_ssize_t serve(self, const uint8_t* data, Py_ssize_t received, int64_t received_ns) except -1
    cdef int close(self) except -1
    cdef int send(self, response) except -1
