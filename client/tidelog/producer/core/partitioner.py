"""The choice of a record's partition: by key hash, round-robin, sticky, or by the application's function.

``murmur2`` is the hash of Java's producer, ``consistent`` librdkafka's default, and ``fnv1a`` Sarama's hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.producer.core.engine import TopicLanes
from tidelog.producer.core.hashes import KeyHash
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

CustomPartitioner = Callable[[str, bytes | None, int], int]
"""``(topic, key, number of partitions) -> partition``."""

STICKY = -1


@dataclass(frozen=True, slots=True)
class _Policy:
    """The hash of keys (NONE ignores them), the records that are sticky, and round-robin."""

    key_hash: KeyHash
    null_sticks: bool = False
    empty_sticks: bool = False
    takes_turns: bool = False


_POLICIES = {
    "murmur2_random": _Policy(KeyHash.MURMUR2, null_sticks=True),
    "murmur2": _Policy(KeyHash.MURMUR2),
    "consistent_random": _Policy(KeyHash.CRC32, null_sticks=True, empty_sticks=True),
    "consistent": _Policy(KeyHash.CRC32),
    "fnv1a_random": _Policy(KeyHash.FNV1A, null_sticks=True),
    "fnv1a": _Policy(KeyHash.FNV1A),
    "random": _Policy(KeyHash.NONE, null_sticks=True, empty_sticks=True),
    "sticky": _Policy(KeyHash.NONE, null_sticks=True, empty_sticks=True),
    "roundrobin": _Policy(KeyHash.NONE, takes_turns=True),
}
PARTITIONERS = tuple(_POLICIES)
"""With ``_random``, a record without a key is sticky; otherwise it goes to the empty key's partition."""
_NO_KEYS = _Policy(KeyHash.NONE)


class TopicPartitioner(TopicLanes):
    """Chooses the partitions of one topic, under the accumulator's lock.

    Sticky records stay with one partition until it needs a new batch, then move to another one with a leader (KIP-480).
    This yields fewer and fuller batches than round-robin.
    """

    def __init__(self, partitioner: str | CustomPartitioner, choose: Callable[[int], int], topic: str = "") -> None:
        """Create a partitioner; ``choose(n)`` returns a random number from 0 to n - 1."""
        self._policy = _POLICIES[partitioner] if isinstance(partitioner, str) else _NO_KEYS
        self._custom = None if isinstance(partitioner, str) else partitioner
        self._choose = choose
        self._topic = topic
        self._available: Sequence[int] = ()
        self._next_turn = -1
        key_hash = self._policy.key_hash
        keyless = STICKY if self._policy.null_sticks or not key_hash else key_hash.of(b"")
        is_plain = self._custom is None and not self._policy.takes_turns
        super().__init__(int(key_hash), keyless, self._policy.empty_sticks, is_plain)

    def learn(self, count: int, available: Sequence[int]) -> None:
        """Set the number of partitions and those with a leader; a topic never loses partitions."""
        self.widen(count)
        self._available = available
        if self.sticky < 0:
            self.next_sticky()

    def for_key(self, key: bytes | None) -> int:
        """Return the partition of a key, or -1 for the sticky one.

        Raises:
            TidelogError: _APPLICATION if the application's function raised, _UNKNOWN_PARTITION if its result is not a
                partition.
        """
        policy = self._policy
        if self._custom is not None:
            return self._asked(self._custom, key)
        if policy.takes_turns:
            return self._turn()
        if not policy.key_hash or (key is None and policy.null_sticks) or (not key and policy.empty_sticks):
            return STICKY
        return policy.key_hash.of(key or b"") % self.count

    def next_sticky(self) -> None:
        """Choose another sticky partition at random, with a leader if possible."""
        candidates = self._available or range(self.count)
        others = [p for p in candidates if p != self.sticky] or candidates
        self.sticky = others[self._choose(len(others))]

    def _turn(self) -> int:
        candidates = self._available or range(self.count)
        if self._next_turn < 0:
            self._next_turn = self._choose(len(candidates))
        self._next_turn = (self._next_turn + 1) % len(candidates)
        return candidates[self._next_turn]

    def _asked(self, custom: CustomPartitioner, key: bytes | None) -> int:
        try:
            partition = custom(self._topic, key, self.count)
        except Exception as error:
            raise _failed(self._topic, error) from error
        if isinstance(partition, int) and 0 <= partition < self.count:
            return partition
        text = f'the partitioner returned {partition!r} for topic "{self._topic}", which has {self.count} partitions'
        raise error_for(ErrorCode._UNKNOWN_PARTITION, text)


def _failed(topic: str, error: Exception) -> TidelogError:
    text = f'the partitioner failed for topic "{topic}": {type(error).__name__}: {error}'
    return error_for(ErrorCode._APPLICATION, text)
