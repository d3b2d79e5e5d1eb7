"""The history of a run as lines of text, for people who look for a cause: what replicas, metadata and processes did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.cluster.cluster import Cluster

if TYPE_CHECKING:
    from sim.cluster.replicas import SimulatedPartition


class Trace:
    """Collects a line for every change of a replica, of the metadata and of a process."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._seen: dict[tuple[int, Any], str] = {}

    def follow(self, cluster: Cluster) -> None:
        """Collect what happens in a cluster from now on."""
        checker = cluster.checker
        observe, note_committed = checker.observe, checker.metadata.note_committed
        for node in cluster.nodes.values():
            for name in ("start", "kill", "lose_power", "shut_down"):
                setattr(node, name, self._telling(cluster, f"{node.number} {name}", getattr(node, name)))

        def observed(partition: SimulatedPartition) -> None:
            self._note_replica(cluster, partition)
            observe(partition)

        def committed(index: int, term: int, payload: bytes) -> None:
            is_new = index > checker.metadata.latest.offset
            note_committed(index, term, payload)
            if is_new:
                self._note_partitions(cluster)

        checker.observe = observed  # type: ignore[method-assign]
        checker.metadata.note_committed = committed  # type: ignore[method-assign]

    def _note_replica(self, cluster: Cluster, partition: SimulatedPartition) -> None:
        log, state = partition.log, partition.state
        role = f"leads with {state.leader.isr}" if state.leader is not None else f"follows {state.leader_id}"
        text = f"[{log.log_start_offset}, {log.log_end_offset}) hw {state.high_watermark} epoch {state.leader_epoch}"
        self._note(cluster, (partition.node.number, partition.key), f"{text} {role}")

    def _note_partitions(self, cluster: Cluster) -> None:
        for topic, index, partition in cluster.checker.metadata.latest.partitions():
            text = (
                f"metadata: leader {partition.leader} epochs {partition.leader_epoch}/{partition.partition_epoch} "
                f"replicas {partition.replicas} isr {partition.isr} elr {partition.eligible_leader_replicas}"
            )
            self._note(cluster, (0, (topic.name, index)), text)

    def _note(self, cluster: Cluster, what: tuple[int, Any], text: str) -> None:
        if self._seen.get(what) != text:
            self._seen[what] = text
            number, key = what
            self.lines.append(f"{cluster.world.now_us / 1000:9.3f} ms  {number or '-'} {key[0]}-{key[1]}: {text}")

    def _telling(self, cluster: Cluster, text: str, call: Callable[..., None]) -> Callable[..., None]:
        def told(*arguments: Any, **named: Any) -> None:
            self.lines.append(f"{cluster.world.now_us / 1000:9.3f} ms  {text}")
            call(*arguments, **named)

        return told
