"""A batch's header as a C struct, and its reader, for the compiled modules. Inline: no calls at run time."""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from tidelog_foundation._big_endian cimport read16, read32, read64

cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    COVERED = 21
    COMPRESSION_MASK = 0x07
    TIMESTAMP_TYPE_MASK = 0x08
    CONTROL_MASK = 0x20


cdef struct Header:
    int64_t base_offset
    int32_t batch_length
    int32_t partition_leader_epoch
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef inline bint read_header(const uint8_t* place, Header* header) noexcept nogil:
    """Read a header that is fully in the buffer; return False for one that the pure twin rejects."""
    header.base_offset = <int64_t>read64(place)
    header.batch_length = <int32_t>read32(place + 8)
    header.partition_leader_epoch = <int32_t>read32(place + 12)
    header.crc = read32(place + 17)
    header.attributes = <int16_t>read16(place + 21)
    header.last_offset_delta = <int32_t>read32(place + 23)
    header.base_timestamp = <int64_t>read64(place + 27)
    header.max_timestamp = <int64_t>read64(place + 35)
    header.producer_id = <int64_t>read64(place + 43)
    header.producer_epoch = <int16_t>read16(place + 51)
    header.base_sequence = <int32_t>read32(place + 53)
    header.record_count = <int32_t>read32(place + 57)
    return (
        place[16] == 2
        and header.batch_length >= HEADER_SIZE - LOG_OVERHEAD
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
        and header.last_offset_delta < INT64_MAX - header.base_offset
        and header.record_count >= 0
    )


cdef inline Py_ssize_t batch_size(const Header* header) noexcept nogil:
    return <Py_ssize_t>header.batch_length + LOG_OVERHEAD


cdef inline int64_t next_offset(const Header* header) noexcept nogil:
    return header.base_offset + header.last_offset_delta + 1
