"""Fetch: read committed records for consumers and all records for followers, as a long poll.

The partitions of the request's session that have changed are read once; when that gives less than ``min_bytes`` the
request waits, and reads again only those that changed meanwhile. An error, a diverging epoch or a preferred read
replica answers at once. The first partition with records returns at least one whole batch, all others together keep to
``max_bytes``, to the node's ``fetch.max.bytes`` and to what is left of its budget for responses. While a request waits
it holds no records: they are read again for the answer.

A throttled replica that is not in sync gets nothing while the leader's limit is exceeded; its fetch counts as an
acknowledgement nevertheless, and what it waits for does not end the poll (KIP-73).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import BrokerId
from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.handlers.context import NodeContext, error_message, leader_hint
from tidelog_node.handlers.fetch_sessions import OpenSession, session_error, superseded
from tidelog_node.handlers.preferred_replica import preferred_replica
from tidelog_node.partitions import Partition, ReadRequest, ReadResult
from tidelog_node.replication.fetch_session import FULL_EPOCH, PartitionKey, SessionPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Item:
    """One partition that this request looked at, and what the last read of it gave.

    ``size`` is that of the records also when they were put away while the request waits.
    """

    key: PartitionKey
    entry: SessionPartition
    partition: Partition | None = None
    read: ReadResult | None = None
    error: TidelogError | None = None
    is_limited: bool = False
    size: int = 0
    is_put_away: bool = False
    preferred_replica: BrokerId | None = None
    is_starved: bool = False
    """There may be records, but the node's budget has no room for them."""

    @property
    def answers_at_once(self) -> bool:
        if self.error is not None or self.preferred_replica is not None:
            return True
        return self.read is not None and self.read.diverging is not None

    @property
    def has_all(self) -> bool:
        """Whether a later fetch finds nothing else here as long as nobody says that the partition has changed."""
        return not self.answers_at_once and self.read is not None and self.read.has_all

    @property
    def is_news(self) -> bool:
        if self.answers_at_once or self.size:
            return True
        return self.read is not None and self.entry.is_news(self.read.high_watermark, self.read.log_start_offset)

    def fail(self, error: TidelogError) -> None:
        """Take the error of a read."""
        self.error, self.read, self.size, self.is_starved = error, None, 0, False

    def leaves_follower_behind(self) -> bool:
        """Whether records were deleted that the follower still has: a deletion waits for it to hear of that."""
        return self.read is not None and self.entry.spec.log_start_offset < self.read.log_start_offset and self.is_news


async def fetch(context: NodeContext, request: pb.FetchRequest) -> pb.FetchResponse:
    """Read, wait when there is too little, and answer.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID, the request is for another cluster.
    """
    if request.cluster_id and request.cluster_id != context.cluster_id:
        text = f"the request is for cluster {request.cluster_id!r}, this is {context.cluster_id!r}"
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if request.session.ends_wait:
        context.fetch_sessions.end_wait(request.session.id, request.session.epoch)
        return pb.FetchResponse(session_id=request.session.id)
    try:
        session = context.fetch_sessions.begin(request, context.clock.monotonic_ms())
    except TidelogError as error:
        return session_error(error)
    return await _Fetch(context, request, session).run()


class _Fetch:
    """One request under way."""

    def __init__(self, context: NodeContext, request: pb.FetchRequest, session: OpenSession) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._turn = session.begin()
        self._follower = session.follower
        self._budget = context.response_budget
        # Of this request alone: the next one of the session may wait for room already when this one ends.
        self._wake = functools.partial(session.hurry)
        self._items: dict[PartitionKey, _Item] = {}
        self._is_full = not request.HasField("session") or request.session.epoch <= FULL_EPOCH
        self._is_read_committed = request.isolation_level == pb.ISOLATION_LEVEL_READ_COMMITTED
        if self._is_read_committed != session.is_read_committed:
            session.is_read_committed = self._is_read_committed
            session.state.mark_all()
        session.wants_high_watermark = self._follower is not None and context.replica_selector.is_rack_aware

    async def run(self) -> pb.FetchResponse:
        try:
            await self._collect()
            if not self._session.is_turn_of(self._turn):
                return session_error(superseded(self._request.session.id))
            response = self._response()
            wants_slot = self._request.HasField("session") and self._request.session.epoch == FULL_EPOCH
            sessions, now_ms = self._context.fetch_sessions, self._context.clock.monotonic_ms()
            response.session_id = sessions.finish(self._session, wants_slot, now_ms)
            # What has more to give, or may be better then, is looked at again.
            self._session.finish(self._turn, [key for key, item in self._items.items() if not item.has_all])
            return response
        finally:
            self._budget.leave(self._wake)
            self._budget.pass_on()
            self._context.fetch_sessions.abandon(self._session)

    async def _collect(self) -> None:
        """Read until there is enough to answer, or the time is over."""
        clock = self._context.clock
        deadline_ms = clock.monotonic_ms() + self._request.max_wait_ms
        self._look()
        while not self._is_complete():
            self._put_away()
            self._wait_for_room()
            await self._session.wait((deadline_ms - clock.monotonic_ms()) / 1000)
            if not self._session.is_turn_of(self._turn):
                return
            self._look()
            self._budget.pass_on()
            if clock.monotonic_ms() >= deadline_ms:
                break
        self._fetch_back()

    def _is_complete(self) -> bool:
        if self._request.max_wait_ms <= 0 or not self._session.state.partitions or self._is_hurried():
            return True
        items = self._items.values()
        if any(item.answers_at_once for item in items):
            return True
        if self._follower is not None and any(self._ends_wait_of_follower(item) for item in items):
            return True
        size = sum(item.size for item in items)
        return size >= self._request.min_bytes or (size > 0 and any(item.is_starved for item in items))

    def _is_hurried(self) -> bool:
        return not self._is_full and self._session.hurried_epoch == self._request.session.epoch

    def _ends_wait_of_follower(self, item: _Item) -> bool:
        if item.leaves_follower_behind():
            return True
        told = item.entry.told
        is_behind = item.read is not None and told is not None and told[0] < item.read.high_watermark
        return self._session.wants_high_watermark and is_behind

    def _look(self) -> None:
        """Read the partitions that have changed; the others keep what they have."""
        keys = self._session.take_changed()
        self._items.update((k, _Item(k, self._session.state.partitions[k])) for k in keys)
        self._read([self._items[k] for k in keys])

    def _wait_for_room(self) -> None:
        starved = [item.key for item in self._items.values() if item.is_starved]
        for key in starved:
            self._session.state.mark(key)
        if starved:
            self._budget.wait(self._wake, is_follower=self._follower is not None)

    def _put_away(self) -> None:
        for item in self._items.values():
            if item.read is not None and item.read.records:
                item.read = dataclasses.replace(item.read, records=b"")
                item.is_put_away = True

    def _fetch_back(self) -> None:
        away = [item for item in self._items.values() if item.is_put_away]
        for item in away:
            item.size, item.is_put_away = 0, False
        self._read(away)

    def _read(self, items: Iterable[_Item]) -> None:
        taken = sum(i.size for i in self._items.values())
        room = self._budget.room_for(self._wake, is_follower=self._follower is not None) - taken
        remaining = min(self._request.max_bytes - taken, self._context.fetch_max_bytes - taken, room)
        is_first = taken == 0
        for item in items:
            self._read_item(item, remaining, is_first, has_room=room > 0)
            remaining -= item.size
            room -= item.size
            is_first = is_first and item.size == 0

    def _read_item(self, item: _Item, remaining: int, is_first: bool, has_room: bool) -> None:
        spec = item.entry.spec
        try:
            partition = item.partition = self._partition(item)
            self._session.hold(item.key, partition)
            max_bytes = min(spec.max_bytes, max(0, remaining))
            item.is_limited = self._is_limited(partition)
            if item.is_limited:
                max_bytes = min(max_bytes, self._throttled_bytes())
            item.read = self._read_partition(item, partition, max_bytes, has_room)
            item.error = None
            item.is_starved = not has_room and not item.has_all and not item.is_limited
        except TidelogError as error:
            item.fail(error)
            return
        except Exception as error:
            # One bad partition never stops the fetch of the others.
            logger.exception("Reading %s-%d failed for a reason that has no name", *item.key)
            item.fail(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}"))
            return
        if not is_first and len(item.read.records) > remaining:
            item.read = dataclasses.replace(item.read, records=b"", aborted=() if self._is_read_committed else None)
        item.size = len(item.read.records)

    def _read_partition(self, item: _Item, partition: Partition, max_bytes: int, has_room: bool) -> ReadResult:
        spec = item.entry.spec
        request = ReadRequest(
            spec.fetch_offset,
            max_bytes,
            spec.leader_epoch,
            self._is_read_committed,
            spec.last_fetched_epoch,
            spec.log_start_offset,
            is_held_back=not has_room or (item.is_limited and max_bytes <= 0),
        )
        if self._follower is not None:
            return partition.read_as_leader(request, self._follower)
        item.preferred_replica = self._preferred_replica(partition, request)
        if item.preferred_replica is not None:
            return partition.snapshot(request)
        if self._request.rack_id and partition.state.leader is None:
            return partition.read_as_replica(request)
        return partition.read_as_leader(request, None)

    def _preferred_replica(self, partition: Partition, request: ReadRequest) -> BrokerId | None:
        rack_id = self._request.rack_id
        if not (self._context.replica_selector.is_rack_aware and rack_id):
            return None
        return preferred_replica(self._context, partition, request.fetch_offset, rack_id)

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
        return throttle.transfer_bytes - sum(item.size for item in self._items.values() if item.is_limited)

    def _partition(self, item: _Item) -> Partition:
        (topic, index), topic_id = item.key, item.entry.spec.topic_id
        partition = self._context.partition(topic, index)
        if topic_id and topic_id != partition.topic_id:
            text = f"topic {topic} has id {partition.topic_id.hex()}, {topic_id.hex()} was asked for"
            raise error_for(ErrorCode.INCONSISTENT_TOPIC_ID, text)
        return partition

    def _response(self) -> pb.FetchResponse:
        self._record_throttled()
        response = pb.FetchResponse()
        topics: dict[str, pb.FetchTopicResult] = {}
        keys = self._session.state.partitions if self._is_full else self._items
        for key in keys:
            item = self._items[key]
            if self._is_full or item.is_news:
                topic, index = key
                if topic not in topics:
                    topics[topic] = response.topics.add(name=topic)
                self._fill(topics[topic].partitions.add(index=index), item)
        return response

    def _record_throttled(self) -> None:
        if self._follower is None:
            return
        size = sum(item.size for item in self._items.values() if item.partition and item.partition.throttled.leader)
        if size:
            self._context.throttles.leader.record(size)

    def _fill(self, result: pb.FetchPartitionResult, item: _Item) -> None:
        result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
        if item.error is not None:
            item.entry.tell_error()
            self._fill_error(result, item, item.error)
        elif item.read is not None:
            read = item.read
            item.entry.tell(read.high_watermark, read.log_start_offset)
            result.high_watermark = read.high_watermark
            result.last_stable_offset = read.last_stable_offset
            result.log_start_offset = read.log_start_offset
            result.records = read.records
            for aborted in read.aborted or ():
                result.aborted_transactions.add(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            if read.diverging is not None:
                result.diverging_epoch.epoch = read.diverging.epoch
                result.diverging_epoch.end_offset = read.diverging.end_offset
            if item.preferred_replica is not None:
                result.preferred_read_replica = item.preferred_replica

    def _fill_error(self, result: pb.FetchPartitionResult, item: _Item, error: TidelogError) -> None:
        result.error.CopyFrom(error_message(error))
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and item.partition is not None:
            result.high_watermark = item.partition.high_watermark
            result.log_start_offset = item.partition.log.log_start_offset
        leader = leader_hint(self._context, error, *item.key)
        if leader is not None:
            result.current_leader.CopyFrom(leader)
