"""Read-ahead of committed records for partitions that are far behind, beside a fetcher's session.

A follower's fetch acknowledges every record below its offset, so it must wait until the previous answer is in the
log, and leader and follower work in turns. A read-ahead sends the next read before it appends the last answer. It is a
consumer's fetch with the leader's epoch: it acknowledges nothing and returns only committed records, which no leader
takes back. It serves partitions whose log ends below the high watermark; no partition in an ISR does. It also keeps
their bytes out of the other partitions' long poll.

A leader learns a follower's progress only from the follower's own fetches. The read-ahead therefore returns a partition
to the session after a number of bytes, after a second, at the high watermark, and after any error. The session's fetch
then reports the follower's progress, or receives the error. One read is in flight at a time. While the leader does not
answer it, the waiting partitions return to the session as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import parse_header
from tidelog_node.event_loop import Clock
from tidelog_node.fetching import Buffer, FetchRequest, FetchResponse, FetchResult, PartitionKey
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication import FetchSpec

logger = logging.getLogger(__name__)

_MOST_BYTES = 64 * 1024 * 1024
_LONGEST_MS = 1_000
_STEPS_TO_LEAVE = 3
"""Steps of the event loop until gRPC has a new call; gRPC then sends it while the loop is busy."""


@dataclass(slots=True, eq=False)
class _ReadAhead:
    """One partition's read-ahead from ``next_offset``, until it has caught up or reached a limit."""

    partition: Partition
    leader_epoch: LeaderEpoch
    next_offset: int
    end_ms: int
    bytes_left: int


@dataclass(frozen=True, slots=True)
class _Read:
    """The answer to a read at ``offset``; ``goes_on`` is True if the partition's next read is planned."""

    ahead: _ReadAhead
    offset: int
    records: Buffer
    result: FetchResult
    goes_on: bool


class CatchUp:
    """The read-ahead of one leader's fetcher, in the task :meth:`run` on the fetcher's event loop.

    ``read(request)`` sends a fetch to the leader and raises TidelogError. ``give_back(partition)`` returns a partition
    to the session; CatchUp does not call it for a removed partition.
    """

    def __init__(
        self,
        read: Callable[[FetchRequest], Awaitable[FetchResponse]],
        give_back: Callable[[Partition], None],
        max_bytes: int,
        cluster_id: str,
        clock: Clock,
    ) -> None:
        self._read = read
        self._give_back = give_back
        self._max_bytes = max_bytes
        self._cluster_id = cluster_id
        self._clock = clock
        self._partitions: dict[Partition, _ReadAhead] = {}
        self._waiting: deque[_ReadAhead] = deque()
        self._has_work = asyncio.Event()
        self.is_running = False
        """True while the task runs. Callers may add partitions only then."""

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._partitions

    def add(self, partition: Partition, leader_epoch: LeaderEpoch) -> None:
        """Begin to read a partition ahead, from its log's end."""
        end_ms = self._clock.monotonic_ms() + _LONGEST_MS
        ahead = _ReadAhead(partition, leader_epoch, partition.log.log_end_offset, end_ms, _MOST_BYTES)
        self._partitions[partition] = ahead
        self._waiting.append(ahead)
        self._has_work.set()

    def remove(self, partition: Partition) -> None:
        """Stop the read-ahead of a partition and ignore an answer in flight."""
        self._partitions.pop(partition, None)

    async def run(self) -> None:
        """Copy until cancelled."""
        self.is_running = True
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                await self._copy_all()
        finally:
            self.is_running = False

    async def _copy_all(self) -> None:
        try:
            await self._copy()
        except Exception:
            logger.exception("Read-ahead failed with an unexpected error")
            for ahead in list(self._partitions.values()):
                self._end(ahead)

    async def _copy(self) -> None:
        """Append each answer while the next read is in flight, until no partition is left to read."""
        arrived: _Read | None = None
        while True:
            ahead = self._next_partition()
            if ahead is None and arrived is None:
                return
            task = (
                None if ahead is None else asyncio.create_task(self._ask(ahead), name=f"read-{ahead.partition}-ahead")
            )
            try:
                if arrived is not None:
                    for _ in range(_STEPS_TO_LEAVE if task else 0):
                        await asyncio.sleep(0)
                    self._append(arrived)
                arrived = None if task is None or ahead is None else await self._answer(task, ahead)
            finally:
                if task is not None:
                    task.cancel()

    async def _answer(self, task: asyncio.Task[_Read | None], ahead: _ReadAhead) -> _Read | None:
        """Wait for an answer, or return None once its partition is removed; end the waiting read-aheads that expire."""
        while not (await asyncio.wait((task,), timeout=_LONGEST_MS / 1000))[0]:
            if self._partitions.get(ahead.partition) is not ahead:
                return None
            now_ms = self._clock.monotonic_ms()
            for other in [other for other in self._waiting if now_ms >= other.end_ms]:
                self._end(other)
        return task.result()

    def _next_partition(self) -> _ReadAhead | None:
        while self._waiting:
            ahead = self._waiting.popleft()
            if self._partitions.get(ahead.partition) is ahead:
                return ahead
        return None

    async def _ask(self, ahead: _ReadAhead) -> _Read | None:
        """Read once and plan the next read; return None when there is nothing to append."""
        partition, offset = ahead.partition, ahead.next_offset
        spec = FetchSpec(partition.topic_id, offset, self._max_bytes, ahead.leader_epoch)
        wanted: dict[PartitionKey, FetchSpec] = {(partition.topic_id, partition.index): spec}
        request = FetchRequest(wanted, self._max_bytes, cluster_id=self._cluster_id)
        try:
            response = await self._read(request)
            result = next(iter(response.results.values()), None)
            records = b"" if result is None or result.error is not None else result.records
            end_offset = _end_offset(records) if records else offset
        except TidelogError as error:
            logger.debug("Read-ahead of %s failed: %s", partition, error)
            self._end(ahead)
            return None
        if result is None or not records:
            self._end(ahead)
            return None
        ahead.next_offset = end_offset
        ahead.bytes_left -= len(records)
        is_over = ahead.bytes_left <= 0 or self._clock.monotonic_ms() >= ahead.end_ms
        goes_on = end_offset < result.high_watermark and not is_over
        if goes_on:
            self._waiting.append(ahead)
        return _Read(ahead, offset, records, result, goes_on)

    def _append(self, read: _Read) -> None:
        ahead, result = read.ahead, read.result
        if self._partitions.get(ahead.partition) is not ahead:
            return
        try:
            ahead.partition.replicate(
                ahead.leader_epoch, read.offset, read.records, result.high_watermark, result.log_start_offset
            )
        except TidelogError as error:
            # The session's fetch meets the same error and reports it.
            logger.debug("Appending records read ahead for %s failed: %s", ahead.partition, error)
            self._end(ahead)
            return
        if not read.goes_on:
            self._end(ahead)

    def _end(self, ahead: _ReadAhead) -> None:
        if self._partitions.get(ahead.partition) is ahead:
            del self._partitions[ahead.partition]
            self._give_back(ahead.partition)


def _end_offset(records: Buffer) -> int:
    """Return the offset after the last batch, from the batches' lengths alone; the append checks their contents.

    Raises:
        CorruptRecordError: The bytes hold no whole batch.
    """
    position = 0
    while True:
        header = parse_header(records, position)
        position += header.size_in_bytes
        if position >= len(records):
            return header.next_offset
