"""Groups the batches that are due into requests, by the node that each goes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.events import Send

REQUEST_BYTES = 1_048_576
"""Batches for one node share a request up to this size (Kafka's max.request.size); a larger one goes alone."""


def requests(by_node: Mapping[int, Sequence[Batch]]) -> Iterator[Send]:
    """Yield what is sent to each node: its batches in their order, and the attempt that each of them is at."""
    for node_id, batches in by_node.items():
        for group in _groups(batches):
            yield Send(node_id, group, [batch.attempts for batch in group])


def _groups(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    group: list[Batch] = []
    size = 0
    for batch in batches:
        batch_size = batch.builder.size_in_bytes
        if group and size + batch_size > REQUEST_BYTES:
            yield group
            group, size = [], 0
        group.append(batch)
        size += batch_size
    if group:
        yield group
