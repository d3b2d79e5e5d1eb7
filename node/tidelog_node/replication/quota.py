"""How fast throttled replicas are copied: Kafka's replication quota without its clock (KIP-73).

A node has one quota as a leader and one as a follower. Both say only when a throttled read or fetch has to wait; what
was transferred is told to them in any case, also for replicas that do not wait because they are in sync, so that the
limit is one on all the traffic of the throttled replicas.

The rate is measured as Kafka does: over samples of one second, eleven at most, the one that grows included, and never
over less than one second. A transfer is allowed while that rate is not above the limit; how large it will be is not
known beforehand. So, of the transfers that asked first, never more than eleven seconds' bytes and one transfer begin
within any ten seconds, also after an idle time.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable

ALL_REPLICAS = "*"
"""What a topic's list of throttled replicas says for all of them."""

UNLIMITED = 2**63 - 1
"""Kafka's default rate."""

SAMPLE_MS = 1_000
TRANSFERS_PER_SECOND = 4
SAMPLES = 11
SPAN_MS = SAMPLE_MS * SAMPLES


class ReplicationQuota:
    """The limit of one side of a node and what was transferred lately. Times are of one clock that never goes back."""

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
        """The most that one transfer should have, so that a low limit is kept as well as a high one."""
        return max(self._bytes_per_second // TRANSFERS_PER_SECOND, 1)

    def change_rate(self, bytes_per_second: int) -> None:
        """Take over another limit; what was transferred before still counts."""
        self._bytes_per_second = bytes_per_second

    def record(self, size: int, now_ms: int) -> None:
        """Note ``size`` transferred bytes of throttled replicas, whether they had to wait or not."""
        self._forget(now_ms)
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size
        self._total += size

    def rate(self, now_ms: int) -> float:
        """Return the bytes per second of the last seconds."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        return self._total * 1000 / max(now_ms - self._samples[0][0], SAMPLE_MS)

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether a transfer of a throttled replica that is not in sync has to wait."""
        return self.rate(now_ms) > self._bytes_per_second

    def wait_ms(self, now_ms: int) -> int:
        """Return after how many milliseconds, if nothing more is transferred, the limit is kept again; 0 if it is."""
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
        """Return for how long a transfer uses up the limit."""
        return -(-size * 1000 // self._bytes_per_second) if self._bytes_per_second else SPAN_MS

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= SPAN_MS:
            self._total -= self._samples.popleft()[1]


def is_throttled(replicas: Iterable[str], index: int, broker_id: int) -> bool:
    """Return whether a topic's list of throttled replicas names the one of a partition on a broker.

    The list is ``leader.replication.throttled.replicas`` or ``follower.replication.throttled.replicas`` of the topic:
    ``partition:broker`` each, or ``*`` for all.
    """
    wanted = f"{index}:{broker_id}"
    return any(replica in (ALL_REPLICAS, wanted) for replica in replicas)
