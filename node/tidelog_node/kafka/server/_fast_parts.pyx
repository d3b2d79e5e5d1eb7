# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The parts that the short ways of a connection share: its callers, its counts of requests, and a timer."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp


cdef class KnownCallers:
    """The callers of one connection, and its SASL session or None."""

    def __cinit__(self, callers, session):
        self.callers = callers
        self.session = session

    cdef object of(self, int api_key, int version, const uint8_t* client, Py_ssize_t client_size):
        """Return the caller of a request by its version and client id, whose size is -1 for none.

        Return None if the request must take the way of all others. Raise CloseConnection if the session has expired.
        """
        known = self.callers.known_client_id
        if known is None:
            if client_size != -1:
                return None
        elif not (
            PyBytes_CheckExact(known)
            and PyBytes_GET_SIZE(known) == client_size
            and memcmp(PyBytes_AS_STRING(known), client, client_size) == 0
        ):
            return None
        caller = self.callers.of_versions.get(version)
        session = self.session
        if caller is None or session is None:
            return caller
        return caller if session.has_token == caller.has_token and not session.takes(api_key) else None


cdef class AnswerCounts:
    """The counts of a connection's requests of one API that the short way has answered."""

    def __cinit__(self, connection, outbox, times, int api_key):
        self.connection = connection
        self.outbox = outbox
        self.times = times
        self.api_key = api_key

    cdef int add(self, Answered* each, int64_t received_ns, int64_t local_ns, int64_t now_ns) except -1:
        """Count a request, whose response was given to the transport."""
        times = self.times
        if self.outbox.is_paused or now_ns - received_ns >= times.slow.threshold_ns:
            self.connection.note_answered(
                self.api_key,
                each.correlation_id,
                each.size,
                received_ns,
                each.begun_ns,
                local_ns,
                each.answered_ns,
                now_ns,
            )
        elif times.is_next_counted():
            times.count(
                each.begun_ns - received_ns,
                local_ns,
                max(0, each.answered_ns - each.begun_ns - local_ns),
                now_ns - each.answered_ns,
                now_ns - received_ns,
            )
        return 0


cdef class LastingTimer:
    """A timer that an answered request leaves running, because the next one needs it again."""

    def __cinit__(self, loop, call):
        self.loop = loop
        self.call = call

    cdef int watch(self, double deadline) except -1:
        """Have the timer call at the deadline, in the loop's seconds, or before."""
        if self.handle is not None:
            if self.fires_at <= deadline:
                return 0
            self.handle.cancel()
        self.fires_at = deadline
        self.handle = self.loop.call_at(deadline, self._fire)
        return 0

    cdef int stop(self) except -1:
        """Stop the timer for good."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
        self.call = None
        return 0

    def _fire(self):
        self.handle = None
        self.call()
