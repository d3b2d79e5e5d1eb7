"""Records that are read from the disk: a fetch waits for a thread that reads them into the system's memory.

The event loop reads records where they are in memory, as those of readers at the end of a log are. A read that waited
for the disk would stop all other clients of the node. So the records of readers that are far behind are looked for in
memory first. The fetch reads them on the loop, as any other does, when the thread is done; should they have left memory
again by then, it waits for the disk.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidelog_foundation.authorization import READ_TOPIC
from tidelog_node.fetching import FetchRequest
from tidelog_node.log.segments.batch_file import UncachedBytes
from tidelog_node.partitions import MetadataCache, PartitionRegistry

_THREADS: Final = 4
_MOST_PARTITIONS: Final = 64
"""The partitions of a request that are looked at, within some hundred microseconds."""


class ColdReads:
    """The node's threads for records that are not in memory."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cold-read")
        self.fetches = 0
        """The fetches that have waited."""
        self.bytes = 0
        """The bytes that they have waited for."""

    async def load(self, wanted: Sequence[UncachedBytes]) -> None:
        """Read bytes into memory. A cancelled caller does not wait for the rest."""
        self.fetches += 1
        self.bytes += sum(each.size for each in wanted)
        await asyncio.get_running_loop().run_in_executor(self._threads, _load, wanted)

    def close(self) -> None:
        """End the threads after their current reads, and cancel the waiting ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def uncached_records(
    request: FetchRequest, partitions: PartitionRegistry, metadata: MetadataCache, max_bytes: int
) -> list[UncachedBytes]:
    """Return what a fetch would wait for the disk for, of topics that its caller is known to be permitted to read."""
    found: list[UncachedBytes] = []
    access, left = request.access, min(request.max_bytes, max_bytes)
    if request.is_denied:
        return found
    for (topic, index), spec in itertools.islice(request.wanted.items(), _MOST_PARTITIONS):
        name = topic if isinstance(topic, str) else metadata.topic_name(topic)
        partition = None if name is None else partitions.get(name, index)
        if partition is None or not partition.log.is_far_behind(spec.fetch_offset):
            continue
        if access is not None and request.replica is None and not access.remembers(READ_TOPIC, partition.topic):
            continue
        size = min(spec.max_bytes, left)
        uncached = partition.log.uncached(spec.fetch_offset, size)
        if uncached is not None:
            found.append(uncached)
        left -= size
        if left <= 0:
            break
    return found


def _load(wanted: Sequence[UncachedBytes]) -> None:
    for each in wanted:
        each.load()
