"""Classic bugs of transactions that their simulation must find: ``python -m sim.transactions.planted_bugs``.

Each leaves out one rule of KIP-98, KIP-360, KIP-447 or KIP-890. Only the history of the clients is looked at.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sim import planting
from sim.cluster.bugs_of_records import keep_producers_after_truncation
from sim.outcome import Outcome
from sim.planting import Finding, Patch, PlantedBug, find
from sim.transactions.brokers import Broker
from sim.transactions.offsets import GroupOffsets
from sim.transactions.runs import run

from tidelog_foundation.errors import ErrorCode
from tidelog_node.log.appender import Appender
from tidelog_node.log.log_reader import LogReader
from tidelog_node.log.producers.state import ProducerState, _Producer
from tidelog_node.log.segments.transaction_index import TransactionIndex
from tidelog_node.shards.connections import ConnectionOrder
from tidelog_node.transactions import decisions, transitions
from tidelog_node.transactions import markers as markers_module
from tidelog_node.transactions import writes as writes_module
from tidelog_node.transactions.entries import Entry
from tidelog_node.transactions.events import WriteMarkers
from tidelog_node.transactions.markers import MarkerQueue
from tidelog_node.transactions.states import LEGAL_TRANSITIONS, NO_PRODUCER, Producer, TransactionState
from tidelog_node.transactions.upkeep import Upkeep
from tidelog_node.transactions.writes import Writes


def _mark_before_prepare_is_durable() -> list[Patch]:
    note_written, send_markers = Writes.note_written, Writes.send_markers

    def mark_at_once(self: Writes, write_id: int) -> Entry:
        entry = note_written(self, write_id)
        open_writes, entry.open_writes = entry.open_writes, deque()
        send_markers(self, self._open[write_id].transactional_id, entry)
        entry.open_writes = open_writes
        return entry

    def complete(self: Writes, transactional_id: str, producer: Producer, version: int, wall_ms: int) -> None:
        metadata = self._entries.get(transactional_id).metadata
        if metadata is not None and metadata.state.is_prepared and metadata.producer == producer:
            self.begin(transactional_id, transitions.complete(metadata, wall_ms), version)

    return [(Writes, "note_written", mark_at_once), (Writes, "complete", complete)]


def _answer_before_a_record_is_durable() -> list[Patch]:
    original = Writes.note_written

    def note_written(self: Writes, write_id: int) -> Entry:
        write = self._open[write_id]
        entry = original(self, write_id)
        if write.call_id is not None and write.response is not None:
            self._calls.answer(write.call_id, write.response)
        return entry

    return [(Writes, "note_written", note_written)]


def _skip_the_marker_of_one_partition() -> list[Patch]:
    original = MarkerQueue.add

    def add(self: MarkerQueue, shard: int, coordinator_epoch: int, markers: WriteMarkers) -> int:
        some = frozenset(sorted(markers.partitions)[:-1])
        return original(self, shard, coordinator_epoch, replace(markers, partitions=some))

    return [(MarkerQueue, "add", add)]


def _take_any_error_for_a_marker() -> list[Patch]:
    written = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return [(markers_module, "_WRITTEN", written)]


def _forget_markers_without_an_answer() -> list[Patch]:
    def fail(self: MarkerQueue, request_id: int, now_ms: int) -> None:
        request = self._requests[request_id]
        errors = {(item.markers_id, p): ErrorCode.NONE for item in request.transactions for p in item.partitions}
        self.answer(request_id, errors, now_ms)

    return [(MarkerQueue, "fail", fail)]


def _initialize_without_a_new_epoch() -> list[Patch]:
    original = transitions.initialize

    def initialize(current: Any, request: Any, new_producer_id: Any, wall_ms: int) -> Any:
        after = original(current, request, new_producer_id, wall_ms)
        if current is None or isinstance(after, transitions.Hindrance) or after.producer.id != current.client.id:
            return after
        return replace(after, producer=current.client)

    return [(transitions, "initialize", initialize)]


def _end_without_a_new_epoch() -> list[Patch]:
    """KIP-890: the next transaction has the epoch of this one, so that late requests pass for its own."""
    return [
        (transitions, "_successor", lambda client, _new: client),
        (transitions, "_is_repeated_end", lambda _current, _producer: False),
        (transitions, "_prepared", _prepared_in_the_same_epoch(transitions._prepared)),
    ]


def _prepared_in_the_same_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def prepared(current: Any, request: Any, new_producer_id: Any, wall_ms: int) -> Any:
        after = original(current, request, new_producer_id, wall_ms)
        return replace(after, producer=current.producer, next_producer=NO_PRODUCER, client_version=0)

    return prepared


def _apply_a_late_end_to_the_next_transaction() -> list[Patch]:
    """KAFKA-17754: the epoch before the current one is good enough, whatever transaction is open."""
    original = transitions.end

    def end(current: Any, request: Any, new_producer_id: Any, wall_ms: int) -> Any:
        is_former = request.producer == (current.client.id, current.client.epoch - 1)
        if is_former and current.state is TransactionState.ONGOING:
            request = replace(request, producer=current.client)
        return original(current, request, new_producer_id, wall_ms)

    return [(transitions, "end", end)]


def _let_zombies_through() -> list[Patch]:
    def check_producer(_current: Any, _transactional_id: str, _producer: Any) -> None:
        pass

    return [(transitions, "check_producer", check_producer)]


def _abort_without_fencing() -> list[Patch]:
    original = transitions.abort_fenced

    def abort_fenced(current: Any, version: int, wall_ms: int) -> Any:
        after = original(current, version, wall_ms)
        return replace(after, producer=current.producer, last_producer_epoch=current.last_producer_epoch)

    return [(transitions, "abort_fenced", abort_fenced)]


def _initialize_over_an_open_transaction() -> list[Patch]:
    def initialize(entry: Entry, request: Any, settings: Any, wall_ms: int) -> Any:
        current = entry.metadata
        if current is not None and current.state is TransactionState.ONGOING:
            current = transitions.complete(replace(current, state=TransactionState.PREPARE_ABORT), wall_ms)
            entry.metadata = current
        return original(entry, request, settings, wall_ms)

    original = decisions._initialize
    return [(decisions, "_initialize", initialize)]


def _never_time_out() -> list[Patch]:
    return [(Upkeep, "_abort_timed_out", lambda _self, _settings, _wall_ms: None)]


def _forget_prepared_transactions_of_the_former_coordinator() -> list[Patch]:
    return [(Upkeep, "_load", lambda _self, _name: None)]


def _abort_what_the_former_coordinator_prepared() -> list[Patch]:
    original = Upkeep._load

    def load(self: Upkeep, transactional_id: str) -> None:
        commands = self._writes._commands
        before = len(commands)
        original(self, transactional_id)
        for place in range(before, len(commands)):
            command = commands[place]
            if isinstance(command, WriteMarkers):
                commands[place] = replace(command, committed=False)

    return [(Upkeep, "_load", load)]


def _begin_the_next_before_the_markers_are_written() -> list[Patch]:
    original = transitions.add_partitions

    def add_partitions(current: Any, *arguments: Any) -> Any:
        if current.state.is_prepared and arguments[1] == current.client:
            current = transitions.complete(current, arguments[-1])
        return original(current, *arguments)

    legal = {**LEGAL_TRANSITIONS, TransactionState.ONGOING: tuple(TransactionState)}
    return [(transitions, "add_partitions", add_partitions), (writes_module, "LEGAL_TRANSITIONS", legal)]


def _verify_nothing() -> list[Patch]:
    return [(Broker, "needs_verification", lambda _self: False)]


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
    return [(ProducerState, "check", lambda _self, _header: None)]


def _take_markers_of_older_epochs() -> list[Patch]:
    def check_marker(_self: Any, _header: Any, _marker: Any, _transaction_version: int = 0) -> None:
        pass

    return [(ProducerState, "check_marker", check_marker)]


def _ignore_the_coordinator_epoch() -> list[Patch]:
    original = ProducerState.check_marker

    def check_marker(self: ProducerState, header: Any, marker: Any, transaction_version: int = 0) -> None:
        return original(self, header, replace(marker, coordinator_epoch=1 << 30), transaction_version)

    return [(ProducerState, "check_marker", check_marker)]


def _execute_requests_of_older_connections() -> list[Patch]:
    return [(ConnectionOrder, "is_late", lambda *_: False)]


def _tell_pending_offsets() -> list[Patch]:
    original = GroupOffsets._replay

    def replay(self: GroupOffsets) -> Any:
        committed, pending = original(self)
        for offsets in pending.values():
            committed |= offsets
        return committed, {}

    return [(GroupOffsets, "_replay", replay)]


PLANTED_BUGS = (
    PlantedBug("markers before the prepared state is durable", 100, _mark_before_prepare_is_durable),
    PlantedBug("answers before a transaction's record is durable", 20, _answer_before_a_record_is_durable),
    PlantedBug("one partition gets no marker", 20, _skip_the_marker_of_one_partition),
    PlantedBug("a refused marker counts as written", 20, _take_any_error_for_a_marker),
    PlantedBug("an unanswered marker counts as written", 20, _forget_markers_without_an_answer),
    PlantedBug("initialization raises no epoch", 20, _initialize_without_a_new_epoch),
    PlantedBug("the end of a transaction raises no epoch", 20, _end_without_a_new_epoch),
    PlantedBug("a late EndTxn ends the next transaction", 20, _apply_a_late_end_to_the_next_transaction),
    PlantedBug("requests of older connections are executed", 20, _execute_requests_of_older_connections),
    PlantedBug("the coordinator lets fenced producers through", 20, _let_zombies_through),
    PlantedBug("the abort after a timeout fences nobody", 20, _abort_without_fencing),
    PlantedBug("initialization forgets an open transaction", 20, _initialize_over_an_open_transaction),
    PlantedBug("transactions do not time out", 20, _never_time_out),
    PlantedBug(
        "a new coordinator forgets prepared transactions", 20, _forget_prepared_transactions_of_the_former_coordinator
    ),
    PlantedBug("a new coordinator aborts prepared transactions", 20, _abort_what_the_former_coordinator_prepared),
    PlantedBug(
        "the next transaction begins before the markers are written", 20, _begin_the_next_before_the_markers_are_written
    ),
    PlantedBug("leaders verify no transaction", 20, _verify_nothing),
    PlantedBug("leaders verify a producer once", 20, _verify_once_per_producer),
    PlantedBug("the last stable offset ignores transactions", 20, _serve_open_transactions),
    PlantedBug(
        "the last stable offset is that of the youngest transaction", 20, _decide_transactions_in_order_of_their_ends
    ),
    PlantedBug(
        "a former follower lists no aborted transactions", 20, _list_no_aborted_transactions_as_a_former_follower
    ),
    PlantedBug("a log keeps transactions of truncated records", 20, keep_producers_after_truncation),
    PlantedBug("a log does not check transactional batches", 20, _append_duplicates_again),
    PlantedBug("a log takes markers of any epoch", 20, _take_markers_of_older_epochs),
    PlantedBug("a log takes markers of former coordinators", 800, _ignore_the_coordinator_epoch),
    PlantedBug("pending offsets are told", 20, _tell_pending_offsets),
)
BY_NAME = {bug.name: bug for bug in PLANTED_BUGS}


def run_seed(seed: int) -> Outcome:
    """Run a seed without the cores' own invariants."""
    return run(seed, checks_invariants=False)


def main(arguments: list[str] | None = None) -> int:
    """Search for all planted bugs and print a table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.transactions.planted_bugs", description=__doc__)
    return planting.main(parser, PLANTED_BUGS, _find_by_name, arguments)


def _find_by_name(name: str) -> Finding:
    # A seed has no list of actions that could be left out.
    return find(BY_NAME[name], run_seed, lambda seed, violated: ())


if __name__ == "__main__":
    sys.exit(main())
