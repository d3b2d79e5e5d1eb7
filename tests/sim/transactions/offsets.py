"""The offsets of a group in a partition of __consumer_offsets, as a function of its log.

An offset that a transaction commits is pending until its marker is replicated.
"""

from __future__ import annotations

from sim.transactions.partitions import Key, SimulatedPartition

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import iter_headers, read_records
from tidelog_node.log.producers.entries import read_marker

_ALL_BYTES = 1 << 30
NOTHING = -1


class GroupOffsets:
    """The offsets in one partition. A record's key is a name, its value an offset."""

    def __init__(self, partition: SimulatedPartition) -> None:
        self.partition = partition

    @property
    def key(self) -> Key:
        """The partition of __consumer_offsets."""
        return self.partition.key

    def stable_offset(self, name: Key) -> int | TidelogError:
        """Return the committed offset of a partition, or UNSTABLE_OFFSET_COMMIT while a transaction may change it."""
        committed, pending = self._replay()
        if any(name in offsets for offsets in pending.values()):
            return error_for(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"the offset of {name} is pending")
        return committed.get(name, NOTHING)

    def _replay(self) -> tuple[dict[Key, int], dict[int, dict[Key, int]]]:
        log, committed = self.partition.log, dict[Key, int]()
        pending: dict[int, dict[Key, int]] = {}
        at = 0
        while at < log.log_end_offset:
            records = log.read(at, _ALL_BYTES, log.log_end_offset)
            for position, header in iter_headers(records):
                at = header.next_offset
                batch = memoryview(records)[position : position + header.size_in_bytes]
                marker = read_marker(batch)
                if marker is None:
                    for record in read_records(records, position):
                        offsets = pending.setdefault(header.producer_id, {})
                        offsets[key_of(record.key)] = int(record.value or b"")
                elif at <= self.partition.high_watermark:
                    offsets = pending.pop(header.producer_id, {})
                    committed |= offsets if marker.is_commit else {}
        return committed, pending


def name_of(key: Key) -> str:
    """Return a partition's name in a history."""
    return f"{key[0]}-{key[1]}"


def key_of(name: bytes | None) -> Key:
    """Return the partition of a name."""
    topic, _, index = (name or b"").decode().rpartition("-")
    return topic, int(index)
