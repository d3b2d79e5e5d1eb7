# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled twin of :mod:`tidelog._pure_message`: a message that was read makes some of its parts on demand.

Messages that were read are not tracked by the garbage collector, which would walk over all of them again and again:
they refer to text, bytes and numbers alone. A setter, or a list of headers that the caller may change, ends this.
"""

import inspect

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t

from tidelog_foundation.records._bytes cimport read_varint

from tidelog._pure_message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE
from tidelog._pure_message import Message as _Definition

cdef extern from "Python.h":
    int PyObject_GC_IsTracked(object)
    void PyObject_GC_Track(object)

cdef tuple _UNKNOWN = (TIMESTAMP_NOT_AVAILABLE, -1)
cdef tuple _TIMESTAMP_TYPES = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME)


@cython.freelist(512)
cdef class Message:
    """A record that was read or delivered, or an event of a partition, whose :meth:`error` is not None."""

    __signature__ = inspect.signature(_Definition)

    def __init__(
        self,
        topic=None,
        partition=None,
        offset=None,
        key=None,
        value=None,
        headers=None,
        error=None,
        timestamp=_UNKNOWN,
        latency=None,
        leader_epoch=None,
    ):
        self.is_read = False
        self.encoded_headers = None
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._timestamp = timestamp
        self._error = error
        self._latency_s = latency
        self._leader_epoch = leader_epoch

    cdef int take_headers(self) except -1:
        if self.encoded_headers is not None:
            self._headers = _decoded(self.encoded_headers)
            self.encoded_headers = None
            self.track()
        return 0

    cdef int track(self) except -1:
        if not PyObject_GC_IsTracked(self):
            PyObject_GC_Track(self)
        return 0

    def topic(self):
        """Return the topic's name."""
        return self._topic

    def partition(self):
        """Return the partition's number."""
        return self._partition

    def offset(self):
        """Return the offset, or None if there is none, as for a message that was not delivered."""
        return self.read_offset if self.is_read else self._offset

    def key(self):
        """Return the key: bytes or None."""
        return self._key

    def value(self):
        """Return the value: bytes or None; the text of an event."""
        return self._value

    def deserialized_key(self):
        """Return the key, which is an object in messages of a ``DeserializingConsumer``."""
        return self._key

    def deserialized_value(self):
        """Return the value, which is an object in messages of a ``DeserializingConsumer``."""
        return self._value

    def headers(self):
        """Return the headers in order, or None if there are none."""
        self.take_headers()
        return self._headers or None

    def timestamp(self):
        """Return the timestamp's type (``TIMESTAMP_CREATE_TIME`` ...) and its milliseconds, -1 for none."""
        return _timestamp(self) if self.is_read else self._timestamp

    def error(self):
        """Return the error, or None for a record."""
        return self._error

    def latency(self):
        """Return the seconds from ``produce()`` to the acknowledgement, or None for a message that was read."""
        return self._latency_s

    def leader_epoch(self):
        """Return the epoch of the leader that accepted the record, or None if it is unknown."""
        return self._leader_epoch

    def set_error(self, error):
        """Replace the error."""
        self.track()
        self._error = error

    def set_headers(self, headers):
        """Replace the headers."""
        self.track()
        self.encoded_headers = None
        self._headers = headers

    def set_key(self, key):
        """Replace the key, as deserializers do."""
        self.track()
        self._key = key

    def set_topic(self, topic):
        """Replace the topic."""
        self.track()
        self._topic = topic

    def set_value(self, value):
        """Replace the value, as deserializers do."""
        self.track()
        self._value = value

    def __len__(self):
        return 0 if self._value is None else len(self._value)

    def __bool__(self):
        return True

    def __repr__(self):
        return (
            f"Message(topic={self._topic!r}, partition={self._partition}, offset={self.offset()}, error={self._error})"
        )

    def __reduce__(self):
        self.take_headers()
        return type(self), (
            self._topic,
            self._partition,
            self.offset(),
            self._key,
            self._value,
            self._headers,
            self._error,
            self.timestamp(),
            self._latency_s,
            self._leader_epoch,
        )


cdef tuple _timestamp(Message message):
    if message.read_timestamp_ms < 0:
        return _UNKNOWN
    return (_TIMESTAMP_TYPES[message.read_timestamp_type], message.read_timestamp_ms)


cdef list _decoded(bytes encoded):
    """Return headers from the end of a record, whose bounds were checked when it was read."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(encoded)
    cdef Py_ssize_t place = 0, end = PyBytes_GET_SIZE(encoded)
    cdef list headers = []
    cdef bytes name
    while place < end:
        name = _content(data, &place, end)
        assert name is not None
        text = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), "replace")
        headers.append((text, _content(data, &place, end)))
    return headers


cdef bytes _content(const uint8_t* data, Py_ssize_t* place, Py_ssize_t end):
    cdef int64_t size
    cdef Py_ssize_t start
    if not read_varint(data, place, end, 5, &size) or size > end - place[0]:
        raise AssertionError("headers were not checked")
    if size < 0:
        return None
    start = place[0]
    place[0] += <Py_ssize_t>size
    return PyBytes_FromStringAndSize(<const char*>data + start, <Py_ssize_t>size)
