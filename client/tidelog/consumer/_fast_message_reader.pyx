# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog.consumer._pure_message_reader`: from the bytes of batches to messages in one call.

Keys, values and encoded headers are copied from the batch, so that a message that the application keeps does not keep
the whole batch. The GIL is held; a caller that wants many messages asks for some thousand at a time.

Safety: as in :mod:`tidelog_foundation.records._fast_scan`, a header is compared with the remaining size before it is
read, and a batch that is not sound goes to the general functions, which create the error. The bytes belong to an
immutable object that the reader refers to.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from tidelog._fast_message cimport Message
from tidelog_foundation.records._fast_scan cimport is_unchanged
from tidelog_foundation.records._fast_walk cimport BLOCK, Block, Walk
from tidelog_foundation.records._header cimport (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    Header,
    batch_size,
    next_offset,
    read_header,
)

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import data_batches, parse_header, validate_batch
from tidelog_foundation.records.compression import codec_name, decompress

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)


@cython.final
cdef class MessageReader:
    """Reads the messages of a partition's batches from front to end, on the application's thread."""

    cdef readonly int64_t next_offset
    cdef readonly int64_t leader_epoch
    cdef object topic
    cdef object partition
    cdef object epoch
    cdef bytes records
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t position
    # The positions of the batches to read where transactions were aborted, else None.
    cdef object batches
    cdef object failure
    cdef Walk walk
    cdef Header header
    cdef Block block
    cdef Py_ssize_t row
    cdef Py_ssize_t rows

    def __init__(self, topic, partition, bytes records not None, aborted, int64_t next_offset):
        self.next_offset = next_offset
        self.leader_epoch = -1
        self.topic = topic
        self.partition = partition
        self.epoch = None
        self.records = records
        self.data = <const uint8_t*>PyBytes_AS_STRING(records)
        self.size = PyBytes_GET_SIZE(records)
        self.position = 0
        self.batches = data_batches(records, aborted) if aborted else None
        self.failure = None
        self.walk = Walk()
        self.row = self.rows = 0

    def read(self, Py_ssize_t most):
        """Return up to ``most`` messages, fewer only at the end or before a batch that cannot be read."""
        cdef list messages = []
        cdef Py_ssize_t count = 0
        cdef int64_t offset
        cdef bint has_rows
        while count < most:
            if self.row == self.rows:
                if self.failure is not None:
                    if count:
                        break
                    raise self.failure
                try:
                    has_rows = self.next_rows()
                except TidelogError as error:
                    self.failure = error
                    continue
                if not has_rows:
                    break
            offset = self.walk.base_offset + self.block.offset_deltas[self.row]
            if offset >= self.next_offset:
                messages.append(self.message(self.row, offset))
                count += 1
                self.next_offset = offset + 1
                self.leader_epoch = self.header.partition_leader_epoch
            self.row += 1
        return messages

    cdef Message message(self, Py_ssize_t row, int64_t offset):
        cdef Message message = Message.__new__(Message)
        cdef Block* block = &self.block
        message._topic = self.topic
        message._partition = self.partition
        message._leader_epoch = self.epoch
        message.is_read = True
        message.read_offset = offset
        message.read_timestamp_ms = self.walk.timestamp(block.timestamp_deltas[row])
        message.read_timestamp_type = self.walk.timestamp_type
        if block.key_sizes[row] >= 0:
            message._key = self.content(block.keys[row], block.key_sizes[row])
        if block.value_sizes[row] >= 0:
            message._value = self.content(block.values[row], block.value_sizes[row])
        if block.header_counts[row]:
            message.encoded_headers = self.content(block.headers[row], block.ends[row] - block.headers[row])
        PyObject_GC_UnTrack(message)
        return message

    cdef inline bytes content(self, Py_ssize_t start, Py_ssize_t size):
        return PyBytes_FromStringAndSize(<const char*>self.walk.data + start, size)

    cdef bint next_rows(self) except -1:
        """Read the next block of records and return True, or False at the end."""
        cdef Py_ssize_t rows
        self.row = self.rows = 0
        while True:
            rows = self.walk.next_block(&self.block)
            if rows:
                if rows == self.walk.count:
                    # The batch is in the block as a whole; this checks that nothing follows.
                    self.walk.next_block(&self.block)
                self.rows = rows
                return True
            if not self.next_batch():
                return False

    cdef bint next_batch(self) except -1:
        """Begin with the next batch, or return False at the end."""
        cdef Py_ssize_t place = self.next_place(), start = place + HEADER_SIZE
        cdef int codec
        if place < 0:
            return False
        if not is_unchanged(self.data + place, &self.header):
            validate_batch(self.records, place)
        codec = self.header.attributes & COMPRESSION_MASK
        if codec == 0:
            self.walk.begin(&self.header, self.data + start, batch_size(&self.header) - HEADER_SIZE)
        else:
            with memoryview(self.records) as whole, whole[start : place + batch_size(&self.header)] as section:
                self.walk.begin_in(&self.header, decompress(codec_name(codec), section))
        if self.walk.count > BLOCK:
            self.walk.check()
        self.epoch = self.header.partition_leader_epoch if self.header.partition_leader_epoch >= 0 else None
        return True

    cdef Py_ssize_t next_place(self) except -2:
        """Read the header of the next batch with records to return, and return its position; -1 at the end."""
        cdef Py_ssize_t place
        if self.batches is not None:
            for position, header in self.batches:
                if header.next_offset > self.next_offset:
                    place = position
                    read_header(self.data + place, &self.header)
                    return place
            return -1
        while self.size - self.position >= HEADER_SIZE:
            place = self.position
            if not read_header(self.data + place, &self.header):
                parse_header(self.records, place)
            if batch_size(&self.header) > self.size - place:
                break
            self.position = place + batch_size(&self.header)
            if not self.header.attributes & CONTROL_MASK and next_offset(&self.header) > self.next_offset:
                return place
        return -1
