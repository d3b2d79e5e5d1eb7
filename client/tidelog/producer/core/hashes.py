"""The hashes of keys: those of Kafka's Java client, of librdkafka, and of Sarama."""

from __future__ import annotations

import enum
import struct
import zlib
from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_CACHED_KEY_BYTES = 64


class KeyHash(enum.IntEnum):
    """The hash that a partitioner applies to a key. The numbers are part of the interface to the compiled modules."""

    NONE = 0
    """The key is ignored."""
    MURMUR2 = 1
    CRC32 = 2
    FNV1A = 3

    def of(self, key: bytes) -> int:
        """Return the hash, from 0 to 2^32 - 1."""
        match self:
            case KeyHash.MURMUR2:
                return murmur2_positive(key)
            case KeyHash.CRC32:
                return zlib.crc32(key)
            case KeyHash.FNV1A:
                return fnv1a(key)
            case _:
                raise AssertionError("keys are not hashed")


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash, as unsigned (``Utils.murmur2`` of Kafka's Java client, which is signed)."""
    length = len(data)
    h = _SEED ^ length
    words, rest = divmod(length, 4)
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ (k >> 24)) * _M & _MASK)
    if rest:
        h = (h ^ int.from_bytes(data[words * 4 :], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def murmur2_positive(data: bytes) -> int:
    """Return the hash without its sign bit (``Utils.toPositive``). The partition is this number modulo their count."""
    if len(data) > _CACHED_KEY_BYTES:
        return murmur2(data) & 0x7FFFFFFF
    return _cached_murmur2(data)


@lru_cache(maxsize=65_536)
def _cached_murmur2(data: bytes) -> int:
    return murmur2(data) & 0x7FFFFFFF


def fnv1a(data: bytes) -> int:
    """Return the absolute value of the signed 32-bit FNV-1a hash (librdkafka's ``rd_fnv1a``, Sarama's default)."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & _MASK
    return -h & _MASK if h & _SIGN else h
