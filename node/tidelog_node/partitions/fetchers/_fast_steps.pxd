"""The short way of a fetcher for compiled transports."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef enum:
    # The most partitions of an answer or a request of the short way.
    MOST_PARTITIONS = 16


cdef struct AnsweredPartition:
    # The answer for a partition, without an error. Its records are the received bytes from `begin` to `end`.
    const uint8_t* topic_id
    int32_t index
    int64_t high_watermark
    int64_t log_start_offset
    Py_ssize_t begin
    Py_ssize_t end


cdef struct Answer:
    int32_t session_id
    int count
    AnsweredPartition partitions[MOST_PARTITIONS]


cdef struct AskedPartition:
    const uint8_t* topic_id
    int32_t index
    int32_t leader_epoch
    int64_t offset
    int32_t last_fetched_epoch
    int64_t log_start_offset
    int32_t max_bytes


cdef struct Asked:
    # A request of a session. The topics' ids are valid until the next answer.
    int32_t session_id
    int32_t epoch
    int count
    AskedPartition partitions[MOST_PARTITIONS]


cdef class FetchSteps:
    cdef object _fetcher, _transport, _session, _clock, _settings
    cdef object _address, _replica
    # The key of the last answered partition.
    cdef tuple _key
    # The keys of the last request.
    cdef dict _named
    cdef int64_t _now_ms

    cdef bint take(self, const Answer* answer, buffer) except -1
    cdef bint prepare(self, Asked* asked) except -1
    cdef list _items(self, const Answer* answer)
    cdef tuple _key_of(self, const AnsweredPartition* answered)
    cdef int _apply(self, item, const AnsweredPartition* answered, buffer) except -1
    cdef int _ask_for(self, fetched, partition, key) except -1
    cdef bint _name(self, Asked* asked, dict changed) except -1
