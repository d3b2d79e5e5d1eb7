"""Executes a plan: begins its moves a few at a time, waits for them, elects the preferred leaders (KIP-455, KIP-73).

The cluster's own reassignments are the only state. An execution that ends early, for whatever reason, leaves those that
are in progress to the cluster; a new plan takes them into account, and its execution waits for them too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.admin import (
    AdminClient,
    ConfigResource,
    ElectionType,
    NewPartitionReassignment,
    PartitionReassignment,
    ResourceType,
)
from tidelog.message import TopicPartition
from tidelog_cli.balance.measurement import copied_bytes
from tidelog_cli.balance.planner import Move, Plan
from tidelog_cli.balance.progress import MoveProgress
from tidelog_cli.balance.report import name
from tidelog_cli.balance.schedule import MAX_BATCH, next_moves
from tidelog_cli.options.connection import Session
from tidelog_cli.output.printing import fail, settle
from tidelog_cli.partitions import throttles
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_POLL_S = 0.5
DEFAULT_MOVES_PER_NODE = 5
_METADATA_S = 5.0
"""The node that answers may learn of the end of a move a little later than the controller."""
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


@dataclass(frozen=True, slots=True)
class Pace:
    """Limits of an execution: moves in progress per node, and bytes per second that each node sends and fetches."""

    moves_per_node: int = DEFAULT_MOVES_PER_NODE
    throttle: int | None = None


class Execution:
    """Executes one plan; :meth:`run` is called once."""

    def __init__(self, session: Session, admin: AdminClient, plan: Plan, pace: Pace) -> None:
        self._session = session
        self._admin = admin
        self._plan = plan
        self._pace = pace
        self._pending = list(plan.moves)
        self._begun: dict[TopicPartition, Move] = {}
        self._done: list[Move] = []

    def run(self) -> None:
        """Execute the plan, and return when it is complete.

        Raises:
            TidelogError: a move was refused, or cancelled by somebody else; a preferred leader was not elected.
        """
        if self._pace.throttle is not None:
            self._limit(self._pace.throttle)
        with MoveProgress(self._session, self._plan.bytes) as progress:
            while self._step(progress):
                time.sleep(_POLL_S)
        clear_throttles(self._admin, self._session.timeout_s)
        self._elect()

    def _step(self, progress: MoveProgress) -> bool:
        """Begin the moves that can begin, and return whether any is left to wait for."""
        ongoing = self._admin.list_partition_reassignments(request_timeout=self._session.timeout_s).result()
        self._settle(ongoing)
        moves = next_moves(self._pending, ongoing, self._pace.moves_per_node)
        for batch in (moves[i : i + MAX_BATCH] for i in range(0, len(moves), MAX_BATCH)):
            self._begin(batch)
        adding = {key: reassignment.adding_replicas for key, reassignment in ongoing.items() if key in self._begun}
        copied = copied_bytes(self._admin, adding, self._session.timeout_s) if adding else {}
        total = sum(move.bytes for move in self._done) + sum(copied.values())
        progress.show(len(self._done), len(self._begun.keys() | ongoing.keys()), len(self._pending), total)
        return bool(self._pending or self._begun or ongoing)

    def _begin(self, moves: list[Move]) -> None:
        targets = {move.key: NewPartitionReassignment(move.after) for move in moves}
        begun, errors = settle(
            self._admin.alter_partition_reassignments(targets, request_timeout=self._session.timeout_s)
        )
        self._begun |= {move.key: move for move in moves if move.key in begun}
        self._pending = [move for move in self._pending if move.key not in targets]
        fail(error_for(e.code, f"{name(key)}: {e.message}") for key, e in errors.items() if e.code not in _GONE)

    def _settle(self, ongoing: Mapping[TopicPartition, PartitionReassignment]) -> None:
        """Note the moves that have ended.

        Raises:
            TidelogError: one has ended without its target replicas.
        """
        ended = {key: move for key, move in self._begun.items() if key not in ongoing}
        deadline_s = time.monotonic() + _METADATA_S
        while True:
            current = replicas_of(self._admin, ended, self._session.timeout_s)
            wrong = [key for key, move in ended.items() if current.get(key, move.after) != move.after]
            if not wrong or time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_S)
        if wrong:
            text = f"stopped: the moves of {', '.join(map(name, wrong))} were cancelled or replaced"
            raise error_for(ErrorCode._INVALID_ARG, text)
        for key in ended:
            self._done.append(self._begun.pop(key))

    def _limit(self, bytes_per_second: int) -> None:
        ongoing = self._admin.list_partition_reassignments(request_timeout=self._session.timeout_s).result()
        wanted = {move.key: move.after for move in self._plan.moves if move.adding}
        current = {move.key: move.before for move in self._plan.moves}
        moves = throttles.moves_of(wanted, current, ongoing)
        if not moves:
            return
        throttles.set_throttle(self._admin, moves, bytes_per_second, self._session.timeout_s)

    def _elect(self) -> None:
        keys = {*self._plan.elections, *(m.key for m in self._done if m.before[0] != m.after[0] or m.removing)}
        if keys:
            elect_preferred(self._session, self._admin, keys)


def elect_preferred(session: Session, admin: AdminClient, keys: Iterable[TopicPartition]) -> None:
    """Elect the preferred leaders of partitions; those that have them already and deleted ones are fine.

    Raises:
        TidelogError: a preferred leader could not be elected.
    """
    timeout_s = session.timeout_s
    kind, wanted = ElectionType.PREFERRED, sorted(keys)
    outcomes = admin.elect_leaders(kind, wanted, operation_timeout=timeout_s, request_timeout=timeout_s).result()
    fine = (ErrorCode.ELECTION_NOT_NEEDED, *_GONE)
    errors = {key: error for key, error in outcomes.items() if error is not None and error.code not in fine}
    fail(error_for(error.code, f"{name(key)}: {error.message}") for key, error in errors.items())


def watch(session: Session, admin: AdminClient) -> int:
    """Show the progress of all reassignments until none is in progress, and return their number."""
    timeout_s, known = session.timeout_s, set[TopicPartition]()
    with MoveProgress(session, 0) as progress:
        while True:
            ongoing = admin.list_partition_reassignments(request_timeout=timeout_s).result()
            known |= ongoing.keys()
            adding = {key: reassignment.adding_replicas for key, reassignment in ongoing.items()}
            copied = sum(copied_bytes(admin, adding, timeout_s).values()) if adding else 0
            progress.show(len(known) - len(ongoing), len(ongoing), 0, copied)
            if not ongoing:
                return len(known)
            time.sleep(_POLL_S)


def stop(admin: AdminClient, timeout_s: float) -> list[TopicPartition]:
    """Cancel all reassignments in progress, remove their throttles, and return their partitions.

    Raises:
        TidelogError: a cancellation was refused.
    """
    ongoing = admin.list_partition_reassignments(request_timeout=timeout_s).result()
    cancelled, errors = settle(
        admin.alter_partition_reassignments(dict.fromkeys(ongoing), request_timeout=timeout_s) if ongoing else {}
    )
    clear_throttles(admin, timeout_s)
    ended = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    fail(error_for(e.code, f"{name(key)}: {e.message}") for key, e in errors.items() if e.code is not ended)
    return sorted(cancelled)


def clear_throttles(admin: AdminClient, timeout_s: float) -> None:
    """Remove the throttles of reassignments from all nodes and topics that have any."""
    nodes = [node.id for node in admin.describe_cluster(request_timeout=timeout_s).result().nodes]
    topics = list(admin.list_topics(timeout=timeout_s).topics)
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    configs, _ = settle(admin.describe_configs(resources, request_timeout=timeout_s) if resources else {})
    lists = (throttles.LEADER_REPLICAS, throttles.FOLLOWER_REPLICAS)
    limited = [r.name for r, found in configs.items() if any(found[key].value for key in lists if key in found)]
    if limited:
        throttles.clear_throttles(admin, nodes, limited, timeout_s)


def replicas_of(
    admin: AdminClient, keys: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of partitions, without those that have been deleted."""
    wanted = set(keys)
    if not wanted:
        return {}
    topics = sorted({key.topic for key in wanted})
    found, errors = settle(admin.describe_topics(topics, request_timeout=timeout_s))
    _raise_unless_gone(errors.values())
    replicas = {
        TopicPartition(topic, partition.id): tuple(node.id for node in partition.replicas)
        for topic, description in found.items()
        for partition in description.partitions
    }
    return {key: replicas[key] for key in wanted & replicas.keys()}


def _raise_unless_gone(errors: Iterable[TidelogError]) -> None:
    fail(error for error in errors if error.code not in _GONE)
