"""The bytes of a partition of a `FakeCluster`."""

from __future__ import annotations

from tidelog.testing import FakeCluster
from tidelog_foundation.records import iter_headers
from tidelog_foundation.transport import run_sync


def partition_bytes(cluster: FakeCluster, topic: str, index: int = 0) -> bytes:
    """Return all batches of a partition as its log has them."""

    async def read() -> bytes:
        log = cluster._partition(topic, index).log
        found = b""
        position = log.log_start_offset
        while position < log.log_end_offset:
            part = log.read(position, 1 << 30, log.log_end_offset)
            found += part
            position = list(iter_headers(part))[-1][1].next_offset
        return found

    return run_sync(read(), 30)
