"""A fetch in progress: what it reads of its session's partitions, when that is enough for an answer, and the answer.

An error, a diverging epoch or a preferred read replica is answered at once. The first partition with records returns at
least one whole batch. All others together are limited by ``max_bytes``, by the node's ``fetch.max.bytes`` and by the
rest of its budget for responses. A waiting request keeps no records; they are read again for the answer.

A throttled replica that is not in sync gets nothing while the leader's limit is exceeded. Its fetch still counts as an
acknowledgement, and the delayed data does not end the poll (KIP-73).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.unexpected import report_unexpected
from tidelog_node.fetching import FetchRequest, FetchResponse, PartitionKey
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.fetch_item import FetchItem, partition_of, preferred_replica, result_of, topic_name
from tidelog_node.handlers.fetch_sessions import OpenSession, superseded
from tidelog_node.partitions import Partition, ReadRequest, ReadResult
from tidelog_node.quotas.usage import RequestUsage
from tidelog_node.replication.fetch_session import FULL_EPOCH

logger = logging.getLogger(__name__)
_CHUNK: Final = 64


class FetchInProgress:
    """A request in progress: :meth:`begin` once, then :meth:`sleep` and :meth:`look_again` until there is an answer.

    :meth:`end` follows, except after an immediate answer.
    """

    def __init__(
        self,
        context: NodeContext,
        request: FetchRequest,
        session: OpenSession,
        usage: RequestUsage | None,
        turn: int | None = None,
    ) -> None:
        """Begin a turn of the session, or continue one."""
        self._context = context
        self._request = request
        self._session = session
        self._turn = session.begin() if turn is None else turn
        self._follower = session.follower
        self.usage = usage if session.follower is None or request.is_denied else None
        """The usage of a consumer with quotas, or of a client that may not pass for a follower."""
        self.budget = context.response_budget
        self._reserved = 0
        self._size = 0
        # Specific to this request: the session's next request may already wait for room when this one ends.
        self._wake = functools.partial(session.recheck)
        self._items: dict[PartitionKey, FetchItem] = {}
        self._is_full = request.session is None or request.session.epoch <= FULL_EPOCH
        self._max_bytes = min(request.max_bytes, context.fetch_max_bytes)
        if self.usage is not None:
            self._max_bytes = min(self._max_bytes, self.usage.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self.is_over = False
        """True if the available records are answered now, even if there are none."""
        self._is_read_committed = request.is_read_committed
        if self._is_read_committed != session.is_read_committed:
            session.is_read_committed = self._is_read_committed
            session.state.mark_all()
        session.wants_high_watermark = self._follower is not None and context.replica_selector.is_rack_aware

    def begin(self) -> FetchResponse | None:
        """Read once. Return the answer, or None if the request must wait."""
        has_to_wait = False
        try:
            self._look()
            has_to_wait = not self._is_complete()
            return None if has_to_wait else self._answer()
        finally:
            if not has_to_wait:
                self.end()

    def begin_in_steps(self) -> Generator[None, None, FetchResponse | None]:
        """Read once, step by step. The records count in the budget until :meth:`give_back_room`."""
        has_to_wait = False
        try:
            keys = self._session.take_changed()
            for chunk in _chunks(keys):
                self._look_at(chunk)
                self._reserve()
                yield
                if not self._session.is_turn_of(self._turn):
                    return FetchResponse(error=superseded(self._session.state.id))
            has_to_wait = not self._is_complete()
            if has_to_wait:
                return None
            throttled = self._throttled()
            if throttled is not None:
                return throttled
            response, unfinished = FetchResponse(), []
            self._record_throttled()
            for chunk in _chunks(self._answered_keys()):
                self._add_results(response, chunk)
                # Freed here in steps, since freeing all items at once takes long.
                unfinished += [key for key in chunk if not self._items.pop(key).has_all]
                yield
            return self._finish(response, unfinished)
        finally:
            if not has_to_wait:
                self.end()

    def give_back_room(self) -> None:
        """Stop counting the records read by the steps in the budget."""
        size, self._reserved = self._reserved, 0
        if size:
            self.budget.give_back(size)

    def include(self, item: FetchItem) -> None:
        """Include a partition that the request has read before, without records."""
        self._items[item.key] = item

    def sleep(self, wake_up: Callable[[], None]) -> None:
        """Release the records, and call ``wake_up`` once when there may be more."""
        self._put_away()
        self._wait_for_room()
        self._session.sleep(self._turn, wake_up)

    def stay_up(self, wake_up: Callable[[], None]) -> None:
        """Cancel the call of ``wake_up``."""
        self._session.forget_sleeper(wake_up)

    def look_again(self, wake_up: Callable[[], None]) -> FetchResponse | None:
        """Read the changed partitions. Return the answer if it is large enough or the wait has ended, else sleep."""
        self.stay_up(wake_up)
        if not self._session.is_turn_of(self._turn):
            return FetchResponse(error=superseded(self._session.state.id))
        self._look()
        self.budget.pass_on()
        if not self.is_over and not self._is_complete():
            self.sleep(wake_up)
            return None
        self._fetch_back()
        return self._answer()

    def end(self) -> None:
        """Stop waiting. Further calls do nothing."""
        self.budget.leave(self._wake)
        self.budget.pass_on()
        self._context.fetch_sessions.abandon(self._session)

    def _answer(self) -> FetchResponse:
        throttled = self._throttled()
        if throttled is not None:
            return throttled
        self._record_throttled()
        response = FetchResponse()
        self._add_results(response, self._answered_keys())
        return self._finish(response, [key for key, item in self._items.items() if not item.has_all])

    def _throttled(self) -> FetchResponse | None:
        """Return the response to a client over its quotas, which changes nothing in its session, or None.

        A request that would create a session gets none, as in Kafka's ``FetchContext.getThrottledResponse``.
        """
        delay_ms = 0 if self.usage is None else self.usage.fetch(self._size)
        if not delay_ms:
            return None
        return FetchResponse(session_id=0 if self._is_full else self._session.state.id, throttle_time_ms=delay_ms)

    def _finish(self, response: FetchResponse, unfinished: Iterable[PartitionKey]) -> FetchResponse:
        asked = self._request.session
        wants_slot = asked is not None and asked.epoch == FULL_EPOCH and not self._request.is_denied
        sessions, now_ms = self._context.fetch_sessions, self._context.clock.monotonic_ms()
        response.session_id = sessions.finish(self._session, wants_slot, now_ms)
        # Partitions that have more records, or may have better results later, are read again.
        self._session.finish(self._turn, unfinished)
        return response

    def _is_complete(self) -> bool:
        if self._request.max_wait_ms <= 0 or not self._session.state.partitions or self._wait_is_ended():
            return True
        size, is_starved, is_follower = 0, False, self._follower is not None
        for item in self._items.values():
            if item.answers_at_once or (is_follower and self._ends_wait_of_follower(item)):
                return True
            size += item.size
            if item.is_starved:
                is_starved = True
        return size >= self._min_bytes or (size > 0 and is_starved)

    def _wait_is_ended(self) -> bool:
        asked = self._request.session
        return asked is not None and asked.epoch > FULL_EPOCH and self._session.wait_ended_epoch == asked.epoch

    def _ends_wait_of_follower(self, item: FetchItem) -> bool:
        if item.leaves_follower_behind():
            return True
        if not self._session.wants_high_watermark:
            return False
        told = item.entry.told
        return item.read is not None and told is not None and told[0] < item.read.high_watermark

    def _look(self) -> None:
        """Read the changed partitions. The others keep their results."""
        self._look_at(self._session.take_changed())

    def _look_at(self, keys: Iterable[PartitionKey]) -> None:
        partitions, items, looked_at = self._session.state.partitions, self._items, []
        may_read_all = self._request.access is None
        for key in keys:
            before = items.get(key)
            item = items[key] = FetchItem(key, partitions[key])
            if before is not None:
                self._size -= before.size
                item.is_repeated = before.error is None
            if may_read_all or self._may_read(item):
                looked_at.append(item)
        self._read(looked_at)

    def _may_read(self, item: FetchItem) -> bool:
        """Fail a partition that the caller may not read. One of an unknown id passes, and has the error of that."""
        topic = item.key[0]
        name = topic if isinstance(topic, str) else self._context.metadata.topic_name(topic)
        if name is None or self._request.may_read(name):
            return True
        item.fail(error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""))
        return False

    def _wait_for_room(self) -> None:
        starved = [item.key for item in self._items.values() if item.is_starved]
        for key in starved:
            self._session.state.mark(key)
        # A request that was woken since its last read has its turn now.
        if starved and not self._session.must_recheck:
            self.budget.wait(self._wake, is_follower=self._follower is not None)

    def _put_away(self) -> None:
        for item in self._items.values():
            if item.read is not None and item.read.records:
                item.read = dataclasses.replace(item.read, records=b"")
                item.is_put_away = True

    def _fetch_back(self) -> None:
        away = [item for item in self._items.values() if item.is_put_away]
        if away:
            for item in away:
                self._size -= item.size
                item.size, item.is_put_away = 0, False
            self._read(away)

    def _read(self, items: Iterable[FetchItem]) -> None:
        taken = self._size
        room = self.budget.room_for(self._wake, is_follower=self._follower is not None) + self._reserved - taken
        remaining = min(self._max_bytes - taken, room)
        is_first = taken == 0
        for item in items:
            self._read_item(item, remaining, is_first, has_room=room > 0)
            remaining -= item.size
            room -= item.size
            self._size += item.size
            is_first = is_first and item.size == 0

    def _reserve(self) -> None:
        self.budget.take(self._size - self._reserved)
        self._reserved = self._size

    def _read_item(self, item: FetchItem, remaining: int, is_first: bool, has_room: bool) -> None:
        spec = item.entry.spec
        try:
            partition = item.partition = partition_of(self._context, item)
            self._session.hold(item.key, partition)
            max_bytes = min(spec.max_bytes, max(0, remaining))
            if partition.throttled.leader and self._is_limited(partition):
                item.is_limited = True
                max_bytes = min(max_bytes, self._throttled_bytes())
            item.read = self._read_partition(item, partition, max_bytes, has_room)
            if not has_room:
                item.is_starved = not item.has_all and not item.is_limited
        except TidelogError as error:
            item.fail(error)
            return
        except Exception as error:  # noqa: BLE001  # logged
            # An error in one partition never stops the fetch of the others.
            text = "Reading %s-%d failed with an unexpected error"
            item.fail(report_unexpected(logger, error, text, topic_name(self._context, item), item.key[1]))
            return
        size = len(item.read.records)
        if size > remaining and not is_first:
            item.read = dataclasses.replace(item.read, records=b"", aborted=() if self._is_read_committed else None)
            size = 0
        item.size = size

    def _read_partition(self, item: FetchItem, partition: Partition, max_bytes: int, has_room: bool) -> ReadResult:
        spec = item.entry.spec
        request = ReadRequest(
            spec.fetch_offset,
            max_bytes,
            spec.leader_epoch,
            self._is_read_committed,
            spec.last_fetched_epoch,
            spec.log_start_offset,
            not has_room or (item.is_limited and max_bytes <= 0),
            item.is_repeated,
        )
        if self._follower is not None:
            return partition.read_as_leader(request, self._follower)
        item.preferred_replica = self._preferred_replica(partition, request)
        if item.preferred_replica is not None:
            return partition.snapshot(request)
        if self._request.may_read_followers and partition.state.leader is None:
            return partition.read_as_replica(request)
        return partition.read_as_leader(request, None)

    def _preferred_replica(self, partition: Partition, request: ReadRequest) -> BrokerId | None:
        rack_id = self._request.rack_id
        if not (self._context.replica_selector.is_rack_aware and rack_id):
            return None
        return preferred_replica(self._context, partition, request.fetch_offset, rack_id)

    def _is_limited(self, partition: Partition) -> bool:
        """Return whether to throttle the reader: a follower that is not in sync, since others could leave the ISR."""
        if self._follower is None:
            return False
        leader = partition.state.leader
        return leader is not None and self._follower.replica_id not in leader.isr.members

    def _throttled_bytes(self) -> int:
        """Return the bytes that throttled followers may still receive in this response."""
        throttle = self._context.throttles.leader
        if throttle.is_exceeded:
            return 0
        return throttle.transfer_bytes - sum(item.size for item in self._items.values() if item.is_limited)

    def _answered_keys(self) -> Iterable[PartitionKey]:
        return self._session.state.partitions if self._is_full else self._items

    def _add_results(self, response: FetchResponse, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            item = self._items[key]
            if self._is_full or item.is_news:
                response.topics.setdefault(key[0], []).append(
                    result_of(self._context, item, is_follower=self._follower is not None)
                )

    def _record_throttled(self) -> None:
        if self._follower is None:
            return
        size = 0
        for item in self._items.values():
            if item.size and item.partition is not None and item.partition.throttled.leader:
                size += item.size
        if size:
            self._context.throttles.leader.record(size)


def _chunks(keys: Iterable[PartitionKey]) -> Iterator[Sequence[PartitionKey]]:
    listed = list(keys)
    for begin in range(0, len(listed), _CHUNK):
        yield listed[begin : begin + _CHUNK]
