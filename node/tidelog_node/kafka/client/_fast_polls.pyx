# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of a follower's most frequent fetches over a connection: with at most one partition, in a session.

:class:`Polls` reads an answer from the received bytes, passes it to the follower's :class:`FetchSteps`, and sends the next
request in the same step of the event loop. It leaves every other answer, valid or not, to
:class:`~tidelog_node.kafka.client.connection.PeerConnection`, having changed nothing.

Safety: each byte is read below the end of the answer, with which its position was compared before.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tidelog_node.partitions.fetchers._fast_steps cimport Answer, Asked, FetchSteps

from tidelog_node.kafka.client.connection import FIRST_CORRELATION_ID, LAST_CORRELATION_ID

cdef enum:
    LENGTH_BYTES = 4
    CORRELATION_POSITION = 8
    ID_BYTES = 16
    # An answer's correlation id, no tagged fields, throttle time, error code, session id, and number of topics.
    HEAD_BYTES = 16
    # The topic's id, one partition, its index, error and offsets, no aborted transactions, and a preferred replica.
    PARTITION_BYTES = 52
    # The positions in a request's body.
    SESSION_POSITION = 13
    TOPIC_POSITION = 22
    INDEX_POSITION = 39

cdef int32_t _FIRST_ID = FIRST_CORRELATION_ID
cdef int32_t _LAST_ID = LAST_CORRELATION_ID


cdef struct Received:
    int32_t correlation_id
    Answer answer
    Py_ssize_t begin
    Py_ssize_t end


cdef inline int32_t _int32(const uint8_t* data) noexcept nogil:
    return <int32_t>(<uint32_t>data[0] << 24 | <uint32_t>data[1] << 16 | <uint32_t>data[2] << 8 | data[3])


cdef inline int64_t _int64(const uint8_t* data) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>_int32(data) << 32 | <uint32_t>_int32(data + 4))


cdef inline void _put32(uint8_t* target, uint32_t number) noexcept nogil:
    target[0], target[1], target[2], target[3] = number >> 24, number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF


cdef inline void _put64(uint8_t* target, uint64_t number) noexcept nogil:
    _put32(target, <uint32_t>(number >> 32))
    _put32(target + 4, <uint32_t>number)


cdef bint _read(const uint8_t* data, Py_ssize_t size, Received* received) noexcept nogil:
    """Read the answer in the bytes; False if it has an error, another form, or is invalid."""
    cdef Py_ssize_t position = HEAD_BYTES
    cdef uint32_t length = 0
    cdef int shift = 0
    cdef Answer* answer = &received.answer
    # The shortest answer has no topics: an empty array, and no tagged fields.
    if size < HEAD_BYTES or data[4] or _int32(data + 5) or data[9] or data[10]:
        return False
    received.correlation_id = _int32(data)
    answer.session_id = _int32(data + 11)
    if data[15] == 1:
        answer.topic_id = NULL
        received.begin = received.end = size
        return size == HEAD_BYTES + 1 and not data[HEAD_BYTES]
    if data[15] != 2 or size < HEAD_BYTES + PARTITION_BYTES + 4:
        return False
    answer.topic_id = data + position
    position += ID_BYTES
    if data[position] != 2 or data[position + 5] or data[position + 6]:
        return False
    answer.index = _int32(data + position + 1)
    answer.high_watermark = _int64(data + position + 7)
    answer.log_start_offset = _int64(data + position + 23)
    if data[position + 31] > 1:
        return False
    position = HEAD_BYTES + PARTITION_BYTES
    while True:
        length |= <uint32_t>(data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
        shift += 7
        if shift > 21 or position == size:
            return False
    received.begin = position
    received.end = position + (length - 1 if length else 0)
    if received.end + 3 != size:
        return False
    return not (data[size - 3] or data[size - 2] or data[size - 1])


cdef class Polls:
    """The short way of one connection. A request at a time may begin it with :meth:`begin`."""

    cdef object _connection, _loop, _future
    cdef FetchSteps _steps
    cdef double _timeout_s
    # A request for one partition and one for none, and the position of their bodies.
    cdef bytes _one, _none
    cdef Py_ssize_t _body

    def __init__(self, connection):
        self._connection = connection
        self._loop = connection.loop

    def begin(self, FetchSteps steps, future, double timeout_s, bytes one, bytes none, Py_ssize_t body):
        """Let ``steps`` take the answer to the request in progress, whose outcome is ``future``.

        ``one`` and ``none`` are such requests for one partition and for none, with their bodies from ``body`` on.
        """
        self._steps = steps
        self._future = future
        self._timeout_s = timeout_s
        self._one, self._none, self._body = one, none, body

    def serve(self, buffer, Py_ssize_t filled):
        """Serve the answer in the buffer with its length before it. Return False if it must take the general way."""
        cdef Py_buffer view
        cdef bint is_whole
        if self._future is None or filled < LENGTH_BYTES:
            return False
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        is_whole = _int32(<const uint8_t*>view.buf) == filled - LENGTH_BYTES
        PyBuffer_Release(&view)
        return is_whole and self._serves(buffer, LENGTH_BYTES, filled)

    def serve_frame(self, frame):
        """Serve an answer without its length. Return False if it must take the general way."""
        return self._future is not None and self._serves(frame, 0, len(frame))

    cdef bint _serves(self, buffer, Py_ssize_t begin, Py_ssize_t end) except -1:
        if self._serve(buffer, begin, end):
            return True
        # The general way ends the request.
        self._forget()
        return False

    cdef bint _serve(self, buffer, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef Py_buffer view
        cdef Received received
        connection = self._connection
        future = self._future
        if connection._answer is not future or future.done():
            # Another request is in progress, or the caller has left.
            return False
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not _read(<const uint8_t*>view.buf + begin, end - begin, &received):
                return False
            if received.correlation_id != <int64_t>connection._correlation_id:
                return False
            records = b""
            if received.begin < received.end:
                records = memoryview(buffer)[begin + received.begin : begin + received.end]
            if not self._steps.take(&received.answer, records):
                return False
            if not self._send_next(connection):
                self._settle(None)
        except Exception as error:
            self._settle(error)
        finally:
            PyBuffer_Release(&view)
        return True

    cdef bint _send_next(self, connection) except -1:
        """Send the next request. Return False if the follower must do so, and perhaps over another connection."""
        cdef Asked asked
        cdef bytes request
        cdef int32_t correlation_id
        cdef uint8_t* data
        cdef uint8_t* body
        transport, session = connection._transport, connection._session
        if transport is None or transport.is_closing() or (session is not None and session.ends_soon()):
            return False
        if not self._steps.prepare(&asked):
            return False
        request = self._none if asked.topic_id is NULL else self._one
        request = PyBytes_FromStringAndSize(PyBytes_AS_STRING(request), PyBytes_GET_SIZE(request))
        data = <uint8_t*>PyBytes_AS_STRING(request)
        body = data + self._body
        correlation_id = connection._correlation_id
        correlation_id = _FIRST_ID if correlation_id == _LAST_ID else correlation_id + 1
        connection._correlation_id = correlation_id
        _put32(data + CORRELATION_POSITION, <uint32_t>correlation_id)
        _put32(body + SESSION_POSITION, <uint32_t>asked.session_id)
        _put32(body + SESSION_POSITION + 4, <uint32_t>asked.epoch)
        if asked.topic_id is not NULL:
            memcpy(body + TOPIC_POSITION, asked.topic_id, ID_BYTES)
            _put32(body + INDEX_POSITION, <uint32_t>asked.index)
            _put32(body + INDEX_POSITION + 4, <uint32_t>asked.leader_epoch)
            _put64(body + INDEX_POSITION + 8, <uint64_t>asked.offset)
            _put32(body + INDEX_POSITION + 16, <uint32_t>asked.last_fetched_epoch)
            _put64(body + INDEX_POSITION + 20, <uint64_t>asked.log_start_offset)
            _put32(body + INDEX_POSITION + 28, <uint32_t>asked.max_bytes)
        deadline = self._loop.time() + self._timeout_s
        if connection._timer is None:
            connection._expire_at(deadline)
        else:
            # The timer fires no later than the request before it would have expired, which had the same time.
            connection._deadline = deadline
        transport.write(request)
        return True

    cdef int _settle(self, error) except -1:
        self._forget()
        self._connection.end_polls(error)
        return 0

    cdef int _forget(self) except -1:
        self._future = None
        self._steps = None
        return 0
