"""The batches that the benchmarks of the log write, and logs filled with them."""

from __future__ import annotations

import os
from collections.abc import Callable

from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.log import PartitionLog

TIMESTAMP_MS = 1_700_000_000_000


def random_batch(size: int, value_size: int, compression: str = "none") -> bytes:
    """Return a batch of about ``size`` bytes of incompressible values, with at least one record."""
    builder = RecordBatchBuilder(compression)
    while not builder.count or builder.size_in_bytes + value_size + 16 <= size:
        builder.append(b"key", os.urandom(value_size), (), TIMESTAMP_MS)
    return builder.build()


def fill(log: PartitionLog, batch: bytes, size: int) -> None:
    """Append the batch until the log has at least ``size`` bytes."""
    repeat(lambda: log.append_as_leader(batch, 0, TIMESTAMP_MS), -(-size // len(batch)))


def repeat(action: Callable[[], object], count: int) -> None:
    """Call ``action`` ``count`` times."""
    for _ in range(count):
        action()
