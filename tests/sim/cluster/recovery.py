"""After the faults: a healthy cluster becomes whole within a bounded time, and has all that it promised."""

from __future__ import annotations

from raft_properties import require
from sim.cluster.cluster import Cluster
from sim.cluster.nemesis import Nemesis

BOUND_MS = 15_000
UNCLEAN_AFTER_MS = 3_000
"""An operator elects a leader by hand where all that could lead have lost records."""


class Recovery:
    """Runs once, at the end of a schedule."""

    def __init__(self, cluster: Cluster, nemesis: Nemesis) -> None:
        self.cluster = cluster
        self.nemesis = nemesis
        self._began_ms = 0
        self._asked_ms = 0

    def run(self) -> None:
        """Heal, wait, and check."""
        self.nemesis.stop()
        cluster = self.cluster
        self._began_ms = self._asked_ms = cluster.world.now_ms
        cluster.wait(self._is_level, BOUND_MS, "Liveness", self._describe)
        self._check_contents()

    def _is_level(self) -> bool:
        cluster = self.cluster
        if not cluster.is_whole():
            self._elect_by_hand()
            return False
        clients = (*cluster.producers, *cluster.consumers)
        return all(client.is_done for client in clients) and self._all_committed()

    def _all_committed(self) -> bool:
        cluster = self.cluster
        for topic, index, registration in cluster.checker.metadata.latest.partitions():
            ends = set()
            for number in registration.replicas:
                partition = cluster.nodes[number].partitions.get((topic.name, index))
                if partition is None or partition.state.leader_epoch != registration.leader_epoch:
                    return False
                ends |= {partition.log.log_end_offset, partition.high_watermark}
            if len(ends) > 1:
                return False
        return True

    def _elect_by_hand(self) -> None:
        now_ms = self.cluster.world.now_ms
        if now_ms - self._asked_ms < UNCLEAN_AFTER_MS:
            return
        self._asked_ms = now_ms
        for topic, index, registration in self.cluster.checker.metadata.latest.partitions():
            key = topic.name, index
            if registration.leader < 0 and self.cluster.checker.truth(key).was_void:
                self.nemesis.elect_unclean(key)

    def _check_contents(self) -> None:
        """Every replica has what is committed, read from its log from the beginning."""
        cluster = self.cluster
        for topic, index, registration in cluster.checker.metadata.latest.partitions():
            key = topic.name, index
            truth = cluster.checker.truth(key)
            for number in registration.replicas:
                partition = cluster.nodes[number].partitions[key]
                if cluster.schedule.seed % 4 == 0:
                    partition.log.check_invariants()
                view = cluster.checker.read_again(number, key, partition.log)
                expected = [b for b in truth.batches if b.end > partition.log.log_start_offset]
                found = [b for b in view.batches if b.end > partition.log.log_start_offset]
                require(found == expected, "ReplicasAreEqual", f"{number} of {key}: {found[-3:]}, not {expected[-3:]}")

    def _describe(self) -> str:
        clients = [c.describe() for c in (*self.cluster.producers, *self.cluster.consumers) if not c.is_done]
        return self.cluster.describe() + "; " + "; ".join(clients)
