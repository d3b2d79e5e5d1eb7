"""Fetch: read committed records for consumers and all records for followers, as a long poll.

Every partition is read once; when that gives less than ``min_bytes`` the request waits, and reads again only the
partitions that changed. An error or a diverging epoch answers at once. The first partition with records returns
at least one whole batch, all others together keep to ``max_bytes`` and to the node's ``fetch.max.bytes``.

A throttled replica that is not in sync gets nothing while the leader's limit is exceeded; its fetch counts as an
acknowledgement nevertheless, and what it waits for does not end the poll (KIP-73).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.handlers.context import NodeContext, error_message, leader_hint, optional_epoch
from tidelog_node.partitions import FollowerIdentity, Partition, ReadRequest, ReadResult
from tidelog_node.partitions.purgatory import ReadWaiter, ReadWaiters


@dataclass(slots=True)
class _Item:
    """One partition of the request, and what the last read of it gave."""

    topic: pb.FetchTopic
    request: pb.FetchPartition
    partition: Partition | None = None
    read: ReadResult | None = None
    error: TidelogError | None = None
    is_limited: bool = False

    @property
    def size(self) -> int:
        return 0 if self.read is None else len(self.read.records)

    @property
    def answers_at_once(self) -> bool:
        return self.error is not None or (self.read is not None and self.read.diverging is not None)

    def leaves_follower_behind(self) -> bool:
        """Whether records were deleted that the follower still has: a deletion waits for it to hear of that."""
        return self.read is not None and self.request.log_start_offset < self.read.log_start_offset


async def fetch(context: NodeContext, request: pb.FetchRequest) -> pb.FetchResponse:
    """Read, wait when there is too little, and answer.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID, the request is for another cluster.
    """
    if request.cluster_id and request.cluster_id != context.cluster_id:
        text = f"the request is for cluster {request.cluster_id!r}, this is {context.cluster_id!r}"
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    return await _Fetch(context, request).run()


class _Fetch:
    """One request under way."""

    def __init__(self, context: NodeContext, request: pb.FetchRequest) -> None:
        self._context = context
        self._request = request
        self._items = [_Item(t, p) for t in request.topics for p in t.partitions]
        self._is_read_committed = request.isolation_level == pb.ISOLATION_LEVEL_READ_COMMITTED
        self._follower: FollowerIdentity | None = None
        if request.HasField("replica"):
            replica = request.replica
            self._follower = FollowerIdentity(BrokerId(replica.replica_id), BrokerEpoch(replica.replica_epoch))

    async def run(self) -> pb.FetchResponse:
        self._read(range(len(self._items)))
        if not self._is_complete():
            await self._wait()
        return self._response()

    async def _wait(self) -> None:
        clock = self._context.clock
        deadline_ms = clock.monotonic_ms() + self._request.max_wait_ms
        waiter = ReadWaiter()
        watched = list(self._watch(waiter))
        try:
            while not self._is_complete() and await waiter.wait((deadline_ms - clock.monotonic_ms()) / 1000):
                positions, waiter.dirty = sorted(waiter.dirty), set()
                self._read(positions)
        finally:
            for waiters, position in watched:
                waiters.discard(waiter, position)

    def _watch(self, waiter: ReadWaiter) -> Iterator[tuple[ReadWaiters, int]]:
        for position, item in enumerate(self._items):
            if item.partition is not None:
                is_follower = self._follower is not None
                all_waiters = item.partition.waiters
                waiters = all_waiters.log_end if is_follower else all_waiters.high_watermark
                waiters.add(waiter, position)
                yield waiters, position

    def _is_complete(self) -> bool:
        if self._request.max_wait_ms <= 0 or not self._items:
            return True
        if any(item.answers_at_once for item in self._items):
            return True
        if self._follower is not None and any(item.leaves_follower_behind() for item in self._items):
            return True
        return sum(item.size for item in self._items) >= self._request.min_bytes

    def _read(self, positions: range | list[int]) -> None:
        """Read some of the partitions again; the others keep what they have."""
        for position in positions:
            self._items[position].read = None
        remaining = min(self._request.max_bytes, self._context.fetch_max_bytes) - sum(i.size for i in self._items)
        is_first = all(item.size == 0 for item in self._items)
        for position in positions:
            item = self._items[position]
            self._read_item(item, remaining, is_first)
            remaining -= item.size
            is_first = is_first and item.size == 0

    def _read_item(self, item: _Item, remaining: int, is_first: bool) -> None:
        try:
            item.partition = self._partition(item)
            max_bytes = min(item.request.partition_max_bytes, max(0, remaining))
            item.is_limited = self._is_limited(item.partition)
            if item.is_limited:
                max_bytes = min(max_bytes, self._throttled_bytes())
            item.read = self._read_partition(item, item.partition, max_bytes)
            item.error = None
        except TidelogError as error:
            item.error = error
            return
        if not is_first and item.size > remaining:
            item.read = dataclasses.replace(item.read, records=b"", aborted=() if self._is_read_committed else None)

    def _read_partition(self, item: _Item, partition: Partition, max_bytes: int) -> ReadResult:
        asked = item.request
        request = ReadRequest(
            asked.fetch_offset,
            max_bytes,
            optional_epoch(asked),
            self._is_read_committed,
            LeaderEpoch(asked.last_fetched_epoch) if asked.HasField("last_fetched_epoch") else None,
            asked.log_start_offset,
            is_held_back=item.is_limited and max_bytes <= 0,
        )
        same_rack = self._request.rack_id and self._request.rack_id == self._context.rack
        if self._follower is None and same_rack and partition.state.leader is None:
            return partition.read_as_replica(request)
        return partition.read_as_leader(request, self._follower)

    def _is_limited(self, partition: Partition) -> bool:
        """Whether the reader is a throttled follower that is not in sync: one that is could leave the ISR by it."""
        if self._follower is None or not partition.throttled.leader:
            return False
        leader = partition.state.leader
        return leader is not None and self._follower.replica_id not in leader.isr.members

    def _throttled_bytes(self) -> int:
        """Return what limited followers may still get in this response."""
        throttle = self._context.throttles.leader
        if throttle.is_exceeded:
            return 0
        return throttle.transfer_bytes - sum(item.size for item in self._items if item.is_limited)

    def _partition(self, item: _Item) -> Partition:
        topic, index = item.topic, item.request.index
        partition = self._context.partition(topic.name, index)
        if topic.topic_id and topic.topic_id != partition.topic_id:
            text = f"topic {topic.name} has id {partition.topic_id.hex()}, {topic.topic_id.hex()} was asked for"
            raise error_for(ErrorCode.INCONSISTENT_TOPIC_ID, text)
        return partition

    def _response(self) -> pb.FetchResponse:
        self._record_throttled()
        response = pb.FetchResponse()
        results: pb.FetchTopicResult | None = None
        topic: pb.FetchTopic | None = None
        for item in self._items:
            if results is None or item.topic is not topic:
                topic, results = item.topic, response.topics.add(name=item.topic.name)
            self._fill(results.partitions.add(index=item.request.index), item)
        return response

    def _record_throttled(self) -> None:
        if self._follower is None:
            return
        size = sum(item.size for item in self._items if item.partition and item.partition.throttled.leader)
        if size:
            self._context.throttles.leader.record(size)

    def _fill(self, result: pb.FetchPartitionResult, item: _Item) -> None:
        result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
        if item.error is not None:
            self._fill_error(result, item, item.error)
        elif item.read is not None:
            read = item.read
            result.high_watermark = read.high_watermark
            result.last_stable_offset = read.last_stable_offset
            result.log_start_offset = read.log_start_offset
            result.records = read.records
            for aborted in read.aborted or ():
                result.aborted_transactions.add(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            if read.diverging is not None:
                result.diverging_epoch.epoch = read.diverging.epoch
                result.diverging_epoch.end_offset = read.diverging.end_offset

    def _fill_error(self, result: pb.FetchPartitionResult, item: _Item, error: TidelogError) -> None:
        result.error.CopyFrom(error_message(error))
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and item.partition is not None:
            result.high_watermark = item.partition.high_watermark
            result.log_start_offset = item.partition.log.log_start_offset
        leader = leader_hint(self._context, error, item.topic.name, item.request.index)
        if leader is not None:
            result.current_leader.CopyFrom(leader)
