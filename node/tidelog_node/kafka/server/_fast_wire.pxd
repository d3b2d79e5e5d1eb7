"""Big-endian numbers and the counts of a request, for the compiled modules. Inline: no calls at run time."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef struct Answered:
    # A request whose answer is not sent yet: the size of its response's body, and times in nanoseconds.
    int32_t correlation_id
    Py_ssize_t size
    int64_t begun_ns
    int64_t answered_ns


cdef inline int int16(const uint8_t* data) noexcept nogil:
    return <int16_t>(<uint16_t>data[0] << 8 | data[1])


cdef inline int32_t int32(const uint8_t* data) noexcept nogil:
    return <int32_t>(<uint32_t>data[0] << 24 | <uint32_t>data[1] << 16 | <uint32_t>data[2] << 8 | data[3])


cdef inline int64_t int64(const uint8_t* data) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>int32(data) << 32 | <uint32_t>int32(data + 4))


cdef inline uint8_t* put16(uint8_t* target, uint16_t number) noexcept nogil:
    target[0], target[1] = number >> 8, number & 0xFF
    return target + 2


cdef inline uint8_t* put32(uint8_t* target, uint32_t number) noexcept nogil:
    return put16(put16(target, number >> 16), number & 0xFFFF)


cdef inline uint8_t* put64(uint8_t* target, uint64_t number) noexcept nogil:
    return put32(put32(target, <uint32_t>(number >> 32)), <uint32_t>number)
