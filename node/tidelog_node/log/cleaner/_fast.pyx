# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled twin of :mod:`tidelog_node.log.cleaner._pure`, with the same interface, results and errors.

It hashes keys and prefetches their entries in blocks before the searches: each entry is a cache line in memory that no
cache holds, and waiting for each in turn would take most of the time.

Safety: only ``read_varint`` reads bytes, below a position that was first compared with the end of the section. The
table is never full, so every search ends. The GIL is held, and released from time to time within a large batch for the
node's event loop.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from xxhash import xxh3_128_digest

from tidelog_foundation.records._bytes cimport read_varint
from tidelog_node.log.cleaner._faults import buffer_too_small, malformed, table_full

ENTRY_SIZE = 24
NOT_FOUND = -1

cdef object _digest = xxh3_128_digest

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define TIDELOG_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define TIDELOG_PREFETCH(address) (void)(address)
    #endif
    """
    void TIDELOG_PREFETCH(const void* address) noexcept

cdef enum:
    NO_OFFSET = -1
    NO_TIMESTAMP = -1
    BLOCK = 64
    # Records between two releases of the GIL: some tenths of a millisecond.
    RECORDS_AT_ONCE = 1024


cdef struct Entry:
    uint64_t low
    uint64_t high
    # The offset + 1, so that an entry of zeros is an empty one.
    int64_t next_offset


assert sizeof(Entry) == ENTRY_SIZE


cdef struct Probe:
    # A key's hash, the entry where its search begins, and the record that needs the result.
    uint64_t low
    uint64_t high
    Entry* entry
    int64_t offset
    int64_t timestamp_delta
    Py_ssize_t index
    Py_ssize_t size
    bint is_tombstone


cdef struct Fields:
    Py_ssize_t body
    Py_ssize_t tail
    Py_ssize_t end
    int64_t timestamp_delta
    int64_t offset_delta
    Py_ssize_t key
    Py_ssize_t key_size
    int64_t value_size


@cython.final
cdef class OffsetMap:
    """The last offset of each key, by the key's hash, in one table of fixed size."""

    cdef Entry* entries
    cdef object seed
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef readonly int64_t latest_offset
    cdef Probe probes[BLOCK]
    cdef Py_ssize_t pending

    def __cinit__(self, Py_ssize_t memory_bytes, double load_factor, object seed):
        self.slots = memory_bytes // <Py_ssize_t>sizeof(Entry)
        self.capacity = min(<Py_ssize_t>(self.slots * load_factor), self.slots - 1)
        if self.capacity < 1:
            raise buffer_too_small(memory_bytes, load_factor)
        self.seed = seed
        self.size = 0
        self.pending = 0
        self.latest_offset = NO_OFFSET
        # calloc does not touch the pages: memory that no key uses never becomes resident.
        self.entries = <Entry*>calloc(self.slots, sizeof(Entry))
        if self.entries is NULL:
            raise MemoryError(f"{memory_bytes} bytes for the offset map")

    def __dealloc__(self):
        free(self.entries)

    def put(self, bytes key not None, int64_t offset):
        """Store the offset of a key; the last call for a key wins."""
        self.pending = 0
        self.hash(<const uint8_t*>PyBytes_AS_STRING(key), len(key)).offset = offset
        if not self.store_pending():
            raise table_full(self.capacity)

    def get(self, bytes key not None):
        """Return the offset of a key, or -1."""
        self.pending = 0
        return self.search(self.hash(<const uint8_t*>PyBytes_AS_STRING(key), len(key))).next_offset - 1

    def advance(self, int64_t offset):
        """Mark everything up to and including ``offset`` as indexed."""
        self.latest_offset = max(self.latest_offset, offset)

    def index(self, records, header, int64_t start_offset):
        """Index the keys of a batch's records from ``start_offset`` on. Return False if the table becomes full first.
        """
        cdef _Walk walk = _Walk(records, header)
        cdef Fields* fields = &walk.fields
        self.pending = 0
        while walk.step():
            if fields.key_size < 0 or walk.offset < start_offset:
                continue
            if self.pending == BLOCK and not self.store_pending():
                return False
            self.hash(walk.data + fields.key, fields.key_size).offset = walk.offset
        return bool(self.store_pending())

    cdef Probe* hash(self, const uint8_t* key, Py_ssize_t size) except NULL:
        """Add a key to the pending ones, which are fewer than a block."""
        cdef bytes digest = _digest(PyBytes_FromStringAndSize(<const char*>key, size), self.seed)
        cdef const char* content = PyBytes_AS_STRING(digest)
        cdef Probe* probe = &self.probes[self.pending]
        memcpy(&probe.high, content, 8)
        memcpy(&probe.low, content + 8, 8)
        probe.entry = self.entries + <Py_ssize_t>(probe.high % <uint64_t>self.slots)
        TIDELOG_PREFETCH(probe.entry)
        self.pending += 1
        return probe

    cdef Entry* search(self, Probe* probe) noexcept:
        """Return the entry of a key, or the empty entry for it."""
        cdef Entry* entry = probe.entry
        cdef Entry* end = self.entries + self.slots
        while entry.next_offset != 0 and (entry.high != probe.high or entry.low != probe.low):
            entry += 1
            if entry == end:
                entry = self.entries
        return entry

    cdef bint store_pending(self) noexcept:
        """Store the offsets of the pending keys in order. Return False if there is no space for one."""
        cdef Py_ssize_t index, count = self.pending
        cdef Entry* entry
        cdef Probe* probe
        self.pending = 0
        for index in range(count):
            probe = &self.probes[index]
            entry = self.search(probe)
            if entry.next_offset == 0:
                if self.size >= self.capacity:
                    return False
                self.size += 1
                entry.high, entry.low = probe.high, probe.low
            entry.next_offset = probe.offset + 1
            self.latest_offset = max(self.latest_offset, probe.offset)
        return True


@cython.final
cdef class RecordSelector:
    """Selects the records of a batch that stay and copies them."""

    cdef OffsetMap offset_map
    cdef object section
    cdef object header
    cdef uint8_t* flags
    cdef Py_ssize_t flags_size
    cdef Py_ssize_t kept_bytes
    cdef int64_t base_timestamp
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t keyless
    cdef readonly bint has_tombstones
    cdef readonly int64_t max_timestamp

    def __cinit__(self, OffsetMap offset_map not None):
        self.offset_map = offset_map
        self.flags = NULL
        self.flags_size = 0

    def __dealloc__(self):
        free(self.flags)

    def select(self, records, header, bint are_tombstones_expired):
        """Select the records of a batch that stay."""
        cdef _Walk walk = self.begin(records, header)
        cdef Fields* fields = &walk.fields
        cdef OffsetMap offset_map = self.offset_map
        cdef Probe* probe
        offset_map.pending = 0
        while walk.step():
            if walk.offset > offset_map.latest_offset:
                self.keep(walk.index - 1, walk.position - walk.start, fields.timestamp_delta, fields.value_size < 0)
            elif fields.key_size < 0:
                self.keyless += 1
            elif fields.value_size >= 0 or not are_tombstones_expired:
                if offset_map.pending == BLOCK:
                    self.keep_latest()
                probe = offset_map.hash(walk.data + fields.key, fields.key_size)
                probe.offset, probe.timestamp_delta = walk.offset, fields.timestamp_delta
                probe.index, probe.size = walk.index - 1, walk.position - walk.start
                probe.is_tombstone = fields.value_size < 0
        self.keep_latest()

    def select_all(self, records, header):
        """Select all records of a batch."""
        cdef _Walk walk = self.begin(records, header)
        cdef Fields* fields = &walk.fields
        while walk.step():
            self.keep(walk.index - 1, walk.position - walk.start, fields.timestamp_delta, fields.value_size < 0)

    def copy(self, int64_t base_timestamp):
        """Return the selected records, with timestamp deltas from ``base_timestamp``."""
        cdef _Walk walk = _Walk(self.section, self.header)
        cdef bytes copied
        cdef Py_ssize_t size = 0
        # In uint64, because the difference of the extremes wraps, as in Kafka.
        cdef uint64_t shift = <uint64_t>self.base_timestamp - <uint64_t>base_timestamp
        if shift == 0:
            copied = PyBytes_FromStringAndSize(NULL, self.kept_bytes)
            self.copy_runs(walk, <uint8_t*>PyBytes_AS_STRING(copied))
            return copied
        while walk.step():
            if self.flags[walk.index - 1]:
                size += _shifted_size(&walk.fields, shift)
        copied = PyBytes_FromStringAndSize(NULL, size)
        self.copy_shifted(_Walk(self.section, self.header), <uint8_t*>PyBytes_AS_STRING(copied), shift)
        return copied

    cdef _Walk begin(self, records, header):
        cdef _Walk walk = _Walk(records, header)
        self.section, self.header = records, header
        self.base_timestamp = header.base_timestamp
        self.count = self.keyless = self.kept_bytes = 0
        self.has_tombstones = False
        self.max_timestamp = NO_TIMESTAMP
        if self.flags_size < walk.count:
            free(self.flags)
            self.flags_size = 0
            self.flags = <uint8_t*>realloc(NULL, walk.count)
            if self.flags is NULL:
                raise MemoryError(f"{walk.count} bytes")
            self.flags_size = walk.count
        if walk.count:
            memset(self.flags, 0, walk.count)
        return walk

    cdef void keep_latest(self) noexcept:
        """Keep the pending records that are the last of their keys."""
        cdef OffsetMap offset_map = self.offset_map
        cdef Py_ssize_t index
        cdef Probe* probe
        for index in range(offset_map.pending):
            probe = &offset_map.probes[index]
            if probe.offset >= offset_map.search(probe).next_offset - 1:
                self.keep(probe.index, probe.size, probe.timestamp_delta, probe.is_tombstone)
        offset_map.pending = 0

    cdef void keep(self, Py_ssize_t index, Py_ssize_t size, int64_t timestamp_delta, bint is_tombstone) noexcept:
        cdef int64_t timestamp = <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>timestamp_delta)
        self.flags[index] = 1
        self.count += 1
        self.kept_bytes += size
        if is_tombstone:
            self.has_tombstones = True
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    cdef int copy_runs(self, _Walk walk, uint8_t* target) except -1:
        cdef Py_ssize_t run = 0
        while walk.step():
            if not self.flags[walk.index - 1]:
                memcpy(target, walk.data + run, walk.start - run)
                target += walk.start - run
                run = walk.position
        memcpy(target, walk.data + run, walk.position - run)
        return 0

    cdef int copy_shifted(self, _Walk walk, uint8_t* target, uint64_t shift) except -1:
        cdef Fields* fields = &walk.fields
        cdef uint64_t delta
        while walk.step():
            if not self.flags[walk.index - 1]:
                continue
            delta = _zigzag(<int64_t>(<uint64_t>fields.timestamp_delta + shift))
            target = _put_varint(target, _zigzag(1 + _varint_size(delta) + fields.end - fields.tail))
            target[0] = walk.data[fields.body]
            target = _put_varint(target + 1, delta)
            memcpy(target, walk.data + fields.tail, fields.end - fields.tail)
            target += fields.end - fields.tail
        return 0


@cython.final
cdef class _Walk:
    """Iterates over the records of one batch and checks the position of each; holds the buffer until it is freed."""

    cdef Py_buffer view
    cdef const uint8_t* data
    cdef object header
    cdef Py_ssize_t size
    cdef Py_ssize_t start
    cdef Py_ssize_t position
    cdef Py_ssize_t index
    cdef Py_ssize_t count
    cdef int64_t base_offset
    cdef int64_t last_offset_delta
    cdef int64_t previous
    cdef int64_t offset
    cdef Fields fields

    def __cinit__(self, records, header):
        self.header = header
        self.base_offset = header.base_offset
        self.last_offset_delta = header.last_offset_delta
        self.count = header.record_count
        self.previous = -1
        self.start = self.position = self.index = 0
        PyObject_GetBuffer(records, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t*>self.view.buf
        self.size = self.view.len
        if self.count > self.size:
            raise malformed(header, 0, 0, self.size)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef bint step(self) except? False:
        """Advance to the next record. Return False behind the last one."""
        if self.index == self.count:
            if self.position != self.size:
                raise malformed(self.header, self.index, self.position, self.size)
            return False
        if self.index % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
            with nogil:
                pass
        self.start = self.position
        if not _read_record(self.data, self.position, self.size, &self.fields):
            raise malformed(self.header, self.index, self.position, self.size)
        if not self.previous < self.fields.offset_delta <= self.last_offset_delta:
            raise malformed(self.header, self.index, self.position, self.size)
        self.previous = self.fields.offset_delta
        self.offset = self.base_offset + self.previous
        self.position = self.fields.end
        self.index += 1
        return True


cdef inline bint _read_record(const uint8_t* data, Py_ssize_t position, Py_ssize_t size, Fields* fields) noexcept:
    """Read the fields of the record at a position, up to its value's length. Return False for a malformed record."""
    cdef int64_t number
    cdef Py_ssize_t end
    if not read_varint(data, &position, size, 5, &number):
        return False
    if number < 1 or number > size - position:
        return False
    end = position + <Py_ssize_t>number
    fields.body = position
    position += 1
    if not read_varint(data, &position, end, 10, &fields.timestamp_delta):
        return False
    fields.tail = position
    if not read_varint(data, &position, end, 5, &fields.offset_delta):
        return False
    if not read_varint(data, &position, end, 5, &number) or number > end - position:
        return False
    fields.key = position
    fields.key_size = <Py_ssize_t>number if number >= 0 else -1
    if number > 0:
        position += <Py_ssize_t>number
    if not read_varint(data, &position, end, 5, &number) or number > end - position:
        return False
    fields.value_size = number
    fields.end = end
    return True


cdef inline Py_ssize_t _varint_size(uint64_t zigzag) noexcept:
    cdef Py_ssize_t size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef inline uint64_t _zigzag(int64_t number) noexcept:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline uint8_t* _put_varint(uint8_t* target, uint64_t zigzag) noexcept:
    while zigzag >= 0x80:
        target[0] = <uint8_t>(zigzag & 0x7F) | 0x80
        target += 1
        zigzag >>= 7
    target[0] = <uint8_t>zigzag
    return target + 1


cdef inline Py_ssize_t _shifted_size(Fields* fields, uint64_t shift) noexcept:
    cdef uint64_t delta = _zigzag(<int64_t>(<uint64_t>fields.timestamp_delta + shift))
    cdef Py_ssize_t size = 1 + _varint_size(delta) + fields.end - fields.tail
    return _varint_size(_zigzag(size)) + size
