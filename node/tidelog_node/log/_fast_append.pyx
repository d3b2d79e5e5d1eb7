# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled way of the most frequent appends: a producer's batch of plain records, and batches that a follower copies.

Both functions do in one call what :class:`~tidelog_node.log.appender.Appender` does in many. They return None, having
changed nothing, for an append that needs more than a write at the end of the active segment and for every invalid one;
the appender then repeats the checks. So do all appends where this module is missing.

Safety: a header's 61 bytes are compared with the remaining size before they are read, and the walk checks the bounds of
each record.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from tidelog_foundation._big_endian cimport put32, put64
from tidelog_foundation.records._fast_scan cimport is_unchanged
from tidelog_foundation.records._fast_walk cimport Block, Walk
from tidelog_foundation.records._header cimport CONTROL_MASK, HEADER_SIZE, Header, batch_size, next_offset, read_header

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import parse_header
from tidelog_node.log.append_rules import NO_APPEND_TIME, AppendInfo
from tidelog_node.log.disk.files import OperatingSystemFiles
from tidelog_node.log.segments.indexes import MAX_RELATIVE_OFFSET, OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE

cdef extern from "Python.h":
    ctypedef struct _View "Py_buffer":
        void* buf
        Py_ssize_t len
        Py_ssize_t itemsize
        int readonly
        int ndim
        Py_ssize_t* strides
    bint PyMemoryView_Check(object value)
    _View* PyMemoryView_GET_BUFFER(object view)

cdef extern from "unistd.h" nogil:
    Py_ssize_t pwrite(int file, const void* data, size_t size, int64_t position)

cdef enum:
    NO_TIMESTAMP = -1
    NO_PRODUCER_ID = -1
    EPOCH_POSITION = 12

cdef object _FILES = OperatingSystemFiles
cdef object _NEW_TUPLE = tuple.__new__
cdef object _INFO = AppendInfo
cdef object _NO_APPEND_TIME = NO_APPEND_TIME
cdef int64_t _MAX_RELATIVE = MAX_RELATIVE_OFFSET
cdef Py_ssize_t _OFFSET_ENTRY = OFFSET_ENTRY_SIZE
cdef Py_ssize_t _TIME_ENTRY = TIME_ENTRY_SIZE


cdef class _End:
    """The end of a log's active segment, where batches are written."""

    cdef object local, segment, batches, growing
    cdef int file
    cdef int64_t position, base_offset, first_timestamp, created_ms, lifetime_ms
    cdef int64_t segment_bytes, end_offset, latest_epoch, epoch_start

    cdef bint find(self, log) except -1:
        """Look for the end; False if the next append needs more than a write there."""
        local = self.local = log._local
        if local.failure is not None or local._is_closed or log._new_folder is not None:
            return False
        entries = log._epochs._entries
        segment = self.segment = local.segments.active
        first_timestamp = segment._first_timestamp
        indexes = segment.indexes
        growing = self.growing = indexes.growing
        batches = self.batches = segment._batches
        self.position = batches.size
        if not entries or first_timestamp is None or growing is None or indexes.may_have_files or not self.position:
            return False
        if type(batches._files) is not _FILES:
            return False
        offsets, times = growing.offset_index, growing.time_index
        if len(offsets._data) // _OFFSET_ENTRY >= <Py_ssize_t>offsets._max_entries:
            return False
        if len(times._data) // _TIME_ENTRY >= <Py_ssize_t>times._max_entries - 1:
            return False
        self.file = batches._handle
        self.base_offset = segment.base_offset
        self.first_timestamp = first_timestamp
        self.created_ms = segment.created_ms
        self.lifetime_ms = local._lifetime_ms
        self.segment_bytes = local._segment_bytes
        self.end_offset = local.log_end_offset
        latest = entries[len(entries) - 1]
        self.latest_epoch = latest.epoch
        self.epoch_start = latest.start_offset
        return self.file >= 0

    cdef bint must_roll(self, Py_ssize_t size, int64_t last_offset, int64_t max_timestamp, int64_t now_ms) noexcept:
        """Return whether batches of that size and end need a new segment; see ``LocalLog.must_roll``."""
        cdef int64_t waited_ms
        if last_offset - self.base_offset > _MAX_RELATIVE or self.position + size > self.segment_bytes:
            return True
        waited_ms = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        return waited_ms > self.lifetime_ms

    cdef bint write(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Write all bytes; False if the system did not take them. They are then not in the log."""
        cdef Py_ssize_t written
        with nogil:
            written = pwrite(self.file, data, size, self.position)
        return written == size

    cdef int add(self, int64_t last_offset, int64_t max_timestamp, int64_t position, int64_t size) except -1:
        """Add a written batch to the indexes, by the rule of ``GrowingIndexes.add_batch``."""
        growing = self.growing
        cdef int64_t pending = growing._bytes_since_entry
        if pending > <int64_t>growing._interval_bytes:
            growing.add_batch(last_offset, max_timestamp, position, size)
            return 0
        if max_timestamp > <int64_t>growing.max_timestamp:
            growing.max_timestamp = max_timestamp
            growing.offset_of_max_timestamp = last_offset
        growing._bytes_since_entry = pending + size
        return 0

    cdef int grow(self, int64_t size, next_offset, tail) except -1:
        """Make the written batches visible."""
        segment = self.segment
        self.batches.size = self.position + size
        segment._tail = tail
        segment.next_offset = next_offset
        self.local.log_end_offset = next_offset
        return 0

    cdef int note_appended(self, log, int64_t next_offset, int64_t now_ms) except -1:
        """Flush the log if its settings ask for it; see ``PartitionLog._appended``."""
        local = self.local
        if log._unflushed_since_ms is None:
            log._unflushed_since_ms = now_ms
        if next_offset - <int64_t>local.recovery_point >= <int64_t>local.config.flush_messages:
            log.flush()
        return 0


cpdef append_as_leader(log, batch, int64_t leader_epoch, int64_t now_ms):
    """Append a producer's batch as :meth:`PartitionLog.append_as_leader` does, or return None, having changed nothing.

    Raises:
        TidelogError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE, and the log is
            unchanged; KAFKA_STORAGE_ERROR, a flush by ``flush.messages`` has failed.
    """
    cdef Header header
    cdef _View* view
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef int64_t max_timestamp, base_offset, last_offset
    cdef _End end
    if not PyMemoryView_Check(batch):
        return None
    view = PyMemoryView_GET_BUFFER(batch)
    data, size = <uint8_t*>view.buf, view.len
    if view.readonly or view.ndim != 1 or view.itemsize != 1 or (view.strides != NULL and view.strides[0] != 1):
        return None
    if size < HEADER_SIZE or not read_header(data, &header) or not _is_usual(&header, size):
        return None
    appender = log._appender
    limits = appender.rules.plain_limits
    if limits is None or size > <Py_ssize_t>limits[0]:
        return None
    end = _End.__new__(_End)
    if not end.find(log) or leader_epoch != end.latest_epoch:
        return None
    base_offset = end.end_offset
    last_offset = base_offset + header.last_offset_delta
    if end.must_roll(size, last_offset, header.max_timestamp, now_ms):
        return None
    if not is_unchanged(data, &header) or not _has_usual_records(data, &header, limits, now_ms, &max_timestamp):
        return None
    if max_timestamp != header.max_timestamp:
        return None
    if header.producer_id != NO_PRODUCER_ID:
        # A duplicate takes the way of the appender as well.
        state = log._producers.snapshots.state
        if state.check(parse_header(batch)) is not None:
            return None
    put64(data, base_offset)
    put32(data + EPOCH_POSITION, <uint32_t>leader_epoch)
    if not end.write(data, size):
        put64(data, 0)
        put32(data + EPOCH_POSITION, <uint32_t>header.partition_leader_epoch)
        return None
    end.add(last_offset, max_timestamp, end.position, size)
    end.grow(size, last_offset + 1, (base_offset, end.position))
    if header.producer_id != NO_PRODUCER_ID:
        appender.take_in((parse_header(batch),), batch, now_ms)
    end.note_appended(log, last_offset + 1, now_ms)
    return _NEW_TUPLE(_INFO, (base_offset, last_offset, max_timestamp, _NO_APPEND_TIME, size, leader_epoch, False))


cdef inline bint _is_usual(const Header* header, Py_ssize_t size) noexcept:
    """Return whether a header is that of one batch of uncompressed records outside of a transaction."""
    return (
        batch_size(header) == size
        and header.attributes == 0
        and header.base_offset == 0
        and header.record_count > 0
        and header.last_offset_delta + 1 == header.record_count
        and header.base_timestamp >= NO_TIMESTAMP
        and header.max_timestamp >= NO_TIMESTAMP
        and (header.producer_id == NO_PRODUCER_ID or (header.producer_id >= 0 and header.base_sequence >= 0))
    )


cdef bint _has_usual_records(
    const uint8_t* data, const Header* header, limits, int64_t now_ms, int64_t* max_timestamp
) except -1:
    """Walk the records, and return whether the topic's settings allow them; see ``ProduceRules.plain_limits``."""
    cdef Walk walk = Walk.__new__(Walk)
    cdef Block block
    cdef Py_ssize_t rows, row
    cdef int64_t least = INT64_MAX, greatest = NO_TIMESTAMP, timestamp
    cdef bint has_keyless = False
    try:
        walk.begin(header, data + HEADER_SIZE, batch_size(header) - HEADER_SIZE)
        rows = walk.next_block(&block)
        while rows:
            for row in range(rows):
                has_keyless |= block.key_sizes[row] < 0
                timestamp = walk.timestamp(block.timestamp_deltas[row])
                if timestamp < NO_TIMESTAMP:
                    return False
                if timestamp != NO_TIMESTAMP:
                    least, greatest = min(least, timestamp), max(greatest, timestamp)
            rows = walk.next_block(&block)
    except CorruptRecordError:
        return False
    max_timestamp[0] = greatest
    if has_keyless and limits[3]:
        return False
    # Not as differences: the limits may be the greatest numbers that there are.
    return greatest == NO_TIMESTAMP or (least >= now_ms - limits[1] and greatest <= now_ms + limits[2])


def append_as_follower(log, records, int64_t now_ms):
    """Append batches as :meth:`PartitionLog.append_as_follower` does, or return None, having changed nothing.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR: a flush by ``flush.messages`` has failed, or the transaction index of an
            aborted transaction cannot be written.
    """
    cdef Py_buffer view
    cdef _End end = _End.__new__(_End)
    if not end.find(log) or <int64_t>log._log_start_offset == end.end_offset or end.epoch_start >= end.end_offset:
        return None
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        return _append_copies(log, records, end, <const uint8_t*>view.buf, view.len, now_ms)
    finally:
        PyBuffer_Release(&view)


cdef object _append_copies(
    log, records, _End end, const uint8_t* data, Py_ssize_t size, int64_t now_ms
):
    cdef Header header
    cdef Py_ssize_t place = 0
    cdef int64_t least_offset = end.end_offset, first_offset = -1, max_timestamp = NO_TIMESTAMP
    cdef bint has_producers = False
    while place < size:
        if size - place < HEADER_SIZE or not read_header(data + place, &header) or batch_size(&header) > size - place:
            return None
        if header.base_offset < least_offset or header.partition_leader_epoch != end.latest_epoch:
            return None
        if header.attributes & CONTROL_MASK or not is_unchanged(data + place, &header):
            return None
        least_offset = next_offset(&header)
        place += batch_size(&header)
        if end.must_roll(place, least_offset - 1, header.max_timestamp, now_ms):
            return None
        if first_offset < 0:
            first_offset = header.base_offset
            max_timestamp = header.max_timestamp
        max_timestamp = max(max_timestamp, header.max_timestamp)
        has_producers |= header.producer_id >= 0
    if first_offset < 0 or not end.write(data, size):
        return None
    return _take_copies(log, records, end, data, size, now_ms, has_producers, first_offset, max_timestamp)


cdef object _take_copies(
    log, records, _End end, const uint8_t* data, Py_ssize_t size, int64_t now_ms, bint has_producers,
    int64_t first_offset, int64_t max_timestamp,
):
    cdef Header header
    cdef Py_ssize_t place = 0
    cdef int64_t end_offset = -1
    cdef list headers = []
    while place < size:
        read_header(data + place, &header)
        end_offset = next_offset(&header)
        end.add(end_offset - 1, header.max_timestamp, end.position + place, batch_size(&header))
        if has_producers:
            headers.append(parse_header(records, place))
        place += batch_size(&header)
    end.grow(size, end_offset, None)
    if has_producers:
        log._appender.take_in_copies(headers, records, now_ms)
    end.note_appended(log, end_offset, now_ms)
    return _NEW_TUPLE(
        _INFO, (first_offset, end_offset - 1, max_timestamp, _NO_APPEND_TIME, size, end.latest_epoch, False)
    )
