"""The parts with many connections, partitions, consumers and bytes. Each has clusters of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.peers import group_churn, long_tail
from benchmarks.peers.catch_up import catch_up
from benchmarks.peers.clusters import Clusters
from benchmarks.peers.many_connections import many_connections
from benchmarks.peers.many_consumers import many_consumers
from benchmarks.peers.many_partitions import many_partitions
from benchmarks.peers.peer import PAIR, SMALL, WHOLE, Size
from benchmarks.peers.restart import restart
from benchmarks.result import Result


@dataclass(frozen=True, slots=True)
class ScalePart:
    """A part and its clusters, which it starts by itself if ``is_started`` is false.

    ``added`` are settings of both clusters.
    """

    run: Callable[[Clusters], list[Result]]
    size: Size
    added: Mapping[str, object] = field(default_factory=dict)
    is_started: bool = True

    @property
    def settings(self) -> Mapping[str, object]:
        """All settings of both clusters beside those of every comparison."""
        return {**_PATIENT, **self.added}


_PATIENT: Mapping[str, object] = {"broker.session.timeout.ms": 9_000, "broker.heartbeat.interval.ms": 2_000}
"""Kafka's defaults. No part here measures how fast the loss of a broker is noticed, and all keep the machine busy."""

SCALE_PARTS: Mapping[str, ScalePart] = {
    "many-connections": ScalePart(many_connections, SMALL),
    "many-partitions": ScalePart(many_partitions, WHOLE),
    "many-consumers": ScalePart(many_consumers, WHOLE),
    "restart": ScalePart(restart, PAIR, is_started=False),
    "long-tail": ScalePart(long_tail.long_tail, WHOLE, long_tail.SETTINGS),
    "catch-up": ScalePart(catch_up, SMALL),
    "group-churn": ScalePart(group_churn.group_churn, WHOLE, group_churn.SETTINGS),
}
