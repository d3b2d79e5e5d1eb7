"""The parts that the short ways of a connection share."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct Answered:
    # A request whose answer is not sent yet: the size of its response's body, and times in nanoseconds.
    int32_t correlation_id
    Py_ssize_t size
    int64_t begun_ns
    int64_t answered_ns


cdef class KnownCallers:
    cdef object callers, session
    cdef object of(self, int api_key, int version, const uint8_t* client, Py_ssize_t client_size)


cdef class AnswerCounts:
    cdef object connection, outbox, times
    cdef int api_key
    cdef int add(self, Answered* each, int64_t received_ns, int64_t local_ns, int64_t now_ns) except -1


cdef class LastingTimer:
    cdef object loop, call, handle
    cdef double fires_at
    cdef int watch(self, double deadline) except -1
    cdef int stop(self) except -1
