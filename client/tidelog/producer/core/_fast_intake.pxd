"""What the compiled produce() calls without going through Python."""

from libc.stdint cimport int64_t, uint32_t

from tidelog_foundation.records._fast_encoder cimport RecordEncoder


cdef class Delivery:
    cdef readonly object on_delivery
    cdef readonly Py_ssize_t relative_offset
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly int64_t timestamp_ms
    cdef readonly double produced_ms


cdef class BatchContents:
    cdef readonly object builder
    cdef readonly list deliveries
    cdef public Py_ssize_t payload_bytes
    cdef RecordEncoder encoder


cdef class TopicLanes:
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t sticky
    cdef readonly int key_hash
    cdef readonly int64_t keyless_hash
    cdef readonly bint empty_sticks
    cdef readonly bint is_plain
    cdef readonly list open
    cdef Py_ssize_t choose(self, object key) noexcept


cdef class Intake:
    cdef public Py_ssize_t count
    cdef public Py_ssize_t payload_bytes
    cdef public Py_ssize_t unserved
    cdef readonly dict topics
    cdef Py_ssize_t batch_size
    cdef Py_ssize_t batch_num_messages
    cdef Py_ssize_t max_messages
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t message_max_bytes
    cdef bint put(
        self, object topic, Py_ssize_t partition, object key, object value, int64_t timestamp_ms, object on_delivery,
        double produced_ms
    ) except -1
