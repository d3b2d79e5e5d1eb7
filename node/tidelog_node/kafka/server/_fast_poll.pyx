# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of a follower's poll: an incremental Fetch that names one partition, with its last offset.

:class:`FollowerPolls` reads the request, acknowledges the offset, and answers with the records behind it, now or as soon
as there are some. It does what :mod:`tidelog_node.handlers.follower_poll` does, which takes over a waiting poll that
needs more than its records: a deadline, another partition, an error, a limit. All other requests take the way of
:class:`~tidelog_node.kafka.server.connection.Connection`; nothing has changed for them.

Safety: the request has one size, with which the received bytes are compared before they are read.
"""

from time import perf_counter_ns

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from tidelog_foundation._big_endian cimport int16, int32, int64, put16, put32, put64
from tidelog_foundation.records._bytes cimport put_varint, varint_size
from tidelog_node.kafka.server._fast_parts cimport Answered, AnswerCounts, KnownCallers, LastingTimer
from tidelog_node.partitions._fast_append cimport advance

from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.fetching import FetchRequest, SessionStep
from tidelog_node.handlers.follower_poll import BegunPoll
from tidelog_node.handlers.response_budget import wait_for_nothing
from tidelog_node.kafka.apis.fetch import resume_poll
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.fetch_parts import VERSIONS, WITH_REPLICA_STATE
from tidelog_node.partitions import ReadResult
from tidelog_node.replication import LeaderState
from tidelog_node.replication.fetch_session import FetchSpec, next_epoch
from tidelog_node.replication.isr import CommittedIsr

cdef enum:
    LENGTH_BYTES = 4
    FIXED_HEADER = 10
    ID_BYTES = 16
    BODY_BYTES = 91
    # The response up to the records' length, and the tagged fields behind the records.
    HEAD_BYTES = 63
    MOST_VARINT = 5
    TAGS = 3
    # The length and the header of a response.
    FRAME_BYTES = 9
    # Longer records are not copied.
    JOINED_BYTES = 4096

cdef int _FETCH = ApiKey.FETCH
cdef int _FIRST = WITH_REPLICA_STATE
cdef int _LAST = VERSIONS[1]
cdef object _LEADER = LeaderState
cdef object _COMMITTED = CommittedIsr
cdef object _CLUSTER_ACTION = AclOperation.CLUSTER_ACTION


cdef struct Asked:
    # The fields of a request, and its size with the frame's length.
    Py_ssize_t size
    int version
    int32_t correlation_id
    Py_ssize_t client_size
    const uint8_t* client
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t session_id
    int32_t session_epoch
    const uint8_t* topic_id
    int32_t index
    int32_t leader_epoch
    int64_t offset
    int32_t last_epoch
    int64_t log_start
    int32_t partition_max_bytes
    int32_t replica_id
    int64_t replica_epoch


cdef bint _read(const uint8_t* data, Py_ssize_t received, Asked* asked) noexcept nogil:
    """Read the request that the bytes begin with; False if it has another form, or is not complete."""
    cdef Py_ssize_t body = LENGTH_BYTES + FIXED_HEADER
    if received < body:
        return False
    asked.size = int32(data) + LENGTH_BYTES
    asked.version = int16(data + 6)
    asked.correlation_id = int32(data + 8)
    asked.client_size = int16(data + 12)
    asked.client = data + body
    body += 1 + (asked.client_size if asked.client_size > 0 else 0)
    if received < asked.size or asked.size != body + BODY_BYTES or data[body - 1]:
        return False
    if asked.version < _FIRST or asked.version > _LAST:
        return False
    data += body
    asked.max_wait_ms = int32(data)
    asked.min_bytes = int32(data + 4)
    asked.max_bytes = int32(data + 8)
    asked.session_id = int32(data + 13)
    asked.session_epoch = int32(data + 17)
    asked.topic_id = data + 22
    asked.index = int32(data + 39)
    asked.leader_epoch = int32(data + 43)
    asked.offset = int64(data + 47)
    asked.last_epoch = int32(data + 55)
    asked.log_start = int64(data + 59)
    asked.partition_max_bytes = int32(data + 67)
    asked.replica_id = int32(data + 78)
    asked.replica_epoch = int64(data + 82)
    return (
        # All committed and uncommitted records, one topic with one partition without tagged fields, no forgotten
        # topics, no rack, and the replica as the only tagged field.
        data[12] == 0 and data[21] == 2 and data[38] == 2 and data[71] == 0 and data[72] == 0
        and data[73] == 1 and data[74] == 1 and data[75] == 1 and data[76] == 1 and data[77] == 13 and data[90] == 0
        and asked.max_wait_ms > 0 and asked.min_bytes > 0 and asked.session_epoch > 0 and asked.replica_id >= 0
        and asked.leader_epoch >= 0 and asked.last_epoch >= 0
    )


cdef class FollowerPolls:
    """The polls of one connection, one at a time."""

    def __cinit__(self, connection, served, transport, outbox, KnownCallers callers):
        self.connection = connection
        self.transport = transport
        self.loop = connection.loop
        self.node = served.node
        self.context = served.node.context
        self.times = served.times.of[_FETCH]
        self.callers = callers
        self.counts = AnswerCounts.__new__(AnswerCounts, connection, outbox, self.times, _FETCH)
        self.timer = LastingTimer.__new__(LastingTimer, self.loop, self._time_out)

    cdef Py_ssize_t serve(self, const uint8_t* data, Py_ssize_t received, int64_t received_ns) except -1:
        """Serve the request that the bytes begin with, and return its size; 0 if it must take the way of all others.

        Raise CloseConnection as the way of all others does.
        """
        cdef Asked asked
        cdef HeldPoll poll
        cdef int64_t begun_ns
        if not _read(data, received, &asked):
            return 0
        if self.connection.pipeline or self.times.traces is not None:
            return 0
        caller = self.callers.of(_FETCH, asked.version, asked.client, asked.client_size)
        if caller is None:
            return 0
        begun_ns = perf_counter_ns()
        poll = HeldPoll.__new__(HeldPoll)
        if not poll.find(self, &asked, caller) or not poll.is_permitted():
            return 0
        poll.begin(received_ns, begun_ns)
        return asked.size

    cdef int close(self) except -1:
        """Stop the timer, when the connection is lost."""
        return self.timer.stop()

    cdef int send(self, response) except -1:
        """Send a response: bytes, or a list of chunks."""
        if isinstance(response, list):
            self.transport.writelines(response)
        else:
            self.transport.write(response)
        return 0

    def _time_out(self):
        cdef HeldPoll held = self.held
        if held is None:
            return
        if self.loop.time() < held.deadline:
            self.timer.watch(held.deadline)
        else:
            held.hand_over(True)


@cython.final
cdef class HeldPoll:
    """One poll; while it waits for records, the connection's exchange, see ``BegunRequest``, and its work."""

    cdef readonly object correlation_id, overlaps, has_tags, usage, memory
    cdef public object answer, is_answered, size, answered_ns, local_ns
    cdef double deadline
    cdef FollowerPolls _polls
    cdef object _caller, _session, _entry, _partition, _leader, _key, _spec, _replica, _turn, _wake_up, _work
    cdef object _read, _found, _access
    cdef int64_t _offset, _log_start, _received_ns, _begun_ns
    cdef int32_t _session_epoch, _max_wait_ms, _max_bytes, _last_epoch
    cdef Py_ssize_t _min_bytes, _most

    cdef bint find(self, FollowerPolls polls, Asked* asked, caller) except -1:
        """Look for the session and the partition; False if the request must take the way of all others."""
        context = polls.context
        session = context.fetch_sessions.session_of(asked.session_id)
        if session is None or session.follower is None or context.replica_selector.is_rack_aware:
            return False
        state = session.state
        replica = state.replica
        key = PyBytes_FromStringAndSize(<char*>asked.topic_id, ID_BYTES), asked.index
        entry = state.partitions.get(key)
        if entry is None or entry.name is None or state.epoch != asked.session_epoch or not state.uses_topic_ids:
            return False
        if replica[0] != asked.replica_id or replica[1] != asked.replica_epoch or state.owner != str(caller.principal):
            return False
        partition = context.partitions.get(entry.name, asked.index)
        if partition is None or partition.throttled.leader or partition.topic_id != key[0]:
            return False
        if not session.may_poll(key, partition, asked.session_epoch):
            return False
        self._polls, self._caller, self._session, self._entry, self._partition = polls, caller, session, entry, partition
        self._key, self._replica = key, replica
        self._offset, self._log_start, self._last_epoch = asked.offset, asked.log_start, asked.last_epoch
        self._session_epoch, self._max_wait_ms, self._max_bytes = asked.session_epoch, asked.max_wait_ms, asked.max_bytes
        self._leader = partition.state.role
        if type(self._leader) is not _LEADER or self._leader.leader_epoch != asked.leader_epoch:
            return False
        if not self._is_in_sync():
            return False
        largest = context.fetch_max_bytes
        self._most = min(asked.partition_max_bytes, asked.max_bytes, largest)
        self._min_bytes = min(asked.min_bytes, asked.max_bytes, largest)
        self.correlation_id = asked.correlation_id
        self._spec = FetchSpec(
            key[0], asked.offset, asked.partition_max_bytes, asked.leader_epoch, asked.last_epoch, asked.log_start
        )
        return self._min_bytes > 0 and self._may_read() and self._read_records()

    cdef bint is_permitted(self) except -1:
        """Return whether the caller may act for the cluster."""
        guard = self._polls.node.guard
        if guard is not None:
            self._access = guard.access("FETCH", self._caller)
        return self._may_act()

    cdef bint _may_act(self) except -1:
        """Return whether the caller may read the partition now, as a node. The authorizer counts and logs a permission.

        A refusal is counted and logged where it is answered.
        """
        access = self._access
        return access is None or (access.on_cluster(_CLUSTER_ACTION, log=False) and access.on_cluster(_CLUSTER_ACTION))

    cdef bint _is_in_sync(self) except -1:
        """Return whether the follower is in the committed ISR, in its latest registration."""
        leader, replica_id = self._leader, self._replica[0]
        isr = leader.isr
        return (
            type(isr) is _COMMITTED
            and replica_id in isr.members
            and replica_id in leader.followers
            and leader.registered.get(replica_id) == self._replica[1]
        )

    cdef bint _may_read(self) except -1:
        """Return whether the follower's log is a prefix of this one that begins nowhere before it."""
        log = self._partition.log
        return (
            log.latest_epoch == self._last_epoch
            and <int64_t>log.log_start_offset <= self._offset <= <int64_t>log.log_end_offset
            and self._log_start >= <int64_t>log.log_start_offset
        )

    cdef bint _read_records(self) except -1:
        """Read the records behind the offset. False if there are fewer than asked for, or they cannot be read now."""
        cdef Py_ssize_t most
        log = self._partition.log
        room = self._polls.context.response_budget.room_for(wait_for_nothing, is_follower=True)
        most = min(self._most, room)
        if most <= 0:
            return False
        self._read = b""
        end = log.log_end_offset
        if self._offset == <int64_t>end:
            return True
        if log.is_far_behind(self._offset):  # The records may have to come from the disk.
            return False
        try:
            self._read = log.read(self._offset, most, end)
        except Exception:  # The way of all others meets it again, and answers or logs it.
            return False
        return len(self._read) >= self._min_bytes

    cdef int begin(self, int64_t received_ns, int64_t begun_ns) except -1:
        """Acknowledge the offset, and answer now or wait."""
        polls, session = self._polls, self._session
        self._received_ns, self._begun_ns = received_ns, begun_ns
        self._take_in(polls.context.clock.monotonic_ms())
        if self._read:
            self._answer_first()
            return 0
        self.overlaps = self.is_answered = False
        self.has_tags = True
        self.size = 0
        self.answered_ns = perf_counter_ns()
        self.local_ns = self.answered_ns - begun_ns
        self.deadline = polls.loop.time() + self._max_wait_ms / 1000.0
        self._wake_up = self._look_again
        self._found = self._result()
        polls.held = self
        polls.timer.watch(self.deadline)
        polls.connection.hold(self)
        session.sleep(self._turn, self._wake_up)
        return 0

    cdef int _take_in(self, now_ms) except -1:
        """Continue the session, and pass the follower's offset to the leader."""
        session, leader, partition = self._session, self._leader, self._partition
        state, lease = session.state, session.follower.lease
        state.epoch = next_epoch(self._session_epoch)
        state.last_used_ms = now_ms
        state.cached_size = len(state.partitions)
        progress = leader.followers[self._replica[0]]
        if lease is not None and progress.lease is lease:
            progress.end_lease()
        self._entry.spec = self._spec
        self._entry.must_answer = True
        state.lease.last_fetch_ms = now_ms
        self._turn = session.begin_poll(self._key)
        progress.record_fetch(
            self._offset, self._log_start, self._replica[1], leader.log_end_offset, now_ms, lease
        )
        for command in leader.advance(now_ms):
            advance(partition, leader, command.offset)
        waiters = partition.waiters
        if waiters.deletions.waiting:
            waiters.complete_deletions(leader, partition.log.log_start_offset)
        return 0

    cdef int _answer_first(self) except -1:
        """Answer with the records, in the step in which the request arrived."""
        cdef Answered answered
        polls = self._polls
        size = len(self._read)
        response = self._response(True)
        answered.correlation_id, answered.begun_ns = self.correlation_id, self._begun_ns
        answered.answered_ns = perf_counter_ns()
        answered.size = _body_size(size)
        polls.send(response)
        polls.counts.add(&answered, self._received_ns, answered.answered_ns - self._begun_ns, perf_counter_ns())
        return 0

    def _look_again(self):
        """Answer a poll that waits, if the partition has records and nothing else has changed."""
        cdef Answered answered
        if self._wake_up is None:
            return
        polls, session, partition = self._polls, self._session, self._partition
        changed = session.state.changed
        if (
            not session.is_turn_of(self._turn)
            or len(changed) != 1
            or self._key not in changed
            or session.wait_ended_epoch == self._session_epoch
            or partition.state.role is not self._leader
            or partition.throttled.leader
            or polls.context.partitions.get(self._entry.name, self._key[1]) is not partition
            or partition.topic_id != self._key[0]
            or not self._is_in_sync()
            or not self._may_read()
            or not self._read_records()
            or not self._read
            or not self._may_act()
        ):
            self.hand_over(False)
            return
        session.take(self._key)
        self._stop()
        self.answered_ns = perf_counter_ns()
        if polls.connection.release_held(self):
            answered.correlation_id, answered.begun_ns = self.correlation_id, self._begun_ns
            answered.answered_ns, answered.size = self.answered_ns, _body_size(len(self._read))
            response = self._response(True)
            polls.send(response)
            polls.counts.add(&answered, self._received_ns, self.local_ns, perf_counter_ns())
        else:
            polls.connection.answer_held(self, self._response(False))

    cdef int hand_over(self, bint is_over) except -1:
        """Let the way of all others continue the poll, whose deadline has passed if it ``is_over``."""
        session, polls = self._session, self._polls
        session.forget_sleeper(self._wake_up)
        self._stop()
        request = FetchRequest(
            {self._key: self._spec},
            self._max_bytes,
            self._max_wait_ms,
            self._min_bytes,
            self._replica,
            session=SessionStep(session.state.id, self._session_epoch),
            uses_topic_ids=True,
            may_read_followers=True,
            owner=session.state.owner,
            access=self._access,
        )
        left_s = max(0.0, self.deadline - polls.loop.time())
        begun = BegunPoll(request, session, self._entry, self._partition, self._key, self._turn, self._found)
        self._work = resume_poll(polls.node, self._caller, begun, left_s, is_over=is_over)
        self._work.then(self._settled)
        return 0

    def _settled(self, work):
        self._polls.connection.settle(self, work)

    cdef object _result(self):
        """Return the result of the first look, which found no records."""
        log, high_watermark = self._partition.log, self._partition.state.role.high_watermark
        has_all = self._offset == <int64_t>high_watermark == <int64_t>log.log_end_offset
        last_stable = log.last_stable_offset(high_watermark)
        return ReadResult(b"", high_watermark, last_stable, log.log_start_offset, None, None, has_all)

    cdef int _stop(self) except -1:
        self._wake_up = None
        self._polls.held = None
        return 0

    @property
    def work(self):
        """The object whose ``cancel`` ends the wait."""
        return self

    def cancel(self):
        """Stop waiting, because the connection is lost."""
        if self._wake_up is not None:
            self._session.forget_sleeper(self._wake_up)
            self._stop()
        if self._work is not None:
            self._work.cancel()

    def release(self):
        """Do nothing: a small request needs no memory."""

    def end(self, int64_t now_ns):
        """Count the request, whose response the kernel has."""
        self._polls.connection.note_answered(
            _FETCH, self.correlation_id, 0, self._received_ns, self._begun_ns, self.local_ns, self.answered_ns, now_ns
        )

    def request_id(self):
        """Return the client id and the correlation id."""
        return f"{self._polls.callers.callers.client_id}/{self.correlation_id}"

    cdef object _response(self, bint has_head):
        """Return the response, with the frame's length and the header or without, and record it in the session.

        It is bytes or a list of chunks with a head, and always a list without.
        """
        session, entry, partition, records = self._session, self._entry, self._partition, self._read
        log = partition.log
        cdef int64_t high_watermark = partition.state.role.high_watermark
        cdef int64_t log_start = log.log_start_offset
        cdef Py_ssize_t size = len(records), used
        cdef uint8_t head[FRAME_BYTES + HEAD_BYTES + MOST_VARINT]
        cdef uint8_t* target = head + FRAME_BYTES
        cdef bytes joined
        put32(put32(head, <uint32_t>(_body_size(size) + FRAME_BYTES - LENGTH_BYTES)), <uint32_t>self.correlation_id)[0] = 0
        # No throttle time, no error.
        target = put16(put32(target, 0), 0)
        target = put32(target, <uint32_t>session.state.id)
        target[0] = 2
        memcpy(target + 1, PyBytes_AS_STRING(self._key[0]), ID_BYTES)
        target[1 + ID_BYTES] = 2
        target = put16(put32(target + 2 + ID_BYTES, <uint32_t>self._key[1]), 0)
        target = put64(target, <uint64_t>high_watermark)
        target = put64(target, <uint64_t><int64_t>log.last_stable_offset(high_watermark))
        target = put64(target, <uint64_t>log_start)
        # No aborted transactions, no preferred replica.
        target[0] = 0
        target = put_varint(put32(target + 1, 0xFFFFFFFF), <uint64_t>size + 1)
        entry.tell(high_watermark, log_start)
        partition.traffic.replicated_out += size
        # The follower has not reached the log's end, so that its next poll reads on.
        session.finish(self._turn, (self._key,))
        used = target - head
        if not has_head:
            return [PyBytes_FromStringAndSize(<char*>head + FRAME_BYTES, used - FRAME_BYTES), records, b"\0\0\0"]
        if size >= JOINED_BYTES:
            return [PyBytes_FromStringAndSize(<char*>head, used), records, b"\0\0\0"]
        joined = PyBytes_FromStringAndSize(NULL, used + size + TAGS)
        target = <uint8_t*>PyBytes_AS_STRING(joined)
        memcpy(target, head, used)
        memcpy(target + used, PyBytes_AS_STRING(records), size)
        target[used + size] = target[used + size + 1] = target[used + size + 2] = 0
        return joined


cdef inline Py_ssize_t _body_size(Py_ssize_t size) noexcept nogil:
    """Return the size of a response's body with records of that size."""
    return HEAD_BYTES + varint_size(<uint64_t>size + 1) + size + TAGS
