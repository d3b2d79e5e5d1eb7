"""The hashes of keys, as in tidelog.producer.core.hashes: inline, for the compiled modules."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint32_t tidelog_murmur2(const unsigned char* data, size_t size) {
        const uint32_t m = 0x5bd1e995u;
        uint32_t h = 0x9747b28cu ^ (uint32_t)size;
        while (size >= 4) {
            uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
            k *= m;
            k ^= k >> 24;
            h = h * m ^ k * m;
            data += 4;
            size -= 4;
        }
        if (size == 3) h ^= (uint32_t)data[2] << 16;
        if (size >= 2) h ^= (uint32_t)data[1] << 8;
        if (size >= 1) h = (h ^ data[0]) * m;
        h = (h ^ h >> 13) * m;
        return (h ^ h >> 15) & 0x7fffffffu;
    }

    static inline uint32_t tidelog_fnv1a(const unsigned char* data, size_t size) {
        uint32_t h = 0x811c9dc5u;
        size_t i;
        for (i = 0; i < size; i++) h = (h ^ data[i]) * 0x01000193u;
        return h & 0x80000000u ? 0u - h : h;
    }

    static inline uint32_t tidelog_crc32(const unsigned char* data, size_t size) {
        static const uint32_t table[16] = {
            0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
            0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
        uint32_t crc = 0xffffffffu;
        size_t i;
        for (i = 0; i < size; i++) {
            crc ^= data[i];
            crc = crc >> 4 ^ table[crc & 15];
            crc = crc >> 4 ^ table[crc & 15];
        }
        return ~crc;
    }
    """
    uint32_t tidelog_murmur2(const uint8_t* data, size_t size) noexcept nogil
    uint32_t tidelog_fnv1a(const uint8_t* data, size_t size) noexcept nogil
    uint32_t tidelog_crc32(const uint8_t* data, size_t size) noexcept nogil

cdef enum:
    # The numbers of tidelog.producer.core.hashes.KeyHash.
    MURMUR2 = 1
    CRC32 = 2
    FNV1A = 3


cdef inline uint32_t hash_key(int kind, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    if kind == MURMUR2:
        return tidelog_murmur2(key, size)
    if kind == CRC32:
        return tidelog_crc32(key, size)
    return tidelog_fnv1a(key, size)
