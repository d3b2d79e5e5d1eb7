"""Moves replicas of the workload's partitions to other nodes, and back: changes of membership under load (KIP-455).

One replica of a partition is exchanged for a node that has none; if every node has one, it is removed, which leaves the
partition with one fewer. A call of unknown outcome counts as done: the earlier replicas of a partition are remembered
until they certainly have it again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from tidelog.admin import AdminClient, NewPartitionReassignment
from tidelog.admin.metadata import ClusterMetadata, PartitionMetadata
from tidelog.message import TopicPartition
from tidelog_chaos.workload.keys import partition_of
from tidelog_foundation.errors import TidelogError

_ASK_TIMEOUT_S = 3.0
_MOVE_TIMEOUT_S = 5.0
_RESTORE_S = 60.0
_PAUSE_S = 0.5
_MOST_KEYS = 3


@dataclass(frozen=True, slots=True)
class Move:
    """A requested move: the nodes of each key before, and the target nodes."""

    before: Mapping[str, Sequence[int]]
    targets: Mapping[str, Sequence[int]]

    def __str__(self) -> str:
        parts = (f"{key} {list(self.before[key])} to {list(target)}" for key, target in self.targets.items())
        return "; ".join(parts)


class Moves:
    """The moves of a run; only the nemesis's thread uses them. ``keys`` returns the partitions that are written to now.

    A partition without ``replication_factor`` replicas is already moving and left alone.
    """

    def __init__(self, admin: AdminClient, keys: Callable[[], Sequence[str]], replication_factor: int) -> None:
        self._admin = admin
        self._keys = keys
        self._factor = replication_factor
        self._before: dict[str, tuple[int, ...]] = {}
        self._due: set[str] = set()
        self._moving: dict[str, Future[None]] = {}
        self._returning: dict[str, Future[None]] = {}

    def begin(self, kind: str, dice: random.Random) -> Move | None:
        """Move the ``leader``'s replica, or a ``follower``'s, of up to three partitions; None if that is impossible.

        It only requests the move before it returns. Partitions of an earlier move are left to it.
        """
        self._give_back()
        known = self._ask()
        if known is None:
            return None
        free = [key for key in self._keys() if key not in self._before]
        before: dict[str, tuple[int, ...]] = {}
        targets: dict[str, Sequence[int]] = {}
        for key in dice.sample(free, min(len(free), dice.randint(1, _MOST_KEYS))):
            partition = _find(known, key)
            if partition is not None and partition.leader >= 0 and len(partition.replicas) == self._factor > 1:
                before[key] = tuple(partition.replicas)
                targets[key] = _target(partition, kind, sorted(known.brokers), dice)
        if not targets:
            return None
        self._before.update(before)
        self._moving.update(self._alter(targets))
        return Move(before, targets)

    def undo(self, move: Move) -> None:
        """Request that partitions move back to their earlier nodes; :meth:`restore` handles failures."""
        self._due.update(move.before)
        self._give_back()

    def restore(self) -> None:
        """Move back all remaining partitions once the cluster answers; raise RuntimeError on a timeout."""
        deadline_s = time.monotonic() + _RESTORE_S
        self._due.update(self._before)
        while True:
            self._give_back()
            if not self._before:
                return
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{', '.join(self._before)} could not be moved back in {_RESTORE_S:.0f} s")
            time.sleep(_PAUSE_S)

    def _give_back(self) -> None:
        """Request due moves, each after the answer to the request before, which could otherwise take effect later."""
        self._take_answers()
        due = self._due.difference(self._moving, self._returning)
        self._returning.update(self._alter({key: self._before[key] for key in sorted(due)}))
        self._take_answers()

    def _take_answers(self) -> None:
        """Forget the partitions that have certainly moved back."""
        self._moving = {key: future for key, future in self._moving.items() if not future.done()}
        for key, future in list(self._returning.items()):
            if future.done():
                del self._returning[key]
                if future.exception() is None:
                    self._due.remove(key)
                    del self._before[key]

    def _alter(self, targets: Mapping[str, Sequence[int]]) -> dict[str, Future[None]]:
        """Request the targets without waiting for the answers, which may take long while faults are active."""
        wanted = {TopicPartition(*partition_of(key)): key for key in targets}
        if not wanted:
            return {}
        futures = self._admin.alter_partition_reassignments(
            {partition: NewPartitionReassignment(targets[key]) for partition, key in wanted.items()},
            operation_timeout=_MOVE_TIMEOUT_S,
            request_timeout=2 * _MOVE_TIMEOUT_S,
        )
        return {wanted[partition]: future for partition, future in futures.items()}

    def _ask(self) -> ClusterMetadata | None:
        try:
            return self._admin.list_topics(timeout=_ASK_TIMEOUT_S)
        except TidelogError:
            return None


def _find(known: ClusterMetadata, key: str) -> PartitionMetadata | None:
    topic, number = partition_of(key)
    return known.topics[topic].partitions.get(number) if topic in known.topics else None


def _target(partition: PartitionMetadata, kind: str, nodes: Sequence[int], dice: random.Random) -> list[int]:
    followers = [node for node in partition.replicas if node != partition.leader]
    leaving = partition.leader if kind == "leader" else dice.choice(followers)
    others = [node for node in nodes if node not in partition.replicas]
    coming = [dice.choice(others)] if others else []
    return [node for node in partition.replicas if node != leaving] + coming
