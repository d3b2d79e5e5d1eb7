"""Big-endian numbers for the compiled modules. Inline: no calls at run time."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t read16(const uint8_t* place) noexcept nogil:
    return <uint16_t>(<uint16_t>place[0] << 8 | place[1])


cdef inline uint32_t read32(const uint8_t* place) noexcept nogil:
    return <uint32_t>place[0] << 24 | <uint32_t>place[1] << 16 | <uint32_t>place[2] << 8 | place[3]


cdef inline uint64_t read64(const uint8_t* place) noexcept nogil:
    return <uint64_t>read32(place) << 32 | read32(place + 4)


cdef inline int int16(const uint8_t* place) noexcept nogil:
    return <int16_t>read16(place)


cdef inline int32_t int32(const uint8_t* place) noexcept nogil:
    return <int32_t>read32(place)


cdef inline int64_t int64(const uint8_t* place) noexcept nogil:
    return <int64_t>read64(place)


cdef inline uint8_t* put16(uint8_t* target, uint16_t number) noexcept nogil:
    target[0], target[1] = number >> 8, number & 0xFF
    return target + 2


cdef inline uint8_t* put32(uint8_t* target, uint32_t number) noexcept nogil:
    return put16(put16(target, number >> 16), number & 0xFFFF)


cdef inline uint8_t* put64(uint8_t* target, uint64_t number) noexcept nogil:
    return put32(put32(target, <uint32_t>(number >> 32)), <uint32_t>number)
