"""Bugs of what is served and acknowledged, and of what logs and clients know of producers."""

from __future__ import annotations

from typing import Any

from sim.planting import Patch, PlantedBug, planted

from tidelog.producer.core.numbering import Numbering
from tidelog.producer.core.partition_queue import PartitionQueue
from tidelog_node.log.appender import Appender
from tidelog_node.log.log import PartitionLog
from tidelog_node.log.producer_replay import ProducerReplay
from tidelog_node.log.producers.state import ProducerState
from tidelog_node.partitions import partition as partition_module
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.reads import read_for_consumer
from tidelog_node.replication.leader import LeaderState


def _serve_above_the_high_watermark() -> list[Patch]:
    original = partition_module.read_for_consumer

    def read_for_consumer(log: Any, request: Any, _high_watermark: int) -> Any:
        return original(log, request, log.log_end_offset)

    return [(partition_module, "read_for_consumer", read_for_consumer)]


def _read_replicas_to_their_end() -> list[Patch]:
    """KIP-392: a follower serves consumers what is not committed."""

    def read_as_replica(self: Partition, request: Any) -> Any:
        self.state.check_leader_epoch(request.leader_epoch)
        return read_for_consumer(self.log, request, self.log.log_end_offset)

    return [(Partition, "read_as_replica", read_as_replica)]


def _tell_the_latest_offset_too_soon() -> list[Patch]:
    """KIP-207: before the records of earlier epochs are known to be committed."""
    return [(LeaderState, "latest_offset", lambda self: self.high_watermark)]


def _answer_before_replication() -> list[Patch]:
    original = Partition.replicated

    def replicated(self: Partition, _required_offset: int) -> Any:
        return original(self, 0)

    return [(Partition, "replicated", replicated)]


def _answer_duplicates_before_they_are_committed() -> list[Patch]:
    append, replicated = Partition.append, Partition.replicated
    duplicates: set[int] = set()

    def appended(self: Partition, records: bytes, needs_all_replicas: bool) -> Any:
        info = append(self, records, needs_all_replicas)
        duplicates.clear()
        if info.is_duplicate:
            duplicates.add(info.last_offset + 1)
        return info

    def waits(self: Partition, required_offset: int) -> Any:
        return replicated(self, 0 if required_offset in duplicates else required_offset)

    return [(Partition, "append", appended), (Partition, "replicated", waits)]


def _answer_duplicates_with_the_end() -> list[Patch]:
    """A batch that is there already is said to be where it would be appended now."""
    original = Partition.append

    def append(self: Partition, records: bytes, needs_all_replicas: bool) -> Any:
        end = self.log.log_end_offset
        info = original(self, records, needs_all_replicas)
        if info.is_duplicate:
            return info._replace(first_offset=end, last_offset=end + info.last_offset - info.first_offset)
        return info

    return [(Partition, "append", append)]


def _append_duplicates_again() -> list[Patch]:
    """The sequence is looked at when it is too high alone."""
    original = ProducerState.check

    def check(self: ProducerState, header: Any) -> None:
        original(self, header)

    return [(ProducerState, "check", check)]


def _no_sequence_check() -> list[Patch]:
    return [(ProducerState, "check", lambda _self, _header: None)]


def keep_producers_after_truncation() -> list[Patch]:
    """Have logs keep what they know of producers when they cut records off."""
    original = PartitionLog.truncate_to
    reads_nothing = PlantedBug("reads no producers", 0, lambda: [(ProducerReplay, "load", lambda *_: None)])

    def truncate_to(self: PartitionLog, offset: int) -> None:
        with planted(reads_nothing):
            original(self, offset)

    return [(PartitionLog, "truncate_to", truncate_to)]


def _forget_producers_as_a_follower() -> list[Patch]:
    original = Appender.append_as_follower

    def append_as_follower(self: Appender, records: Any, now_ms: int) -> Any:
        info = original(self, records, now_ms)
        self._producers.snapshots.clear()
        return info

    return [(Appender, "append_as_follower", append_as_follower)]


def _number_anew_what_may_be_stored() -> list[Patch]:
    """KIP-360: a producer begins another epoch with a batch that the log may have."""
    return [(PartitionQueue, "_doubt", lambda *_: None)]


def _follow_before_the_first_is_known() -> list[Patch]:
    """A producer sends its second batch to a leader that may not know it, and takes that one first."""
    return [(Numbering, "is_known_to", lambda *_: True)]


RECORD_BUGS = (
    PlantedBug("serves above the high watermark", 20, _serve_above_the_high_watermark),
    PlantedBug("serves from replicas above the high watermark", 20, _read_replicas_to_their_end),
    PlantedBug("tells the latest offset too soon", 300, _tell_the_latest_offset_too_soon),
    PlantedBug("answers before the records are replicated", 20, _answer_before_replication),
    PlantedBug("answers a duplicate before it is committed", 60, _answer_duplicates_before_they_are_committed),
    PlantedBug("answers a duplicate with another offset", 20, _answer_duplicates_with_the_end),
    PlantedBug("appends a duplicate again", 20, _append_duplicates_again),
    PlantedBug("does not check sequences", 20, _no_sequence_check),
    PlantedBug("keeps producers of truncated records", 600, keep_producers_after_truncation),
    PlantedBug("a follower forgets the producers", 20, _forget_producers_as_a_follower, 1),
    PlantedBug("a producer numbers anew what may be stored", 300, _number_anew_what_may_be_stored),
    PlantedBug("a producer trusts a leader that may not know it", 400, _follow_before_the_first_is_known),
)
