"""Bugs in the offsets that transactions commit for groups (KIP-447)."""

from __future__ import annotations

from typing import Any

from sim.cluster.shards import SimulatedShard
from sim.planting import Patch, PlantedBug

from tidelog_node.coordination.group_coordinator import _GroupKind
from tidelog_node.coordination.shard_contents import ShardContents
from tidelog_node.groups import offset_requests
from tidelog_node.groups.offsets import CommittedOffsets
from tidelog_node.log import PartitionLog
from tidelog_node.shards.pending import PendingRecords


def _tell_pending_offsets() -> list[Patch]:
    """A transaction's offsets are committed ones as soon as they are in the log."""

    def add(self: ShardContents, producer_id: int, offset: int, records: Any, position: Any) -> None:
        self.apply(records, position)

    return [(ShardContents, "add", add)]


def _require_no_stable_offsets() -> list[Patch]:
    return [(CommittedOffsets, "unstable", property(lambda _self: set()))]


def _forget_open_transactions_at_a_load() -> list[Patch]:
    """The view's position passes the first records of open transactions: a load does not read them again."""

    return [(ShardContents, "_position", lambda self: self.last)]


def _apply_offsets_of_aborted_transactions() -> list[Patch]:
    original = PendingRecords.end

    def end(self: PendingRecords, producer_id: int, *, committed: bool) -> Any:
        return original(self, producer_id, committed=True)

    return [(PendingRecords, "end", end)]


def _end_all_open_transactions_of_a_shard() -> list[Patch]:
    """The marker of one producer drops what other producers have pending."""
    original = PendingRecords.end

    def end(self: PendingRecords, producer_id: int, *, committed: bool) -> Any:
        ended = original(self, producer_id, committed=committed)
        for other in list(self._transactions):
            original(self, other, committed=False)
        return ended

    return [(PendingRecords, "end", end)]


def _keep_offsets_from_before_a_transaction() -> list[Patch]:
    """A loaded group does not take over what a transaction has changed."""
    return [(_GroupKind, "transaction_ended", lambda _self, _owners: None)]


def _take_offsets_of_former_members() -> list[Patch]:
    """KIP-447: whoever commits offsets in a transaction is taken for a member."""
    return [(offset_requests, "_check_txn_commit", lambda _loaded, _request: None)]


def _load_before_everything_is_committed() -> list[Patch]:
    """A new coordinator does not wait for what the former one wrote last."""

    def load(self: SimulatedShard) -> None:
        log = self.partition.log
        end = PartitionLog.log_end_offset
        committed = self.partition.high_watermark
        PartitionLog.log_end_offset = property(  # type: ignore[method-assign, assignment]
            lambda each: committed if each is log else end.fget(each)  # type: ignore[attr-defined]
        )
        try:
            original(self)
        finally:
            PartitionLog.log_end_offset = end  # type: ignore[method-assign]

    original = SimulatedShard._load
    return [(SimulatedShard, "_load", load)]


OFFSET_BUGS = (
    PlantedBug("pending offsets are told", 20, _tell_pending_offsets, 2),
    PlantedBug("unstable offsets are told", 300, _require_no_stable_offsets),
    PlantedBug("a load forgets open transactions", 200, _forget_open_transactions_at_a_load),
    PlantedBug("aborted offsets take effect", 20, _apply_offsets_of_aborted_transactions, 2),
    PlantedBug("a marker ends all transactions of a shard", 120, _end_all_open_transactions_of_a_shard),
    PlantedBug("a group keeps its offsets from before a transaction", 20, _keep_offsets_from_before_a_transaction, 2),
    PlantedBug("a group takes offsets of former members", 300, _take_offsets_of_former_members),
    PlantedBug("a shard is loaded before its log is committed", 20, _load_before_everything_is_committed, 17),
)
