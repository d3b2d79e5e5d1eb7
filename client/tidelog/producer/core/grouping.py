"""Division of the batches for one node into produce requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.events import Send

REQUEST_BYTES = 1_048_576
"""The size up to which batches for one node share a request (Kafka's max.request.size)."""


def requests_to(node_id: int, queues: Sequence[Sequence[Batch]]) -> Iterator[Send]:
    """Yield the requests for the batches of several partitions, in sending order.

    A request has at most one batch per partition.
    """
    for wave in zip_longest(*queues):
        group: list[Batch] = []
        size = 0
        for batch in filter(None, wave):
            batch_size = batch.builder.size_in_bytes
            if group and size + batch_size > REQUEST_BYTES:
                yield _send(node_id, group)
                group, size = [], 0
            group.append(batch)
            size += batch_size
        if group:
            yield _send(node_id, group)


def _send(node_id: int, batches: Sequence[Batch]) -> Send:
    return Send(node_id, batches, [batch.attempts for batch in batches], [batch.number for batch in batches])
