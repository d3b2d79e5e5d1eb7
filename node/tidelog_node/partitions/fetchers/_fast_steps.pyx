# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of the most frequent polls of a fetcher: in a session, with few partitions asked and answered.

:class:`FetchSteps` applies an answer and determines the next request in the step in which the answer arrives, without the
fetcher's task. It leaves every other answer, having changed nothing, and every other request to
:class:`~tidelog_node.partitions.fetchers.leader_fetcher.LeaderFetcher`, whose outcome is the same. So do all polls where
this module is missing.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from tidelog_node.partitions._fast_replicate cimport replicate

from tidelog_foundation.fetch_session import FULL_EPOCH, MAX_EPOCH, NO_SESSION
from tidelog_node.partitions.fetchers.fetched_partitions import WantedRecords

cdef enum:
    ID_BYTES = 16
    NO_EPOCH = -1
    # The positions of WantedRecords.
    FETCHED = 0
    OFFSET = 1
    MAX_BYTES = 2
    LAST_EPOCH = 3
    LOG_START = 4

cdef int64_t _FULL = FULL_EPOCH
cdef int64_t _MAX = MAX_EPOCH
cdef int64_t _NO_SESSION = NO_SESSION
cdef object _WANTED = WantedRecords
cdef object _NEW_TUPLE = tuple.__new__


cdef class FetchSteps:
    """The short way of one fetcher over one transport; see ``SteppingTransport``."""

    def __init__(self, fetcher, transport):
        self._fetcher = fetcher
        self._transport = transport
        self._session = fetcher._session
        self._clock = fetcher._clock
        self._settings = fetcher._settings
        self._key = None
        self._named = None

    def fetch(self, address, request, timeout_s):
        """Send a request of a session and those that follow it, which go to the same address from the same replica."""
        self._address = address
        self._replica = request.replica
        return self._transport.fetch_in_steps(address, request, timeout_s, self)

    cdef bint take(self, const Answer* answer, buffer) except -1:
        """Apply the answer to the last request. Return False, having changed nothing, if the fetcher must do so."""
        fetcher, session = self._fetcher, self._session
        cdef int64_t epoch = session.epoch
        cdef int number
        cdef list items
        if epoch == _FULL or epoch >= _MAX or answer.session_id == _NO_SESSION:
            return False
        if <int64_t>session.session_id != answer.session_id or session._forgotten:
            return False
        items = self._items(answer)
        if items is None:
            return False
        self._now_ms = self._clock.monotonic_ms()
        session.epoch = epoch + 1
        fetcher._session_errors = 0
        for number in range(answer.count):
            self._apply(items[number], &answer.partitions[number], buffer)
        fetcher._failures = 0
        return True

    cdef bint prepare(self, Asked* asked) except -1:
        """Determine the next request, after :meth:`take`. Return False if the fetcher must do so."""
        fetcher, session = self._fetcher, self._session
        if fetcher._idle or fetcher._limited or fetcher._added.is_set():
            return False
        if self._now_ms >= <int64_t>fetcher._next_turn_ms:
            fetcher._recompute_some()
            if fetcher._idle or fetcher._limited:
                return False
        cdef dict changed = session._changed
        if len(changed) > MOST_PARTITIONS or not session._wanted or session._forgotten:
            return False
        if fetcher._address(fetcher.leader_id) != self._address or fetcher._identity() != self._replica:
            return False
        asked.session_id, asked.epoch = session.session_id, session.epoch
        asked.count = 0
        return self._name(asked, changed)

    cdef bint _name(self, Asked* asked, dict changed) except -1:
        """Name the changed partitions. Return False, having changed nothing, if a topic has no id."""
        cdef dict wanted = self._session._wanted
        cdef AskedPartition* each
        for key in changed:
            if not PyBytes_CheckExact(key[0]) or PyBytes_GET_SIZE(key[0]) != ID_BYTES:
                return False
            item = wanted[key]
            each = &asked.partitions[asked.count]
            each.topic_id = <const uint8_t*>PyBytes_AS_STRING(key[0])
            each.index = key[1]
            each.leader_epoch = item[FETCHED].leader_epoch
            each.offset = item[OFFSET]
            each.max_bytes = item[MAX_BYTES]
            each.last_fetched_epoch = item[LAST_EPOCH]
            each.log_start_offset = item[LOG_START]
            asked.count += 1
        sent = self._session._sent
        for key in changed:
            sent[key] = wanted[key]
        self._session._changed = {}
        # It keeps the ids where they are.
        self._named = changed
        return True

    cdef list _items(self, const Answer* answer):
        """Return what was asked of each answered partition, or None if the fetcher must apply the answer."""
        cdef list items = []
        cdef const AnsweredPartition* answered
        cdef int number
        partitions, sent = self._fetcher._partitions, self._session._sent
        for number in range(answer.count):
            answered = &answer.partitions[number]
            item = sent.get(self._key_of(answered))
            if item is None or (items and _has(items, item)):
                return None
            fetched = item[FETCHED]
            partition = fetched.partition
            if partitions.get(partition) is not fetched or partition.throttled.follower:
                return None
            if answered.begin < answered.end and partition.log._new_folder is not None:
                return None
            items.append(item)
        return items

    cdef tuple _key_of(self, const AnsweredPartition* answered):
        cdef tuple key = self._key
        if (
            key is None
            or memcmp(PyBytes_AS_STRING(key[0]), answered.topic_id, ID_BYTES) != 0
            or <int64_t>key[1] != answered.index
        ):
            key = (PyBytes_FromStringAndSize(<const char*>answered.topic_id, ID_BYTES), answered.index)
            self._key = key
        return key

    cdef int _apply(self, item, const AnsweredPartition* answered, buffer) except -1:
        fetcher, fetched = self._fetcher, item[FETCHED]
        partition, leader_epoch = fetched.partition, fetched.leader_epoch
        cdef int64_t offset = item[OFFSET], high_watermark = answered.high_watermark, end_offset
        cdef int64_t log_start_offset = answered.log_start_offset
        if fetcher._partitions.get(partition) is not fetched:
            # The partition before it has changed that.
            return 0
        records = b""
        if answered.begin < answered.end:
            records = memoryview(buffer)[answered.begin : answered.end]
        try:
            if not replicate(partition, leader_epoch, offset, records, high_watermark, log_start_offset):
                partition.replicate(leader_epoch, offset, records, high_watermark, log_start_offset)
            fetched.backoff_ms = 0
            fetched.failing_with = None
            end_offset = partition.log._local.log_end_offset
            fetched.is_in_sync = end_offset >= high_watermark
            if high_watermark > end_offset > offset:
                fetcher._read_ahead_of(fetched)
        except Exception as error:
            fetcher._note_failure(fetched, error)
        if fetcher._partitions.get(partition) is fetched:
            self._ask_for(fetched, partition, self._key_of(answered))
        return 0

    cdef int _ask_for(self, fetched, partition, key) except -1:
        """Put a partition into the next request; see ``LeaderFetcher._ask_for``."""
        fetcher, session, log = self._fetcher, self._session, partition.log
        cdef int64_t pause_until_ms = fetched.pause_until_ms
        cdef int64_t end_offset, log_start_offset
        if pause_until_ms > self._now_ms or fetcher._idle or fetcher._limited or partition in fetcher._catch_up:
            fetcher._ask_for(fetched)
            return 0
        entries = log._epochs._entries
        last_epoch = entries[len(entries) - 1].epoch if entries else NO_EPOCH
        end_offset, log_start_offset = log._local.log_end_offset, log._log_start_offset
        max_bytes = self._settings.partition_max_bytes
        cdef dict wanted = session._wanted
        item = wanted.get(key)
        if (
            item is None
            or item[FETCHED] is not fetched
            or <int64_t>item[OFFSET] != end_offset
            or item[MAX_BYTES] != max_bytes
            or item[LAST_EPOCH] != last_epoch
            or <int64_t>item[LOG_START] != log_start_offset
        ):
            wanted[key] = _NEW_TUPLE(_WANTED, (fetched, end_offset, max_bytes, last_epoch, log_start_offset))
            session.name(key)
        return 0


cdef inline bint _has(list items, item):
    """Return whether an item is among others."""
    for other in items:
        if other is item:
            return True
    return False
