"""Bugs in the logs of partitions and their leaders: verification, markers, stable offsets, aborted transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sim.cluster.bugs_of_records import keep_producers_after_truncation
from sim.cluster.coordination import Coordination
from sim.planting import Patch, PlantedBug

from tidelog_node.log import NO_GUARD
from tidelog_node.log.appender import Appender
from tidelog_node.log.log_reader import LogReader
from tidelog_node.log.producers.state import ProducerState, _Producer
from tidelog_node.log.segments.transaction_index import TransactionIndex


def _verify_nothing() -> list[Patch]:
    return [(Coordination, "needs_verification", lambda _self, *, adds: False)]


def _verify_once_per_producer() -> list[Patch]:
    """An open transaction of an older epoch counts as verified."""

    def would_begin_transaction(self: _Producer, _header: Any) -> bool:
        return bool(self.txn_first_offset < 0)

    return [(_Producer, "would_begin_transaction", would_begin_transaction)]


def _serve_open_transactions() -> list[Patch]:
    return [(LogReader, "last_stable_offset", lambda _self, high_watermark: high_watermark)]


def _decide_transactions_in_order_of_their_ends() -> list[Patch]:
    """The end of one transaction makes everything before it stable, whatever else is open."""

    def last_stable_offset(self: LogReader, high_watermark: int) -> int:
        state = self._producers.snapshots.state
        state.advance_high_watermark(high_watermark)
        youngest = max(state._ongoing, default=None)
        return high_watermark if youngest is None else min(high_watermark, youngest)

    return [(LogReader, "last_stable_offset", last_stable_offset)]


def _list_no_aborted_transactions_as_a_former_follower() -> list[Patch]:
    """The index of aborted transactions has those that this replica ended as a leader alone."""
    append_as_leader, append_to_index = Appender.append_marker, TransactionIndex.append
    leading: list[bool] = []

    def append_marker(self: Appender, *arguments: Any) -> Any:
        leading.append(True)
        try:
            return append_as_leader(self, *arguments)
        finally:
            leading.clear()

    def append(self: TransactionIndex, transaction: Any) -> None:
        if leading:
            append_to_index(self, transaction)

    return [(Appender, "append_marker", append_marker), (TransactionIndex, "append", append)]


def _append_duplicates_again() -> list[Patch]:
    return [(ProducerState, "check", lambda _self, _header, _guard=NO_GUARD: None)]


def _take_markers_of_older_epochs() -> list[Patch]:
    def check_marker(_self: Any, _header: Any, _marker: Any, _transaction_version: int = 0) -> None:
        pass

    return [(ProducerState, "check_marker", check_marker)]


def _ignore_the_coordinator_epoch() -> list[Patch]:
    original = ProducerState.check_marker

    def check_marker(self: ProducerState, header: Any, marker: Any, transaction_version: int = 0) -> None:
        return original(self, header, replace(marker, coordinator_epoch=1 << 30), transaction_version)

    return [(ProducerState, "check_marker", check_marker)]


LOG_BUGS = (
    PlantedBug("leaders verify no transaction", 20, _verify_nothing),
    PlantedBug("leaders verify a producer once", 300, _verify_once_per_producer),
    PlantedBug("the last stable offset ignores transactions", 20, _serve_open_transactions, 2),
    PlantedBug(
        "the last stable offset is that of the youngest transaction", 20, _decide_transactions_in_order_of_their_ends, 2
    ),
    PlantedBug(
        "a former follower lists no aborted transactions", 20, _list_no_aborted_transactions_as_a_former_follower, 2
    ),
    PlantedBug("a log keeps transactions of truncated records", 200, keep_producers_after_truncation),
    PlantedBug("a log does not check transactional batches", 20, _append_duplicates_again, 1),
    PlantedBug("a log takes markers of any epoch", 300, _take_markers_of_older_epochs),
    PlantedBug("a log takes markers of former coordinators", 120, _ignore_the_coordinator_epoch),
)
