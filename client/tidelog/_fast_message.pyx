# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled twin of :mod:`tidelog._pure_message`: a message refers to its record, and takes it apart on demand."""

import inspect

cimport cython

from tidelog._pure_message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE
from tidelog._pure_message import Message as _Definition

cdef tuple _UNKNOWN = (TIMESTAMP_NOT_AVAILABLE, -1)
cdef tuple _TIMESTAMP_TYPES = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME)


@cython.freelist(256)
cdef class Message:
    """A record that was read or delivered, or an event of a partition, whose :meth:`error` is not None."""

    __signature__ = inspect.signature(_Definition)

    # The record that was read, until a part of the message is set; then None, and all parts are in the fields.
    cdef object record
    cdef object _topic
    cdef object _partition
    cdef object _offset
    cdef object _key
    cdef object _value
    cdef object _headers
    cdef object _error
    cdef object _timestamp
    cdef object _latency_s
    cdef object _leader_epoch

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
        self.record = None
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

    cdef int take_apart(self) except -1:
        record = self.record
        if record is not None:
            self._offset = record.offset
            self._key = record.key
            self._value = record.value
            self._headers = list(record.headers) if record.headers else None
            self._timestamp = _timestamp(record)
            self.record = None
        return 0

    def topic(self):
        """Return the topic's name."""
        return self._topic

    def partition(self):
        """Return the partition's number."""
        return self._partition

    def offset(self):
        """Return the offset, or None if there is none, as for a message that was not delivered."""
        return self._offset if self.record is None else self.record.offset

    def key(self):
        """Return the key: bytes or None."""
        return self._key if self.record is None else self.record.key

    def value(self):
        """Return the value: bytes or None; the text of an event."""
        return self._value if self.record is None else self.record.value

    def deserialized_key(self):
        """Return the key, which is an object in messages of a ``DeserializingConsumer``."""
        return self._key if self.record is None else self.record.key

    def deserialized_value(self):
        """Return the value, which is an object in messages of a ``DeserializingConsumer``."""
        return self._value if self.record is None else self.record.value

    def headers(self):
        """Return the headers in order, or None if there are none."""
        if self.record is not None:
            if not self.record.headers:
                return None
            # The caller may change the list.
            self.take_apart()
        return self._headers or None

    def timestamp(self):
        """Return the timestamp's type (``TIMESTAMP_CREATE_TIME`` ...) and its milliseconds, -1 for none."""
        return self._timestamp if self.record is None else _timestamp(self.record)

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
        self._error = error

    def set_headers(self, headers):
        """Replace the headers."""
        self.take_apart()
        self._headers = headers

    def set_key(self, key):
        """Replace the key, as deserializers do."""
        self.take_apart()
        self._key = key

    def set_topic(self, topic):
        """Replace the topic."""
        self._topic = topic

    def set_value(self, value):
        """Replace the value, as deserializers do."""
        self.take_apart()
        self._value = value

    def __len__(self):
        value = self._value if self.record is None else self.record.value
        return 0 if value is None else len(value)

    def __bool__(self):
        return True

    def __repr__(self):
        self.take_apart()
        return (
            f"Message(topic={self._topic!r}, partition={self._partition}, offset={self._offset}, error={self._error})"
        )

    def __reduce__(self):
        self.take_apart()
        return type(self), (
            self._topic,
            self._partition,
            self._offset,
            self._key,
            self._value,
            self._headers,
            self._error,
            self._timestamp,
            self._latency_s,
            self._leader_epoch,
        )


cdef tuple _timestamp(record):
    timestamp_ms = record.timestamp_ms
    return _UNKNOWN if timestamp_ms < 0 else (_TIMESTAMP_TYPES[record.timestamp_type], timestamp_ms)


def messages_of(records, topic, partition, leader_epoch):
    """Return a message for each record of a partition; ``leader_epoch`` is -1 if it is unknown."""
    cdef object epoch = leader_epoch if leader_epoch >= 0 else None
    cdef list messages = []
    cdef Message message
    for record in records:
        message = Message.__new__(Message)
        message.record = record
        message._topic = topic
        message._partition = partition
        message._leader_epoch = epoch
        messages.append(message)
    return messages
