"""Bugs in the coordinator of transactions: each leaves out one rule of KIP-98, KIP-360 or KIP-890."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sim.planting import Patch, PlantedBug

from tidelog_foundation.errors import ErrorCode
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


def _begin_the_next_before_markers_are_written() -> list[Patch]:
    original = transitions.add_partitions

    def add_partitions(current: Any, *arguments: Any) -> Any:
        if current.state.is_prepared and arguments[1] == current.client:
            current = transitions.complete(current, arguments[-1])
        return original(current, *arguments)

    legal = {**LEGAL_TRANSITIONS, TransactionState.ONGOING: tuple(TransactionState)}
    return [(transitions, "add_partitions", add_partitions), (writes_module, "LEGAL_TRANSITIONS", legal)]


def _execute_requests_of_older_connections() -> list[Patch]:
    return [(ConnectionOrder, "is_late", lambda *_: False)]


COORDINATOR_BUGS = (
    PlantedBug("markers before the prepared state is durable", 500, _mark_before_prepare_is_durable),
    PlantedBug("answers before a transaction's record is durable", 60, _answer_before_a_record_is_durable),
    PlantedBug("one partition gets no marker", 20, _skip_the_marker_of_one_partition, 2),
    PlantedBug("a refused marker counts as written", 150, _take_any_error_for_a_marker),
    PlantedBug("an unanswered marker counts as written", 100, _forget_markers_without_an_answer),
    PlantedBug("initialization raises no epoch", 20, _initialize_without_a_new_epoch, 2),
    PlantedBug("the end of a transaction raises no epoch", 120, _end_without_a_new_epoch),
    PlantedBug("a late EndTxn ends the next transaction", 300, _apply_a_late_end_to_the_next_transaction),
    PlantedBug("requests of older connections are executed", 200, _execute_requests_of_older_connections),
    PlantedBug("the coordinator lets fenced producers through", 100, _let_zombies_through),
    PlantedBug("the abort after a timeout fences nobody", 20, _abort_without_fencing, 2),
    PlantedBug("initialization forgets an open transaction", 20, _initialize_over_an_open_transaction, 4),
    PlantedBug("transactions do not time out", 20, _never_time_out, 4),
    PlantedBug(
        "a new coordinator forgets prepared transactions",
        20,
        _forget_prepared_transactions_of_the_former_coordinator,
        2,
    ),
    PlantedBug("a new coordinator aborts prepared transactions", 80, _abort_what_the_former_coordinator_prepared),
    PlantedBug(
        "the next transaction begins before the markers are written",
        100,
        _begin_the_next_before_markers_are_written,
    ),
)
