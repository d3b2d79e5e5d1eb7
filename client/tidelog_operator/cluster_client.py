"""Calls to a Tidelog cluster. Every method blocks, so the event loop calls it in a thread."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitionReassignment,
    ResourceType,
)
from tidelog.admin.quorum import QuorumAdmin
from tidelog_cli.balance.execution import DEFAULT_MOVES_PER_NODE
from tidelog_cli.balance.measurement import cordoned_nodes, take_snapshot
from tidelog_cli.balance.planner import make_plan
from tidelog_cli.balance.report import name
from tidelog_cli.balance.schedule import next_moves
from tidelog_cli.output.printing import settle
from tidelog_foundation.config.broker import CORDONED_LOG_DIRS
from tidelog_foundation.errors import OUTAGES, UNREACHABLE, ErrorCode, error_for
from tidelog_operator.scaling import NodesState

TIMEOUT_S: Final = 15.0
PASSING: Final = UNREACHABLE | OUTAGES | {ErrorCode.REQUEST_TIMED_OUT}
"""Errors that say nothing about the request: it is sent again, over a new connection."""
_CONTROLLER_PORT = 9093


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The ids of the leading controller, of the voters and of the observers."""

    leader: int
    voters: frozenset[int]
    observers: frozenset[int]


class ClusterClient:
    """The connection to one cluster; it lasts until `close`.

    ``controllers`` are the settings for connections to the controllers, where they differ from those to nodes.
    """

    def __init__(self, settings: Mapping[str, Any], controllers: Mapping[str, Any] | None = None) -> None:
        self.admin = AdminClient(dict(settings))
        try:
            self._quorum = QuorumAdmin(controllers or settings)
        except BaseException:
            self.admin.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._quorum.close()
        self.admin.close()

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return self.admin.describe_cluster(request_timeout=TIMEOUT_S).result().cluster_id

    def leader_id(self) -> int | None:
        """Return the id of the leading controller, or None if it is unknown."""
        controller = self.admin.describe_cluster(request_timeout=TIMEOUT_S).result().controller
        return None if controller is None else controller.id

    def stop_obstacles(self, process_id: int, *, is_controller: bool) -> list[str]:
        """Return what stands against stopping a process and passes with time; an empty list if it is safe."""
        future = self.admin.describe_stop_safety(process_id, is_controller=is_controller, request_timeout=TIMEOUT_S)
        found = future.result()
        if found.is_safe(ignores_unreplicated=True):
            return []
        return [f"{each.count} {each.kind}" for each in found.counts]

    def nodes_state(
        self, replicas: int, leaving: Collection[int], pods: Iterable[int], marked: Iterable[int]
    ) -> NodesState:
        """Return the nodes, and what stands against emptying those that are leaving."""
        snapshot = take_snapshot(self.admin, TIMEOUT_S, draining=leaving)
        cluster = self.admin.describe_cluster(request_timeout=TIMEOUT_S).result()
        registered = {node.id: 0 for node in cluster.nodes}
        for partition in snapshot.partitions.values():
            for node in partition.replicas:
                if node in registered:
                    registered[node] += 1
        # A move in progress still needs the replicas that it removes.
        for move in self.admin.list_partition_reassignments(request_timeout=TIMEOUT_S).result().values():
            for node in move.removing_replicas:
                if node in registered:
                    registered[node] += 1
        running = [node.id for node in cluster.nodes if node.id not in cluster.fenced_ids]
        obstacles = []
        if leaving:
            plan = make_plan(snapshot, only_leaving=True)
            obstacles = [
                f"{name(each.key)} cannot leave node {each.node}: {each.reason}"
                for each in plan.obstacles
                if each.node in leaving
            ]
        return NodesState(
            replicas,
            registered,
            frozenset(cluster.fenced_ids),
            frozenset(cordoned_nodes(self.admin, running, TIMEOUT_S)),
            frozenset(pods),
            tuple(obstacles),
            frozenset(marked),
        )

    def cordon(self, ids: Iterable[int]) -> None:
        """Keep new replicas away from nodes (KIP-1066)."""
        self._set_cordon(ids, ConfigEntry(CORDONED_LOG_DIRS, "*", incremental_operation=AlterConfigOpType.SET))

    def lift_cordon(self, ids: Iterable[int]) -> None:
        """Permit new replicas on nodes, and cancel the moves that take replicas from them."""
        nodes = set(ids)
        self._set_cordon(nodes, ConfigEntry(CORDONED_LOG_DIRS, None, incremental_operation=AlterConfigOpType.DELETE))
        ongoing = self.admin.list_partition_reassignments(request_timeout=TIMEOUT_S).result()
        leaving = {key: None for key, move in ongoing.items() if nodes & set(move.removing_replicas)}
        if leaving:
            _, errors = settle(self.admin.alter_partition_reassignments(leaving, request_timeout=TIMEOUT_S))
            for error in errors.values():
                if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                    raise error

    def drain(self, ids: Collection[int]) -> str:
        """Begin the next moves away from nodes, and return a sentence about what is left."""
        snapshot = take_snapshot(self.admin, TIMEOUT_S, draining=ids)
        plan = make_plan(snapshot, only_leaving=True)
        # Replicas on other nodes that are gone are left to a rebalance.
        moves = [move for move in plan.moves if set(ids) & set(move.removing)]
        ongoing = self.admin.list_partition_reassignments(request_timeout=TIMEOUT_S).result()
        begun = next_moves(moves, ongoing, DEFAULT_MOVES_PER_NODE)
        targets = {move.key: NewPartitionReassignment(move.after) for move in begun}
        if targets:
            _, errors = settle(self.admin.alter_partition_reassignments(targets, request_timeout=TIMEOUT_S))
            for key, error in errors.items():
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise error_for(error.code, f"{name(key)}: {error.message}")
        waiting = len(moves) - len(begun)
        return f"{len(begun) + len(ongoing)} partitions are moving, {waiting} are waiting"

    def unregister(self, ids: Iterable[int]) -> None:
        """Remove stopped nodes; a new one of the same id is not to be cordoned."""
        for node in ids:
            self.lift_cordon([node])
            self.admin.unregister_broker(node, request_timeout=TIMEOUT_S).result()

    def quorum(self) -> QuorumState:
        """Return the voters and observers of the quorum."""
        found = self._quorum.describe_metadata_quorum(request_timeout=TIMEOUT_S)
        return QuorumState(
            found.leader_id,
            frozenset(voter.replica_id for voter in found.voters),
            frozenset(observer.replica_id for observer in found.observers),
        )

    def add_voter(self, controller: int, host: str) -> None:
        """Give a controller a vote. It blocks until the controller has caught up."""
        found = self._quorum.describe_metadata_quorum(request_timeout=TIMEOUT_S)
        directory = next((o.directory_id for o in found.observers if o.replica_id == controller), b"")
        self._quorum.add_raft_voter(controller, directory, host, _CONTROLLER_PORT, request_timeout=60)

    def remove_voter(self, controller: int) -> None:
        """Take a controller's vote away."""
        self._quorum.remove_raft_voter(controller, request_timeout=60)

    def _set_cordon(self, ids: Iterable[int], entry: ConfigEntry) -> None:
        for node in ids:
            resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
            self.admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)[resource].result()


class ClusterClients:
    """One connection per cluster, made when it is first needed and again when its settings change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[str, tuple[object, ClusterClient]] = {}

    def get(
        self, cluster: str, settings: Mapping[str, Any], controllers: Mapping[str, Any] | None = None
    ) -> ClusterClient:
        """Return the connection to a cluster, whose arguments are those of :class:`ClusterClient`."""
        with self._lock:
            known = self._clients.get(cluster)
            if known is None or known[0] != (settings, controllers):
                if known is not None:
                    known[1].close()
                known = self._clients[cluster] = ((settings, controllers), ClusterClient(settings, controllers))
            return known[1]

    def forget(self, cluster: str) -> None:
        """Close the connection to a cluster that is deleted."""
        with self._lock:
            known = self._clients.pop(cluster, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        """Close all connections."""
        for cluster in list(self._clients):
            self.forget(cluster)
