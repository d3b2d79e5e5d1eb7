"""Offset syncs: when a copied record becomes one, and the translation of offsets by them.

The rules are those of Kafka's OffsetSyncWriter and OffsetSyncStore (KIP-382, KAFKA-12468, KAFKA-14666, KAFKA-15906).

- A partition's first record of a process is a sync; so is one after a gap of the source's offsets, one after the
  target's offsets went back, and one that is ``offset.lag.max`` offsets behind the translation of the last sync.
- A store keeps few syncs of a partition, dense near its end and sparse before. ``syncs[0]`` is the latest. For i < j
  and different syncs: ``syncs[i] <= syncs[j] + 2^j - 2^i`` (B, recent) and ``syncs[i] >= syncs[j] + 2^max(i - 2, 0)``
  (C, separated), in offsets of the source.
- An offset translates to the copy of the latest sync at or before it; one past that if the offset is past the sync,
  since the record at the sync is then consumed. It never translates to an offset whose predecessors hold a record that
  the group has not consumed.
"""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_mirror.internal_records import OffsetSync

SLOTS: Final = 64
TOO_OLD: Final = -1
"""The translation of an offset before all syncs."""
_UNKNOWN: Final = -1


@dataclass(slots=True)
class SyncPacing:
    """Decides for one partition which copied records become offset syncs."""

    max_lag: int
    _last_sync: int = _UNKNOWN
    """The offset on the target of the last sync."""
    _upstream: int = _UNKNOWN
    _downstream: int = _UNKNOWN

    def needs_sync(self, upstream_offset: int, downstream_offset: int) -> bool:
        """Return whether a record that was copied just now becomes a sync. Call it with offsets in order."""
        is_first = self._last_sync == _UNKNOWN
        is_stale = downstream_offset - (self._last_sync + 1) >= self.max_lag
        has_gap = upstream_offset - self._upstream != 1
        went_back = downstream_offset < self._downstream
        self._upstream, self._downstream = upstream_offset, downstream_offset
        if not (is_first or is_stale or has_gap or went_back):
            return False
        self._last_sync = downstream_offset
        return True

    def batch_syncs(self, upstream_offset: int, downstream_offset: int, count: int) -> list[tuple[int, int]]:
        """Return the offsets of the first and the last record of a batch without gaps, as far as they become syncs."""
        found = []
        if self.needs_sync(upstream_offset, downstream_offset):
            found.append((upstream_offset, downstream_offset))
        last = upstream_offset + count - 1, downstream_offset + count - 1
        if count > 1:
            self._upstream, self._downstream = last[0] - 1, last[1] - 1
            if self.needs_sync(*last):
                found.append(last)
        return found


class OffsetSyncStore:
    """The syncs of one flow."""

    def __init__(self) -> None:
        self._syncs: dict[tuple[str, int], list[OffsetSync]] = {}
        self.is_loaded = False
        """True once the topic, and the checkpoints before it, have been read to the end."""

    def add(self, sync: OffsetSync) -> None:
        """Add the next sync of the topic. One before the latest replaces all: the source has lost records."""
        key = sync.topic, sync.partition
        syncs = self._syncs.get(key)
        if syncs is None or syncs[0].upstream_offset > sync.upstream_offset:
            self._syncs[key] = [sync] * SLOTS
        else:
            _insert(syncs, sync)

    def translate(self, topic: str, partition: int, upstream_offset: int) -> int | None:
        """Return the offset on the target, TOO_OLD before all syncs, None without syncs or before they are read."""
        syncs = self._syncs.get((topic, partition))
        if not self.is_loaded or syncs is None:
            return None
        found = next((sync for sync in syncs if sync.upstream_offset <= upstream_offset), None)
        if found is None:
            return TOO_OLD
        return found.downstream_offset + (upstream_offset != found.upstream_offset)

    def check_invariants(self) -> None:
        """Assert the rules between the syncs of each partition."""
        for syncs in self._syncs.values():
            assert len(syncs) == SLOTS
            for j in range(1, SLOTS):
                for i in range(j):
                    assert _is_recent(syncs[i], syncs[j], i, j), f"rule B: {i}, {j}"
                    assert _is_separated(syncs[i], syncs[j], i), f"rule C: {i}, {j}"


def _insert(syncs: list[OffsetSync], latest: OffsetSync) -> None:
    """Put the latest sync first. Each slot keeps its sync, or takes one that left an earlier slot, or repeats one."""
    former, used = list(syncs), -1
    syncs[0] = latest
    for slot in range(1, SLOTS):
        syncs[slot] = syncs[slot - 1]
        for source in range(slot, used, -1):
            if _fits(former, source, slot, syncs[slot - 1]):
                syncs[slot], used = former[source], source
                break


def _fits(former: list[OffsetSync], source: int, slot: int, newer: OffsetSync) -> bool:
    """Return whether a former sync keeps the rules in a slot. A moved one must not displace its successor."""
    sync = former[source]
    if not (_is_recent(newer, sync, slot - 1, slot) and _is_separated(newer, sync, slot - 1)):
        return False
    return source == slot or slot + 1 == SLOTS or _is_separated(sync, former[slot + 1], slot)


def _is_recent(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    # Equal syncs have equal offsets, so that they keep the rule: j is above i.
    return newer.upstream_offset <= older.upstream_offset + (1 << j) - (1 << i)


def _is_separated(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    # Numbers are compared first, since this is done some hundred times for each sync.
    return newer is older or newer.upstream_offset >= older.upstream_offset + (1 << max(i - 2, 0)) or newer == older
