"""Partitions with two replicas each, and the leader of each: the product's logs on disks in memory.

Replication itself is simulated in the simplest way: the follower copies the leader's log now and then, and what it has
is committed. A change of leaders swaps the two, so that a tail that was not copied is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from memory_disk import MemoryFiles

from tidelog.consumer.columns import readable_batches
from tidelog.consumer.core.events import Deliver
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import ControlType, control_batch, parse_header, read_records
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.append_rules import AppendInfo
from tidelog_node.partitions.reads import ReadRequest, read_for_consumer
from tidelog_node.transactions.events import WriteMarkers

Key: TypeAlias = tuple[str, int]
Found: TypeAlias = list[tuple[int, bytes, bytes]]
"""The offset, key and value of records."""

_CONFIG = LogConfig(segment_bytes=4_000)
_MAX_BYTES = 2_000


class SimulatedPartition:
    """One partition. ``leader`` is the number of the broker that leads it, in ``epoch``."""

    def __init__(self, key: Key, leader: int) -> None:
        self.key = key
        self.leader = leader
        self.epoch = 1
        self.high_watermark = 0
        self._logs = [_open(key, place) for place in (0, 1)]

    @property
    def log(self) -> PartitionLog:
        """The leader's log."""
        return self._logs[0]

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset on the leader."""
        return self.log.last_stable_offset(self.high_watermark)

    def check_leader(self, broker: int, epoch: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless a broker leads the partition in an epoch."""
        if (broker, epoch) != (self.leader, self.epoch):
            text = f"{self.key} is led by {self.leader} in epoch {self.epoch}, not by {broker} in {epoch}"
            raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def append(self, batch: bytes, now_ms: int, guard: int) -> AppendInfo:
        """Append a client's batch as the leader."""
        return self.log.append_as_leader(batch, self.epoch, now_ms, guard)

    def append_markers(self, markers: WriteMarkers, coordinator_epoch: int, now_ms: int) -> int:
        """Append the marker of a transaction as the leader, and return the end of the log.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        kind = ControlType.COMMIT if markers.committed else ControlType.ABORT
        batch = control_batch(kind, *markers.producer, coordinator_epoch, now_ms)
        return self.log.append_marker(batch, self.epoch, now_ms, markers.version).last_offset + 1

    def replicate(self, now_ms: int) -> None:
        """Let the follower copy some of the log, and commit what it has."""
        leader, follower = self._logs
        if follower.log_end_offset < leader.log_end_offset:
            records = leader.read(follower.log_end_offset, _MAX_BYTES, leader.log_end_offset)
            follower.append_as_follower(records, now_ms)
        self.high_watermark = max(self.high_watermark, follower.log_end_offset)

    def change_leader(self, broker: int) -> None:
        """Let the follower lead, at a broker. The former leader loses what nobody else has."""
        self._logs.reverse()
        leader, follower = self._logs
        follower.truncate_to(leader.log_end_offset)
        self.leader, self.epoch = broker, self.epoch + 1

    def read(self, offset: int, *, is_read_committed: bool, from_follower: bool = False) -> tuple[Found, int]:
        """Return the visible records from an offset on, and the next offset."""
        log = self._logs[1] if from_follower else self.log
        limit = min(self.high_watermark, log.log_end_offset)
        request = ReadRequest(offset, _MAX_BYTES, is_read_committed=is_read_committed)
        try:
            result = read_for_consumer(log, request, limit)
        except TidelogError:
            return [], offset
        aborted = tuple((t.producer_id, t.first_offset) for t in result.aborted or ())
        item = Deliver(*self.key, 0, offset, result.records, aborted)
        found: Found = []
        end = offset
        for position, header in readable_batches(item):
            for record in read_records(result.records, position):
                if record.offset >= offset:
                    found.append((record.offset, record.key or b"", record.value or b""))
            end = header.next_offset
        position = 0
        while position < len(result.records):
            header = parse_header(result.records, position)
            end, position = max(end, header.next_offset), position + header.size_in_bytes
        return found, end


def _open(key: Key, place: int) -> PartitionLog:
    files, directory = MemoryFiles(), Path(f"/{key[0]}-{key[1]}-{place}")
    return PartitionLog.open(directory, _CONFIG, files=files, producer_id_expiration_ms=1 << 60)
