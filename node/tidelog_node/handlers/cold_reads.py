"""Records that are read from the disk: a fetch waits for a thread that reads them into the system's memory.

The event loop reads records where they are in memory, as those of readers at the end of a log are. A read that waited
for the disk would stop all other clients of the node. So the records of readers that are far behind are looked for in
memory first. The fetch reads them on the loop, as any other does, when the thread is done. It waits for the disk there
if they have left memory again by then, if it had to wait for other reasons before it read them, and for callers whose
permission to read the topic is not remembered.

The disk works ahead of such readers, so that most of their fetches wait for nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidelog_foundation.authorization import READ_TOPIC
from tidelog_node.fetching import FetchRequest, FetchSpec, PartitionKey
from tidelog_node.handlers.fetch_sessions import FetchSessions
from tidelog_node.log.segments.batch_file import UncachedBytes
from tidelog_node.partitions import MetadataCache, PartitionRegistry

_CONSUMERS_THREADS: Final = 4
_FOLLOWERS_THREADS: Final = 2
_MOST_PARTITIONS: Final = 64
"""The partitions of a request that are looked at, within some hundred microseconds."""


class ColdReads:
    """The node's threads for records that are not in memory. Followers have some of their own: others may be many."""

    def __init__(self) -> None:
        self._consumers = ThreadPoolExecutor(_CONSUMERS_THREADS, thread_name_prefix="cold-read")
        self._followers = ThreadPoolExecutor(_FOLLOWERS_THREADS, thread_name_prefix="follower-cold-read")
        self.fetches = 0
        """The fetches that have waited."""
        self.bytes = 0
        """The bytes that they have waited for."""

    def begin(self, wanted: Sequence[UncachedBytes], *, is_follower: bool) -> Awaitable[None] | None:
        """Begin to read bytes into memory. Return the end of those that the reader has to wait for; None without such.

        A cancelled caller does not wait for the rest.
        """
        threads = self._followers if is_follower else self._consumers
        size = sum(each.size for each in wanted)
        if not size:
            threads.submit(_load, wanted)
            return None
        self.fetches += 1
        self.bytes += size
        return asyncio.get_running_loop().run_in_executor(threads, _load, wanted)

    def close(self) -> None:
        """End the threads after their current reads, and cancel the waiting ones."""
        for threads in (self._consumers, self._followers):
            threads.shutdown(wait=False, cancel_futures=True)


def uncached_records(
    request: FetchRequest,
    partitions: PartitionRegistry,
    metadata: MetadataCache,
    sessions: FetchSessions,
    max_bytes: int,
) -> list[UncachedBytes]:
    """Return what a fetch would wait for the disk for, and what to read ahead, within ``max_bytes``.

    Only of topics that its caller is known to be permitted to read.
    """
    found: list[UncachedBytes] = []
    access, left = request.access, min(request.max_bytes, max_bytes)
    if request.is_denied or left <= 0:
        return found
    for (topic, index), spec in itertools.islice(_read_by(request, sessions), _MOST_PARTITIONS):
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
        left -= uncached.size if uncached is not None and uncached.size else size
        if left <= 0:
            break
    return found


def _read_by(request: FetchRequest, sessions: FetchSessions) -> Iterator[tuple[PartitionKey, FetchSpec]]:
    """Yield the partitions that a fetch names, and those that its session has not read to the end."""
    yield from request.wanted.items()
    asked = request.session
    session = None if asked is None or asked.epoch <= 0 else sessions.session_of(asked.id)
    if session is None or not session.state.changed:
        return
    known, wanted = session.state.partitions, request.wanted
    for key in itertools.islice(session.state.changed, _MOST_PARTITIONS):
        if key not in wanted and key in known:
            yield key, known[key].spec


def _load(wanted: Sequence[UncachedBytes]) -> None:
    for each in wanted:
        each.load()
