# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of a follower's most frequent fetches over a connection: in a session, with few partitions.

:class:`Polls` reads an answer from the received bytes, passes it to the follower's :class:`FetchSteps`, and sends the next
request in the same step of the event loop. It leaves every other answer, valid or not, to
:class:`~tidelog_node.kafka.client.connection.PeerConnection`, having changed nothing.

Safety: each byte is read below the end of the answer, with which its position was compared before.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from tidelog_foundation._big_endian cimport int32, int64, put32, put64
from tidelog_node.partitions.fetchers._fast_steps cimport (
    MOST_PARTITIONS,
    Answer,
    AnsweredPartition,
    Asked,
    AskedPartition,
    FetchSteps,
)

from tidelog_node.kafka.client.connection import FIRST_CORRELATION_ID, LAST_CORRELATION_ID

cdef enum:
    LENGTH_BYTES = 4
    CORRELATION_POSITION = 8
    ID_BYTES = 16
    # An answer's correlation id, no tagged fields, throttle time, error code, session id, and number of topics.
    HEAD_BYTES = 16
    # A topic's id and its number of partitions.
    TOPIC_BYTES = 17
    # A partition's index, error and offsets, no aborted transactions, and a preferred replica.
    PARTITION_BYTES = 35
    # The positions in a request's body.
    SESSION_POSITION = 13
    TOPICS_POSITION = 21
    # A partition of a request, with the number of its tagged fields.
    ASKED_BYTES = 33

cdef int32_t _FIRST_ID = FIRST_CORRELATION_ID
cdef int32_t _LAST_ID = LAST_CORRELATION_ID


cdef bint _read(const uint8_t* data, Py_ssize_t begin, Py_ssize_t end, int32_t correlation_id, Answer* answer) noexcept nogil:
    """Read the answer in the bytes; False if it has an error, another form or id, or is invalid."""
    cdef Py_ssize_t position = begin + HEAD_BYTES
    cdef int topics, topic, partitions
    cdef const uint8_t* topic_id
    answer.count = 0
    # No answer is shorter than one without topics.
    if end - begin < HEAD_BYTES + 1 or int32(data + begin) != correlation_id:
        return False
    data += begin
    # A throttle time is of no concern to a follower.
    if data[4] or data[9] or data[10]:
        return False
    answer.session_id = int32(data + 11)
    topics = <int>data[15] - 1
    data -= begin
    for topic in range(topics):
        if end - position < TOPIC_BYTES:
            return False
        topic_id = data + position
        if _has_topic(answer, topic_id):
            return False
        partitions = <int>topic_id[ID_BYTES] - 1
        position += TOPIC_BYTES
        if partitions < 1 or partitions > MOST_PARTITIONS - answer.count:
            return False
        while partitions:
            partitions -= 1
            position = _read_partition(data, position, end, &answer.partitions[answer.count])
            if position < 0:
                return False
            answer.partitions[answer.count].topic_id = topic_id
            answer.count += 1
        if position >= end or data[position]:
            return False
        position += 1
    return topics >= 0 and position == end - 1 and not data[position]


cdef bint _has_topic(const Answer* answer, const uint8_t* topic_id) noexcept nogil:
    cdef int number
    for number in range(answer.count):
        if memcmp(answer.partitions[number].topic_id, topic_id, ID_BYTES) == 0:
            return True
    return False


cdef Py_ssize_t _read_partition(
    const uint8_t* data, Py_ssize_t position, Py_ssize_t end, AnsweredPartition* answered
) noexcept nogil:
    """Read the answer for a partition at the position, and return the end of it; -1 if it has an error."""
    cdef uint32_t length = 0
    cdef int shift = 0
    if end - position <= PARTITION_BYTES:
        return -1
    data += position
    if data[4] or data[5] or data[30] > 1:
        return -1
    answered.index = int32(data)
    answered.high_watermark = int64(data + 6)
    answered.log_start_offset = int64(data + 22)
    data -= position
    position += PARTITION_BYTES
    while True:
        if position == end:
            return -1
        length |= <uint32_t>(data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
        shift += 7
        if shift > 21:
            return -1
    answered.begin = position
    position += <Py_ssize_t>length - 1 if length else 0
    answered.end = position
    if position >= end or data[position]:
        return -1
    return position + 1


cdef bytes _request(bytes empty, Py_ssize_t body, int32_t correlation_id, const Asked* asked):
    """Return a request like an empty one, whose body is from ``body`` on, with the topics in the order of their names."""
    cdef const uint8_t* like = <const uint8_t*>PyBytes_AS_STRING(empty)
    cdef Py_ssize_t head = body + TOPICS_POSITION, tail = PyBytes_GET_SIZE(empty) - head - 1
    cdef Py_ssize_t size = PyBytes_GET_SIZE(empty) + asked.count * ASKED_BYTES
    cdef int topics = 0, number, other, partitions
    cdef bytes request
    cdef uint8_t* begin
    cdef uint8_t* count
    cdef uint8_t* target
    for number in range(asked.count):
        topics += _is_first(asked, number)
    size += topics * (TOPIC_BYTES + 1)
    request = PyBytes_FromStringAndSize(NULL, size)
    begin = <uint8_t*>PyBytes_AS_STRING(request)
    memcpy(begin, like, head)
    put32(begin, <uint32_t>(size - LENGTH_BYTES))
    put32(begin + CORRELATION_POSITION, <uint32_t>correlation_id)
    put32(begin + body + SESSION_POSITION, <uint32_t>asked.session_id)
    put32(begin + body + SESSION_POSITION + 4, <uint32_t>asked.epoch)
    target = begin + head
    target[0] = <uint8_t>(topics + 1)
    target += 1
    for number in range(asked.count):
        if not _is_first(asked, number):
            continue
        memcpy(target, asked.partitions[number].topic_id, ID_BYTES)
        target += TOPIC_BYTES
        count = target - 1
        partitions = 0
        for other in range(number, asked.count):
            if memcmp(asked.partitions[number].topic_id, asked.partitions[other].topic_id, ID_BYTES) == 0:
                target = _put_partition(target, &asked.partitions[other])
                partitions += 1
        count[0] = <uint8_t>(partitions + 1)
        target[0] = 0
        target += 1
    memcpy(target, like + head + 1, tail)
    return request


cdef bint _is_first(const Asked* asked, int number) noexcept nogil:
    """Return whether a partition is the first of its topic."""
    cdef int other
    for other in range(number):
        if memcmp(asked.partitions[number].topic_id, asked.partitions[other].topic_id, ID_BYTES) == 0:
            return False
    return True


cdef uint8_t* _put_partition(uint8_t* target, const AskedPartition* asked) noexcept nogil:
    put32(target, <uint32_t>asked.index)
    put32(target + 4, <uint32_t>asked.leader_epoch)
    put64(target + 8, <uint64_t>asked.offset)
    put32(target + 16, <uint32_t>asked.last_fetched_epoch)
    put64(target + 20, <uint64_t>asked.log_start_offset)
    put32(target + 28, <uint32_t>asked.max_bytes)
    target[32] = 0
    return target + ASKED_BYTES


cdef class Polls:
    """The short way of one connection. A request at a time may begin it with :meth:`begin`."""

    cdef object _connection, _loop, _future
    cdef FetchSteps _steps
    cdef double _timeout_s
    # A request without partitions, and the position of its body.
    cdef bytes _empty
    cdef Py_ssize_t _body

    def __init__(self, connection):
        self._connection = connection
        self._loop = connection.loop

    def begin(self, FetchSteps steps, future, double timeout_s, bytes empty, Py_ssize_t body):
        """Let ``steps`` take the answer to the request in progress, whose outcome is ``future``.

        ``empty`` is such a request without partitions. Its body begins at ``body``.
        """
        self._steps = steps
        self._future = future
        self._timeout_s = timeout_s
        self._empty, self._body = empty, body

    def serve(self, buffer, Py_ssize_t filled):
        """Serve the answer in the buffer with its length before it. Return False if it must take the general way."""
        cdef Py_buffer view
        cdef bint is_whole
        if self._future is None or filled < LENGTH_BYTES:
            return False
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        is_whole = int32(<const uint8_t*>view.buf) == filled - LENGTH_BYTES
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
        cdef Answer answer
        connection = self._connection
        future = self._future
        if connection._answer is not future or future.done():
            # Another request is in progress, or the caller has left.
            return False
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not _read(<const uint8_t*>view.buf, begin, end, connection._correlation_id, &answer):
                return False
            if not self._steps.take(&answer, buffer):
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
        cdef int32_t correlation_id
        transport, session = connection._transport, connection._session
        if transport is None or transport.is_closing() or (session is not None and session.ends_soon()):
            return False
        if not self._steps.prepare(&asked):
            return False
        correlation_id = connection._correlation_id
        correlation_id = _FIRST_ID if correlation_id == _LAST_ID else correlation_id + 1
        connection._correlation_id = correlation_id
        deadline = self._loop.time() + self._timeout_s
        if connection._timer is None:
            connection._expire_at(deadline)
        else:
            # The timer fires no later than the request before it would have expired, which had the same time.
            connection._deadline = deadline
        transport.write(_request(self._empty, self._body, correlation_id, &asked))
        return True

    cdef int _settle(self, error) except -1:
        self._forget()
        self._connection.end_polls(error)
        return 0

    cdef int _forget(self) except -1:
        self._future = None
        self._steps = None
        return 0
