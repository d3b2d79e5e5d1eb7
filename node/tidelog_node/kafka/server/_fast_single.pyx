# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of the most frequent requests: Produce with one small batch, and the poll of a follower.

:class:`SingleRequests` reads the requests at the beginning of a connection's buffer, appends their batches and sends the
answers in one write. :mod:`._fast_poll` has the polls. All other requests, valid or not, take the way of
:class:`~tidelog_node.kafka.server.connection.Connection`, whose outcome, bytes and counts are the same. So do all requests
where this module is missing.

Safety: each byte is read below the end of the request, with which its position was compared before.
"""

from time import perf_counter_ns

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tidelog_foundation._big_endian cimport int16, int32, put16, put32, put64
from tidelog_node.kafka.server._fast_parts cimport Answered, AnswerCounts, KnownCallers, LastingTimer
from tidelog_node.kafka.server._fast_poll cimport FollowerPolls

from tidelog_foundation.authorization import WRITE_TOPIC
from tidelog_foundation.logs.request_id import begin_request, end_request
from tidelog_foundation.records import HEADER_SIZE
from tidelog_node.handlers import partition_of_single, single_outcome
from tidelog_node.kafka.apis.produce import answer_single
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.produce import FIRST_SERVED, FIRST_WITH_TOPIC_IDS, FLEXIBLE, VERSIONS
from tidelog_node.kafka.protocol.messages.produce_single import MAX_BYTES, SingleBatch

cdef enum:
    LENGTH_BYTES = 4
    FIXED_HEADER = 10
    MAGIC_POSITION = 16
    MAGIC = 2
    ATTRIBUTES_POSITION = 22
    COMPRESSED_OR_TRANSACTIONAL = 0x17
    ID_BYTES = 16
    FIRST_WITH_START_OFFSET = 5
    FIRST_WITH_MESSAGES = 8
    # The longest answer without the topic's name or id.
    MOST_ANSWER = 96
    # The most requests that one call serves: about a millisecond of the loop.
    MOST_REQUESTS = 128

cdef int _PRODUCE = ApiKey.PRODUCE
cdef int _FETCH = ApiKey.FETCH
cdef int _FIRST = FIRST_SERVED
cdef int _LAST = VERSIONS[1]
cdef int _FLEXIBLE = FLEXIBLE
cdef int _WITH_IDS = FIRST_WITH_TOPIC_IDS
cdef Py_ssize_t _HEADER_SIZE = HEADER_SIZE
cdef Py_ssize_t _MAX_BYTES = MAX_BYTES


cdef struct Single:
    # A request: `begin` and `end` are the batch's, counted from the request's first byte, and `place` is the topic's
    # name or id.
    Py_ssize_t size
    int version
    int32_t correlation_id
    Py_ssize_t client_size
    const uint8_t* client
    int acks
    int32_t timeout_ms
    const uint8_t* place
    Py_ssize_t place_size
    int32_t index
    Py_ssize_t begin
    Py_ssize_t end


cdef class _Name:
    """The id of a request that is served at once, for the lines that are logged meanwhile."""

    cdef object _callers
    cdef object _correlation_id

    def __init__(self, callers, correlation_id):
        self._callers = callers
        self._correlation_id = correlation_id

    def request_id(self):
        return f"{self._callers.client_id}/{self._correlation_id}"


cdef bint _read(const uint8_t* data, Py_ssize_t received, Single* single) noexcept nogil:
    """Read the first request of the bytes; False if it is another one, or not complete."""
    cdef Py_ssize_t position = LENGTH_BYTES + FIXED_HEADER
    if received < position or int32(data) > received - LENGTH_BYTES or int16(data + 4) != _PRODUCE:
        return False
    single.size = int32(data)
    received = single.size + LENGTH_BYTES
    if received < position:
        return False
    single.version = int16(data + 6)
    single.correlation_id = int32(data + 8)
    single.client_size = int16(data + 12)
    single.client = data + position
    if single.version < _FIRST or single.version > _LAST:
        return False
    if single.client_size > 0:
        position += single.client_size
    if single.version < _FLEXIBLE:
        if position >= received or not _read_plain(data, position, received, single):
            return False
    elif position >= received or data[position] or not _read_compact(data, position + 1, received, single):
        return False
    if single.end - single.begin < _HEADER_SIZE or single.end - single.begin > _MAX_BYTES:
        return False
    data += single.begin
    return data[MAGIC_POSITION] == MAGIC and not data[ATTRIBUTES_POSITION] & COMPRESSED_OR_TRANSACTIONAL


cdef bint _read_plain(const uint8_t* data, Py_ssize_t position, Py_ssize_t end, Single* single) noexcept nogil:
    cdef Py_ssize_t length
    if end - position <= 26:
        return False
    single.acks = int16(data + position + 2)
    single.timeout_ms = int32(data + position + 4)
    length = int16(data + position + 12)
    if int16(data + position) != -1 or int32(data + position + 8) != 1 or length <= 0:
        return False
    position += 14
    if position + length + 12 > end:
        return False
    single.place = data + position
    single.place_size = length
    position += length
    single.index = int32(data + position + 4)
    single.begin, single.end = position + 12, end
    return int32(data + position) == 1 and int32(data + position + 8) == end - position - 12 > 0


cdef bint _read_compact(const uint8_t* data, Py_ssize_t position, Py_ssize_t end, Single* single) noexcept nogil:
    cdef Py_ssize_t length = ID_BYTES
    cdef uint32_t size
    cdef int shift = 0
    if end - position < 32:
        return False
    single.acks = int16(data + position + 1)
    single.timeout_ms = int32(data + position + 3)
    if data[position] or data[position + 7] != 2:
        return False
    position += 8
    if single.version < _WITH_IDS:
        length = data[position] - 1
        position += 1
    if length <= 0 or length >= 0x7F or position + length + 10 > end:
        return False
    single.place = data + position
    single.place_size = length
    position += length
    single.index = int32(data + position + 1)
    if data[position] != 2:
        return False
    position += 5
    size = 0
    while True:
        size |= <uint32_t>(data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
        shift += 7
        if shift > 14:
            return False
    if size < 1 or position + size - 1 + 3 != end:
        return False
    single.begin = position
    single.end = position + size - 1
    return not (data[single.end] or data[single.end + 1] or data[single.end + 2])


cdef bytes _response(Single* single, int64_t base_offset, int64_t time_ms, int64_t start_offset):
    """Return the response to an appended batch, with the frame's length and the header."""
    cdef uint8_t short_memory[MOST_ANSWER + 128]
    cdef bytes long_memory = None
    cdef uint8_t* begin = short_memory
    cdef uint8_t* target
    if single.place_size > 128:
        long_memory = PyBytes_FromStringAndSize(NULL, MOST_ANSWER + single.place_size)
        begin = <uint8_t*>PyBytes_AS_STRING(long_memory)
    target = put32(begin + LENGTH_BYTES, <uint32_t>single.correlation_id)
    if single.version >= _FLEXIBLE:
        target[0], target[1] = 0, 2
        target += 2
        if single.version < _WITH_IDS:
            target[0] = <uint8_t>(single.place_size + 1)
            target += 1
    else:
        target = put16(put32(target, 1), <uint16_t>single.place_size)
    memcpy(target, single.place, single.place_size)
    target += single.place_size
    if single.version >= _FLEXIBLE:
        target[0] = 2
        target += 1
    else:
        target = put32(target, 1)
    target = put16(put32(target, <uint32_t>single.index), 0)
    target = put64(put64(target, <uint64_t>base_offset), <uint64_t>time_ms)
    if single.version >= FIRST_WITH_START_OFFSET:
        target = put64(target, <uint64_t>start_offset)
    if single.version >= _FLEXIBLE:
        # No errors of records, no text, and no tagged fields of partition and topic.
        target[0], target[1], target[2], target[3] = 1, 0, 0, 0
        target = put32(target + 4, 0)
        target[0] = 0
        target += 1
    else:
        if single.version >= FIRST_WITH_MESSAGES:
            target = put16(put32(target, 0), 0xFFFF)
        target = put32(target, 0)
    put32(begin, <uint32_t>(target - begin - LENGTH_BYTES))
    return PyBytes_FromStringAndSize(<char*>begin, target - begin)


cdef inline Py_ssize_t _head_size(Single* single) noexcept:
    """Return the size of a response's length and header."""
    return LENGTH_BYTES + 4 + (single.version >= _FLEXIBLE)


cdef inline bint _is_replicated(partition, int64_t required_offset) except -1:
    """Return ``Partition.is_replicated``, mostly without calling it."""
    if <int64_t>partition.state.role.high_watermark < required_offset:
        return False
    return partition.is_replicated(required_offset)


cdef class SingleRequests:
    """The short way of one connection."""

    cdef object _connection, _transport, _outbox, _loop, _served
    cdef KnownCallers _callers
    cdef FollowerPolls _polls
    cdef object _context, _guard, _requests, _times, _pipeline
    cdef object _view
    cdef const uint8_t* _data
    cdef Py_ssize_t _max_bytes
    # The requests that wait for replicas.
    cdef set _waiting
    # The result of the last append, and its error.
    cdef object _info, _error
    cdef AnswerCounts _counts
    cdef LastingTimer _timer

    def __init__(self, connection, served, transport, outbox, callers, session):
        self._connection = connection
        self._transport = transport
        self._outbox = outbox
        self._callers = KnownCallers.__new__(KnownCallers, callers, session)
        self._served = served
        self._context = served.node.context
        self._guard = served.node.guard
        self._requests = served.requests
        self._times = served.times.of[_PRODUCE]
        # The view keeps the buffer where it is.
        self._view = memoryview(served.scratch)
        self._data = <const uint8_t*>PyByteArray_AS_STRING(served.scratch)
        self._max_bytes = served.limits.request_max_bytes
        self._loop = connection.loop
        self._pipeline = connection.pipeline
        self._waiting = set()
        self._counts = AnswerCounts.__new__(AnswerCounts, connection, outbox, self._times, _PRODUCE)
        self._timer = LastingTimer.__new__(LastingTimer, self._loop, self._time_out)

    def serve(self, Py_ssize_t received, int64_t received_ns):
        """Serve the first requests of the connection's buffer, and return the size of those that are done.

        The buffer has ``received`` bytes, the last of which arrived at ``received_ns``. At most the requests in progress
        keep the next one from beginning. The other requests must take the way of all others; nothing has changed for
        them.

        Raises:
            CloseConnection: The connection is closed, see :class:`~tidelog_node.kafka.apis.produce.ProduceApi`.
        """
        cdef Single single
        cdef Answered answered[MOST_REQUESTS]
        cdef Py_ssize_t done = 0, begin, count = 0
        cdef int64_t now_ns
        cdef bint is_complete
        cdef list responses = []
        cdef HeldProduce held
        if self._times.traces is not None or self._context.quotas.is_enabled:
            return 0
        if received > 6 and int16(self._data + LENGTH_BYTES) == _FETCH:
            if self._polls is None:
                self._polls = FollowerPolls.__new__(
                    FollowerPolls, self._connection, self._served, self._transport, self._outbox, self._callers
                )
            return self._polls.serve(self._data, received, received_ns)
        now_ns = perf_counter_ns()
        try:
            while count < MOST_REQUESTS and _read(self._data + done, received - done, &single):
                if self._pipeline and not self._pipeline.may_begin(overlaps=True):
                    break
                caller = None
                if single.size <= self._max_bytes and -1 <= single.acks <= 1:
                    caller = self._callers.of(_PRODUCE, single.version, single.client, single.client_size)
                partition = None if caller is None else self._partition_of(&single, caller)
                if partition is None:
                    break
                begin, done = done, done + single.size + LENGTH_BYTES
                is_complete = self._append(&single, partition, begin)
                if is_complete and not self._pipeline:
                    answered[count].correlation_id = single.correlation_id
                    answered[count].begun_ns = now_ns
                    now_ns = perf_counter_ns()
                    answered[count].answered_ns = now_ns
                    answered[count].size = 0
                    if single.acks:
                        response = _response(&single, self._info[0], self._info[3], partition.log.log_start_offset)
                        answered[count].size = PyBytes_GET_SIZE(response) - _head_size(&single)
                        responses.append(response)
                    count += 1
                    continue
                self._send_all(responses, answered, &count, received_ns)
                held = HeldProduce.__new__(HeldProduce)
                held.begin(self, &single, caller, partition, self._info, received_ns, now_ns)
                self._connection.hold(held)
                if is_complete:
                    held.complete()
                elif self._error is None:
                    self._waiting.add(held)
                    self._timer.watch(held.deadline)
                    held.wait()
                else:
                    held.answer_error(self._error)
                now_ns = perf_counter_ns()
        finally:
            self._info = self._error = None
            self._send_all(responses, answered, &count, received_ns)
        return done

    def close(self):
        """Stop the timers, when the connection is lost."""
        self._timer.stop()
        if self._polls is not None:
            self._polls.close()

    cdef object _partition_of(self, Single* single, caller):
        """Return the partition of a request, or None if the request must take the way of all others."""
        topic = self._topic(single)
        if not topic or not self._requests.has_room_to_produce(single.size):
            return None
        if self._guard is not None and not self._guard.access("PRODUCE", caller).remembers(WRITE_TOPIC, topic):
            return None
        return partition_of_single(self._context, topic, single.index)

    cdef object _topic(self, Single* single):
        """Return the topic's name, or None if it is not known or no UTF-8."""
        if single.version >= _WITH_IDS:
            place = PyBytes_FromStringAndSize(<char*>single.place, single.place_size)
            return self._context.metadata.topic_name(place)
        try:
            return PyUnicode_DecodeUTF8(<char*>single.place, single.place_size, NULL)
        except UnicodeDecodeError:
            return None

    cdef bint _append(self, Single* single, partition, Py_ssize_t begin) except -1:
        """Append the batch. Return False if the request waits for replicas, or has failed with ``_error``."""
        cdef bint is_complete = False
        self._info = self._error = None
        token = begin_request(_Name(self._callers.callers, single.correlation_id))
        try:
            info = partition.append(self._view[begin + single.begin : begin + single.end], single.acks == -1)
            self._info = info
            is_complete = single.acks != -1 or _is_replicated(partition, <int64_t>info[1] + 1)
        except Exception as cause:
            self._error = cause
        finally:
            end_request(token)
        return is_complete

    cdef int _send_all(self, list responses, Answered* answered, Py_ssize_t* count, int64_t received_ns) except -1:
        """Send the answers to requests that need not wait, and count them."""
        cdef Py_ssize_t index, found = count[0]
        cdef int64_t now_ns
        cdef Answered* each
        count[0] = 0
        if not found:
            return 0
        if responses:
            self._transport.write(responses[0] if len(responses) == 1 else b"".join(responses))
            responses.clear()
        now_ns = perf_counter_ns()
        for index in range(found):
            each = &answered[index]
            self._counts.add(each, received_ns, each.answered_ns - each.begun_ns, now_ns)
        return 0

    def _time_out(self):
        cdef HeldProduce held
        cdef double now = self._loop.time()
        for held in list(self._waiting):
            if held.deadline <= now:
                held.time_out()
            else:
                self._timer.watch(held.deadline)


@cython.final
cdef class HeldProduce:
    """A request whose batch waits for replicas: the connection's exchange, see ``BegunRequest``, and its work."""

    cdef readonly object correlation_id, overlaps, has_tags, usage, memory
    cdef public object answer, is_answered, size, answered_ns, local_ns
    cdef double deadline
    cdef SingleRequests _way
    cdef Single _single
    cdef bytes _place
    cdef object _caller, _partition, _info, _log_start_offset
    cdef int64_t _received_ns, _begun_ns
    cdef bint _is_taken, _waits

    cdef int begin(
        self, SingleRequests way, Single* single, caller, partition, info, int64_t received_ns, int64_t begun_ns
    ) except -1:
        self._way = way
        self._single = single[0]
        # The buffer is another request's from now on.
        self._place = PyBytes_FromStringAndSize(<char*>single.place, single.place_size)
        self._single.place = <const uint8_t*>PyBytes_AS_STRING(self._place)
        self._caller, self._partition, self._info = caller, partition, info
        self._log_start_offset = partition.log.log_start_offset
        self._received_ns, self._begun_ns = received_ns, begun_ns
        self.correlation_id = single.correlation_id
        self.overlaps = True
        self.has_tags = single.version >= _FLEXIBLE
        self.is_answered = False
        self.size = 0
        self.deadline = way._loop.time() + max(0, single.timeout_ms) / 1000.0
        way._requests.take_to_produce(single.size)
        self._is_taken = True
        self.answered_ns = perf_counter_ns()
        self.local_ns = self.answered_ns - begun_ns
        return 0

    cdef int wait(self) except -1:
        self._waits = True
        self._partition.waiters.producers.put(self._info[1] + 1, self)
        return 0

    cdef int complete(self) except -1:
        """Answer when it is the request's turn; the append is complete."""
        body = None
        if self._single.acks:
            response = _response(&self._single, self._info[0], self._info[3], self._log_start_offset)
            body = [response[_head_size(&self._single):]]
        self._way._connection.answer_held(self, body)
        return 0

    cdef int answer_error(self, error) except -1:
        """Answer with the error, when the change that caused it is complete."""
        way = self._way
        cdef Single* asked = &self._single
        single = SingleBatch(asked.acks, asked.timeout_ms, self._place, asked.index, memoryview(b""))
        token = begin_request(self)
        try:
            outcome = single_outcome(way._context, self._partition, self._info, error)
            way._connection.answer_held(self, answer_single(way._context, self._caller, single, outcome))
        finally:
            end_request(token)
        return 0

    cdef int time_out(self) except -1:
        self._stop_waiting()
        self.answer_error(self._partition.timed_out(self._info[1] + 1, self._single.timeout_ms))
        return 0

    @property
    def work(self):
        """The object whose ``cancel`` ends the wait."""
        return self

    def cancel(self):
        """Stop waiting, because the connection is lost. The batch stays."""
        self._stop_waiting()
        self.release()

    def release(self):
        """Release the memory of the request."""
        if self._is_taken:
            self._is_taken = False
            self._way._requests.give_back_produced(self._single.size)

    def end(self, int64_t now_ns):
        """Count the request, whose response the kernel has."""
        self._way._connection.note_answered(
            _PRODUCE, self.correlation_id, 0, self._received_ns, self._begun_ns, self.local_ns, self.answered_ns, now_ns
        )

    def request_id(self):
        """Return the client id and the correlation id."""
        return f"{self._way._callers.callers.client_id}/{self.correlation_id}"

    cdef int _stop_waiting(self) except -1:
        self._waits = False
        self._way._waiting.discard(self)
        return 0

    @property
    def is_settled(self):
        """True if it waits no more for the replicas."""
        return not self._waits

    def settle(self, value):
        """Answer, since the replicas have the batch."""
        self._stop_waiting()
        self._succeed()

    def fail(self, error):
        """Answer with the error, when the change that caused it is complete."""
        self._stop_waiting()
        self._way._loop.call_soon(self._fail, error)

    def _fail(self, error):
        self.answer_error(error)

    cdef int _succeed(self) except -1:
        cdef bytes response
        cdef Answered answered
        way = self._way
        self.answered_ns = perf_counter_ns()
        response = _response(&self._single, self._info[0], self._info[3], self._log_start_offset)
        if way._connection.release_held(self):
            self.release()
            answered.correlation_id = self._single.correlation_id
            answered.size = PyBytes_GET_SIZE(response) - _head_size(&self._single)
            answered.begun_ns, answered.answered_ns = self._begun_ns, self.answered_ns
            way._transport.write(response)
            way._counts.add(&answered, self._received_ns, self.local_ns, perf_counter_ns())
        else:
            way._connection.answer_held(self, [response[_head_size(&self._single):]])
        return 0
