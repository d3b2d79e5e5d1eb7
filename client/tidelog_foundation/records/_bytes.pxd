"""Growing memory and varints for the compiled modules of records and cleaner. Inline: no calls at run time."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject** store, Py_ssize_t size) except -1
    void Py_SET_SIZE(PyObject* store, Py_ssize_t size)

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define TIDELOG_BITS(number) (64 - __builtin_clzll((number) | 1))
    #else
    static inline int tidelog_bits(unsigned long long number) {
        int bits = 1;
        while (number >>= 1) bits++;
        return bits;
    }
    #define TIDELOG_BITS(number) tidelog_bits(number)
    #endif

    #if defined(__GNUC__)
    #define TIDELOG_LIKELY(condition) __builtin_expect(!!(condition), 1)
    #else
    #define TIDELOG_LIKELY(condition) (condition)
    #endif

    /* For the short contents that records have: without a call, and without touching a byte more than asked. */
    static inline void tidelog_copy(unsigned char* target, const unsigned char* source, size_t size) {
        const unsigned char* last;
        if (size < 16) {
            if (size >= 8) {
                memcpy(target, source, 8);
                memcpy(target + size - 8, source + size - 8, 8);
            } else if (size >= 4) {
                memcpy(target, source, 4);
                memcpy(target + size - 4, source + size - 4, 4);
            } else if (size) {
                target[0] = source[0];
                target[size >> 1] = source[size >> 1];
                target[size - 1] = source[size - 1];
            }
            return;
        }
        if (size > 256) {
            memcpy(target, source, size);
            return;
        }
        if (size < 32) {
            memcpy(target, source, 16);
            memcpy(target + size - 16, source + size - 16, 16);
            return;
        }
        last = source + size - 32;
        memcpy(target + size - 32, last, 32);
        while (source < last) {
            memcpy(target, source, 32);
            target += 32;
            source += 32;
        }
    }
    """
    bint TIDELOG_LIKELY(bint condition) noexcept nogil
    int TIDELOG_BITS(unsigned long long number) noexcept nogil
    void tidelog_copy(uint8_t* target, const uint8_t* source, size_t size) noexcept nogil


cdef struct Memory:
    # A bytes object that nobody else knows yet, or that is full: in both cases nobody sees it change.
    PyObject* store
    uint8_t* data
    Py_ssize_t used
    Py_ssize_t capacity


cdef inline int memory_move(Memory* memory, Py_ssize_t capacity) except -1:
    """Move the used bytes to new memory; the old bytes object stays as it is for whoever has it."""
    cdef object store = PyBytes_FromStringAndSize(NULL, capacity)
    cdef uint8_t* data = <uint8_t*>PyBytes_AS_STRING(store)
    if memory.used:
        if memory.store == NULL:
            raise MemoryError("the memory was lost when it could not grow")
        memcpy(data, memory.data, memory.used)
    Py_INCREF(store)
    Py_XDECREF(memory.store)
    memory.store = <PyObject*>store
    memory.data = data
    memory.capacity = capacity
    return 0


cdef inline int memory_grow(Memory* memory, Py_ssize_t capacity) except -1:
    """Make the memory larger, where it lies if that is possible; what cannot grow is lost, and says so from then on."""
    if memory.capacity == memory.used or memory.store == NULL:
        return memory_move(memory, capacity)
    memory.capacity = 0
    _PyBytes_Resize(&memory.store, capacity)
    memory.data = <uint8_t*>PyBytes_AS_STRING(<object>memory.store)
    memory.capacity = capacity
    return 0


cdef inline int memory_reserve(Memory* memory, Py_ssize_t more) except -1:
    """Make room behind ``used``; the room is not initialised."""
    if more > memory.capacity - memory.used:
        memory_grow(memory, max(memory.used + more, 2 * memory.capacity, 1024))
    return 0


cdef inline object memory_bytes(Memory* memory):
    """Return what is used; whoever adds to it now adds to a copy.

    Never made to fit by realloc: a large block that shrinks before it is freed makes glibc map the next one anew, page by
    page. Where little is unused, the object is told its size and keeps the rest until it goes.
    """
    if memory.capacity != memory.used:
        if memory.capacity - memory.used <= memory.used >> 3:
            Py_SET_SIZE(memory.store, memory.used)
            memory.data[memory.used] = 0
            memory.capacity = memory.used
        else:
            memory_move(memory, memory.used)
    return b"" if memory.store == NULL else <object>memory.store


cdef inline object memory_view(Memory* memory):
    """Return what is used, with at most a quarter of it in unused bytes behind; nobody may add to it after that."""
    if memory.store == NULL or memory.capacity - memory.used > memory.used >> 2:
        return memoryview(memory_bytes(memory))
    return memoryview(<object>memory.store)[:memory.used]


cdef inline void memory_release(Memory* memory) noexcept:
    Py_XDECREF(memory.store)
    memory.store = NULL


cdef inline Py_ssize_t varint_size(uint64_t zigzag) noexcept nogil:
    # Branches first, because nearly all are short and so are guessed right.
    if zigzag < 0x80:
        return 1
    if zigzag < 0x4000:
        return 2
    # Seven bits a byte: 9/64 is close enough to 1/7 for every number of bits up to 64.
    return (TIDELOG_BITS(zigzag) * 9 + 64) >> 6


cdef inline Py_ssize_t length_size(Py_ssize_t length) noexcept nogil:
    """Return what the varint of a length takes; the length is not negative."""
    if length < 0x40:
        return 1
    if length < 0x2000:
        return 2
    return (TIDELOG_BITS(<uint64_t>length << 1) * 9 + 64) >> 6


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline uint8_t* put_varint(uint8_t* target, uint64_t zigzag) noexcept nogil:
    if zigzag < 0x80:
        target[0] = <uint8_t>zigzag
        return target + 1
    if zigzag < 0x4000:
        target[0] = <uint8_t>(zigzag | 0x80)
        target[1] = <uint8_t>(zigzag >> 7)
        return target + 2
    while zigzag >= 0x80:
        target[0] = <uint8_t>(zigzag | 0x80)
        target += 1
        zigzag >>= 7
    target[0] = <uint8_t>zigzag
    return target + 1


cdef inline bint read_varint(
    const uint8_t* data, Py_ssize_t* position, Py_ssize_t end, int max_bytes, int64_t* result
) noexcept nogil:
    """Read a zigzag varint of at most 5 bytes (32 bits) or 10 bytes (64 bits); False when there is none."""
    cdef uint64_t number = 0
    cdef uint8_t byte
    cdef Py_ssize_t place = position[0]
    cdef int index
    for index in range(max_bytes):
        if place >= end:
            return False
        byte = data[place]
        place += 1
        number |= <uint64_t>(byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if max_bytes == 5:
                number &= 0xFFFFFFFFU
            position[0] = place
            result[0] = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
            return True
    return False


cdef inline const uint8_t* raw_varint(const uint8_t* place, uint64_t* result) noexcept nogil:
    """Read a varint, still zigzag, of at most 3 bytes, which the caller knows to be there; NULL for a longer one."""
    cdef uint64_t number = place[0]
    if number >= 0x80:
        if TIDELOG_LIKELY(place[1] < 0x80):
            number = (number & 0x7F) | <uint64_t>place[1] << 7
            place += 1
        elif place[2] < 0x80:
            number = (number & 0x7F) | <uint64_t>(place[1] & 0x7F) << 7 | <uint64_t>place[2] << 14
            place += 2
        else:
            return NULL
    result[0] = number
    return place + 1
