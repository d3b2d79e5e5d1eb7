"""Picks the partition of a record: by the hash of its key, or sticky for records without one.

``murmur2`` gives the same partition as Java's producer, ``consistent`` the same as librdkafka's default.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache

PARTITIONERS = ("murmur2_random", "murmur2", "consistent_random", "consistent", "random")
"""With ``_random`` a record without a key goes to the sticky partition, without it to the empty key's."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_CACHED_KEY_BYTES = 64


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
    """Return the hash without its sign bit (``Utils.toPositive``): modulo the partition count it is the partition."""
    if len(data) > _CACHED_KEY_BYTES:
        return murmur2(data) & 0x7FFFFFFF
    return _cached_murmur2(data)


@lru_cache(maxsize=65_536)
def _cached_murmur2(data: bytes) -> int:
    return murmur2(data) & 0x7FFFFFFF


class TopicPartitioner:
    """Picks partitions of one topic; used under the accumulator's lock.

    Records without a key stay with one partition until a new batch must be opened there, then move to
    another one that has a leader (KIP-480): fewer, fuller batches than one by one.
    """

    __slots__ = ("_available", "_choose", "_hash", "_keyless_sticks", "count", "sticky")

    def __init__(self, partitioner: str, choose: Callable[[int], int]) -> None:
        """``choose(n)`` returns a random number from 0 to n - 1."""
        assert partitioner in PARTITIONERS
        self._choose = choose
        self._hash = _HASHES[partitioner.removesuffix("_random")]
        self._keyless_sticks = partitioner.endswith("random")
        self.count = 0
        self._available: Sequence[int] = ()
        self.sticky = -1

    def learn(self, count: int, available: Sequence[int]) -> None:
        """Take the number of partitions and those that have a leader; a topic never loses partitions."""
        self.count = max(count, self.count)
        self._available = available
        if self.sticky < 0:
            self.next_sticky()

    def for_key(self, key: bytes | None) -> int:
        """Return the partition of a key, or -1 for the sticky one."""
        if self._hash is None or (self._keyless_sticks and not key and (key is None or self._hash is zlib.crc32)):
            return -1
        return self._hash(key or b"") % self.count

    def next_sticky(self) -> None:
        """Move on to another partition: a random one among those with a leader, if any has."""
        candidates = self._available or range(self.count)
        others = [p for p in candidates if p != self.sticky] or candidates
        self.sticky = others[self._choose(len(others))]


_HASHES: dict[str, Callable[[bytes], int] | None] = {
    "murmur2": murmur2_positive,
    "consistent": zlib.crc32,
    "random": None,
}
