"""A limit on the copying of throttled replicas: Kafka's replication quota without its clock (KIP-73).

A node has one quota as a leader and one as a follower. A quota only decides whether a throttled read or fetch has to
wait. It records every transfer, including those of in-sync replicas, which do not wait, so the limit covers all traffic
of the throttled replicas.

The quota measures the rate as Kafka does: over at most eleven samples of one second, including the current one, and
never over less than one second. It allows a transfer while that rate is not above the limit, since the size of the
transfer is not known beforehand. So the transfers that begin within any ten seconds, also after an idle time, take at
most the bytes of eleven seconds plus one transfer.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable

ALL_REPLICAS = "*"
"""The value that throttles all replicas of a topic."""

UNLIMITED = 2**63 - 1
"""Kafka's default rate."""

SAMPLE_MS = 1_000
TRANSFERS_PER_SECOND = 4
SAMPLES = 11
SPAN_MS = SAMPLE_MS * SAMPLES


class ReplicationQuota:
    """The limit of one side of a node, and its recent transfers. All times are of one monotonic clock."""

    def __init__(self, bytes_per_second: int = UNLIMITED) -> None:
        self._bytes_per_second = bytes_per_second
        self._samples: deque[list[int]] = deque()
        self._total = 0

    @property
    def bytes_per_second(self) -> int:
        """The limit."""
        return self._bytes_per_second

    @property
    def transfer_bytes(self) -> int:
        """The upper bound on one transfer that keeps low and high limits alike."""
        return max(self._bytes_per_second // TRANSFERS_PER_SECOND, 1)

    def change_rate(self, bytes_per_second: int) -> None:
        """Change the limit. Earlier transfers still count."""
        self._bytes_per_second = bytes_per_second

    def record(self, size: int, now_ms: int) -> None:
        """Record ``size`` transferred bytes of throttled replicas, throttled or not."""
        self._forget(now_ms)
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size
        self._total += size

    def rate(self, now_ms: int) -> float:
        """Return the rate of the last seconds in bytes per second."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        return self._total * 1000 / max(now_ms - self._samples[0][0], SAMPLE_MS)

    def is_exceeded(self, now_ms: int) -> bool:
        """Return True if a transfer of a throttled replica that is not in sync has to wait."""
        return self.rate(now_ms) > self._bytes_per_second

    def wait_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the rate is within the limit if nothing more is transferred; 0 if it is now."""
        if not self.is_exceeded(now_ms):
            return 0
        total, since_ms = self._total, now_ms
        for begin_ms, size in self._samples:
            kept_ms = begin_ms + max(SAMPLE_MS, self._duration_ms(total))
            if kept_ms < begin_ms + SPAN_MS:
                return max(kept_ms, since_ms) - now_ms
            # The others alone count when this one is forgotten.
            total -= size
            since_ms = begin_ms + SPAN_MS
        return since_ms - now_ms

    def check_invariants(self) -> None:
        """Assert what must hold after every call."""
        assert self._total == sum(size for _, size in self._samples)
        assert len(self._samples) <= SAMPLES, self._samples
        begins = [begin for begin, _ in self._samples]
        assert all(later - earlier >= SAMPLE_MS for earlier, later in itertools.pairwise(begins)), begins

    def _duration_ms(self, size: int) -> int:
        """Return the time in which the limit allows ``size`` bytes."""
        return -(-size * 1000 // self._bytes_per_second) if self._bytes_per_second else SPAN_MS

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= SPAN_MS:
            self._total -= self._samples.popleft()[1]


def is_throttled(replicas: Iterable[str], index: int, broker_id: int) -> bool:
    """Return True if a topic's list of throttled replicas contains a partition's replica on a broker.

    The list is ``leader.replication.throttled.replicas`` or ``follower.replication.throttled.replicas`` of the topic:
    ``partition:broker`` each, or ``*`` for all.
    """
    wanted = f"{index}:{broker_id}"
    return any(replica in (ALL_REPLICAS, wanted) for replica in replicas)
