"""The short way of a fetcher for compiled transports."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct Answer:
    # An answer without an error, for the partition of `topic_id` and `index`, or for none if `topic_id` is NULL.
    int32_t session_id
    const uint8_t* topic_id
    int32_t index
    int64_t high_watermark
    int64_t log_start_offset


cdef struct Asked:
    # A request of a session, for the partition of `topic_id` and `index`, or for none if `topic_id` is NULL.
    int32_t session_id
    int32_t epoch
    const uint8_t* topic_id
    int32_t index
    int32_t leader_epoch
    int64_t offset
    int32_t last_fetched_epoch
    int64_t log_start_offset
    int32_t max_bytes


cdef class FetchSteps:
    cdef object _fetcher, _transport, _session, _clock, _settings
    cdef object _address, _replica
    # The key of the last partition.
    cdef tuple _key
    cdef int64_t _now_ms

    cdef bint take(self, const Answer* answer, records) except -1
    cdef bint prepare(self, Asked* asked) except -1
    cdef object _item(self, const Answer* answer, records)
    cdef int _apply(self, item, const Answer* answer, records) except -1
    cdef int _ask_for(self, fetched, partition) except -1
