"""The schedule of a cluster with transactions: the faults of any cluster, and partitions that keep their promise.

The chaos checker judges transactions, and it knows of no permitted losses. So no disk loses what a guarantee rests on,
nobody deletes records, and no unclean leader is elected.
"""

from __future__ import annotations

import dataclasses
import random

from sim.cluster.schedule import Schedule, TopicPlan, draw_schedule

from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC
from tidelog_node.coordination.transaction_topic import TRANSACTION_TOPIC

INPUTS, OUTPUTS = "in", "out"
_PARTITIONS = {INPUTS: 2, OUTPUTS: 3, OFFSETS_TOPIC: 1, TRANSACTION_TOPIC: 2}
_LEFT_OUT = ("blackout", "delete", "min_isr", "unclean")


def draw_transactional_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    drawn = draw_schedule(seed)
    rng = random.Random(seed + 1)
    topology = dataclasses.replace(
        drawn.topology,
        controllers=3,
        nodes=3,
        topics=tuple(_plan(rng, name, count) for name, count in _PARTITIONS.items()),
        min_isr=rng.choice([1, 2, 2]),
        fetch_bytes=rng.choice([200, 10_000]),
        producers=0,
        consumers=0,
        has_unsafe_producer=False,
        is_gentle=True,
    )
    actions = tuple(action for action in drawn.actions if action.name not in _LEFT_OUT)
    return dataclasses.replace(drawn, topology=topology, actions=actions)


def _plan(rng: random.Random, name: str, partitions: int) -> TopicPlan:
    configs = {"segment.bytes": rng.choice(["1000", "4000", "1000000"]), "file.delete.delay.ms": "50"}
    return TopicPlan(name, partitions, 3, tuple(sorted(configs.items())))
