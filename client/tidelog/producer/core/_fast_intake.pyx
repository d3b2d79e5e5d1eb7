# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog.producer.core._pure_intake`: the same classes, records and batches.

It accepts fewer records: a text topic, contents of bytes or None, and batches of the compiled encoder. All others go
through the accumulator's slow path.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint32_t

cimport cython

from tidelog.producer.core._hashes cimport hash_key
from tidelog_foundation.records._fast_encoder cimport RecordEncoder

from tidelog_foundation.records.header import HEADER_SIZE

RECORD_OVERHEAD = 36
cdef Py_ssize_t _OVERHEAD = RECORD_OVERHEAD
cdef Py_ssize_t _HEADER_SIZE = HEADER_SIZE
cdef tuple _NO_HEADERS = ()


@cython.final
@cython.freelist(256)
@cython.no_gc
cdef class Delivery:
    """The data for one record's delivery report; exists only for records with a callback.

    The garbage collector skips these objects, of which there are many. Their owner, the producer's sender, lives until
    they are settled and freed.
    """

    def __init__(self, on_delivery, relative_offset, key, value, headers, timestamp_ms, produced_ms):
        self.on_delivery = on_delivery
        self.relative_offset = relative_offset
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.produced_ms = produced_ms


cdef inline Delivery _delivery(
    object on_delivery, Py_ssize_t relative_offset, object key, object value, int64_t timestamp_ms, double produced_ms
):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery.on_delivery = on_delivery
    delivery.relative_offset = relative_offset
    delivery.key = key
    delivery.value = value
    delivery.headers = _NO_HEADERS
    delivery.timestamp_ms = timestamp_ms
    delivery.produced_ms = produced_ms
    return delivery


@cython.final
cdef class BatchContents:
    """The records of a batch: its builder, its delivery reports, and the bytes of keys, values and headers."""

    def __init__(self, builder):
        encoder = builder._encoder
        self.builder = builder
        self.encoder = encoder if isinstance(encoder, RecordEncoder) else None
        self.deliveries = []
        self.payload_bytes = 0


cdef class TopicLanes:
    """A topic's open batches by partition, and its choice of partitions; see the twin."""

    def __init__(self, key_hash, keyless_hash, empty_sticks, is_plain):
        self.count = 0
        self.sticky = -1
        self.key_hash = key_hash
        self.keyless_hash = keyless_hash
        self.empty_sticks = empty_sticks
        self.is_plain = is_plain
        self.open = []

    def widen(self, count):
        """Set the number of partitions, which never shrinks."""
        self.open += [None] * (count - len(self.open))
        self.count = len(self.open)

    def partition_of(self, key):
        """Return the partition of a key, or -1 if the partitioner must choose."""
        return self.choose(key)

    cdef Py_ssize_t choose(self, object key) noexcept:
        if not self.is_plain or self.count <= 0:
            return -1
        if self.key_hash == 0:
            return self.sticky
        if key is None:
            return self.sticky if self.keyless_hash < 0 else self.keyless_hash % self.count
        if not PyBytes_CheckExact(key):
            return -1
        if self.empty_sticks and PyBytes_GET_SIZE(key) == 0:
            return self.sticky
        return hash_key(
            self.key_hash, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        ) % <uint32_t>self.count


@cython.final
cdef class Intake:
    """An accumulator's counters and its topics' open batches; see the twin."""

    def __init__(self, *, batch_size, batch_num_messages, max_messages, max_bytes, message_max_bytes):
        self.count = self.payload_bytes = self.unserved = 0
        self.topics = {}
        self.batch_size = batch_size
        self.batch_num_messages = batch_num_messages
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.message_max_bytes = message_max_bytes

    def append(self, topic, partition, key, value, timestamp_ms, on_delivery, produced_ms):
        """Append a record without headers to its partition's open batch; return False, without a
        change, if that fails.
        """
        if type(partition) is not int or type(timestamp_ms) is not int:
            return False
        try:
            return self.put(topic, partition, key, value, timestamp_ms, on_delivery, produced_ms)
        except OverflowError:
            return False

    cdef bint put(
        self, object topic, Py_ssize_t partition, object key, object value, int64_t timestamp_ms, object on_delivery,
        double produced_ms
    ) except -1:
        cdef PyObject* found
        cdef TopicLanes lanes
        cdef BatchContents contents
        cdef RecordEncoder encoder
        cdef Py_ssize_t size = 0, relative_offset
        cdef object slot
        if not PyUnicode_CheckExact(topic) or timestamp_ms < -1:
            return False
        if key is not None:
            if not PyBytes_CheckExact(key):
                return False
            size += PyBytes_GET_SIZE(key)
        if value is not None:
            if not PyBytes_CheckExact(value):
                return False
            size += PyBytes_GET_SIZE(value)
        if (
            size + _OVERHEAD > self.message_max_bytes
            or self.count + self.unserved >= self.max_messages
            or self.payload_bytes + size > self.max_bytes
        ):
            return False
        found = PyDict_GetItem(self.topics, topic)
        if found == NULL or not isinstance(<object>found, TopicLanes):
            return False
        lanes = <TopicLanes>found
        if partition == -1:
            partition = lanes.choose(key)
        if partition < 0 or partition >= lanes.count:
            return False
        slot = <object>PyList_GET_ITEM(lanes.open, partition)
        if not isinstance(slot, BatchContents):
            return False
        contents = <BatchContents>slot
        encoder = contents.encoder
        if (
            encoder is None
            or encoder.count >= self.batch_num_messages
            or encoder.memory.used + size + _OVERHEAD > self.batch_size
        ):
            return False
        relative_offset = encoder.count
        if on_delivery is not None:
            contents.deliveries.append(
                _delivery(on_delivery, relative_offset, key, value, timestamp_ms, produced_ms)
            )
        try:
            encoder.put(key, value, None, timestamp_ms)
        except:
            if on_delivery is not None:
                contents.deliveries.pop()
            raise
        contents.payload_bytes += size
        self.payload_bytes += size
        self.count += 1
        return True
