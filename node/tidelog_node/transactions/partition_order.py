"""The partitions of a transaction in order, in steps, because a transaction may have as many as fit into its record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from tidelog_node.transactions.states import TopicPartition

STEP_PARTITIONS = 5_000
"""The number of partitions that one step of any work on a transaction visits."""


def in_order(partitions: Iterable[TopicPartition]) -> Iterator[TopicPartition | None]:
    """Yield partitions by topic and index, and None where other work may run, after at most STEP_PARTITIONS."""
    left = iter(partitions)
    parts = [sorted(islice(left, STEP_PARTITIONS))]
    while part := sorted(islice(left, STEP_PARTITIONS)):
        yield None
        parts.append(part)
    if len(parts) == 1:
        yield from parts[0]
        return
    for place, partition in enumerate(merge(*parts)):
        if place % STEP_PARTITIONS == 0:
            yield None
        yield partition
