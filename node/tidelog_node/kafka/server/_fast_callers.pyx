# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The caller of a request whose client and version a connection has met before."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
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
