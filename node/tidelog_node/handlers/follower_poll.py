"""The long poll of a follower whose session has one changed partition, in few steps.

It is the most frequent fetch of a node: a follower that keeps up fetches each batch of a partition by itself. The
outcome is the same as in the way of all others (:mod:`tidelog_node.handlers.fetch`), which also takes over a poll that
needs more: other partitions that change meanwhile, an error, a diverging epoch, a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidelog_node.event_loop import Pending
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchResult, PartitionKey
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.fetch_item import FetchItem
from tidelog_node.handlers.fetch_sessions import OpenSession, superseded
from tidelog_node.handlers.response_budget import wait_for_nothing
from tidelog_node.partitions import Partition, ReadRequest, ReadResult
from tidelog_node.replication.fetch_session import SessionPartition

T = TypeVar("T")


class TakeOver(Protocol[T]):
    """The way of all others."""

    def __call__(self, item: FetchItem, turn: int, max_wait_ms: int, /) -> Pending[T]:
        """Continue a poll, in its turn of the session, that has read the partition and found no records."""


def begin_poll(
    context: NodeContext,
    request: FetchRequest,
    session: OpenSession,
    translate: Callable[[FetchResponse], T],
    take_over: TakeOver[T],
) -> T | Pending[T] | None:
    """Answer an incremental request at once or later, or return None if it must take the way of all others.

    The session has taken in the request.
    """
    asked, changed = request.session, session.state.changed
    if len(changed) != 1 or asked is None or request.max_wait_ms <= 0 or request.is_read_committed:
        return None
    if session.is_read_committed or context.replica_selector.is_rack_aware or session.wait_ended_epoch == asked.epoch:
        return None
    [key] = changed
    entry = session.state.partitions[key]
    partition = _partition(context, request, key, entry)
    return (
        None
        if partition is None
        else _Poll(context, request, session, entry, partition, translate, take_over).begin(key)
    )


class BegunPoll(NamedTuple):
    """A poll that waits, in its turn of the session, and that has read the partition and found no records."""

    request: FetchRequest
    session: OpenSession
    entry: SessionPartition
    partition: Partition
    key: PartitionKey
    turn: int
    read: ReadResult


def resume_poll(
    context: NodeContext,
    begun: BegunPoll,
    translate: Callable[[FetchResponse], T],
    take_over: TakeOver[T],
    left_s: float,
    *,
    is_over: bool,
) -> Pending[T]:
    """Look once more for the answer of a poll, and let it wait at most ``left_s``; not at all if it ``is_over``."""
    poll = _Poll(context, begun.request, begun.session, begun.entry, begun.partition, translate, take_over)
    return poll.resume(begun, left_s, is_over=is_over)


class _Poll(Generic[T]):
    """One request, from its arrival until its answer, or until it takes the way of all others."""

    __slots__ = (
        "_context",
        "_entry",
        "_is_over",
        "_key",
        "_min_bytes",
        "_partition",
        "_pending",
        "_read",
        "_request",
        "_session",
        "_successor",
        "_take_over",
        "_timer",
        "_translate",
        "_turn",
    )

    def __init__(
        self,
        context: NodeContext,
        request: FetchRequest,
        session: OpenSession,
        entry: SessionPartition,
        partition: Partition,
        translate: Callable[[FetchResponse], T],
        take_over: TakeOver[T],
    ) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._entry = entry
        self._partition = partition
        self._translate = translate
        self._take_over = take_over
        self._min_bytes = min(request.min_bytes, request.max_bytes, context.fetch_max_bytes)
        self._is_over = False
        self._successor: Pending[T] | None = None

    def begin(self, key: PartitionKey) -> T | Pending[T] | None:
        """Read the partition once, and return the answer, a Pending of it, or None."""
        session, request = self._session, self._request
        self._key = key
        self._turn = session.begin()
        session.wants_high_watermark = False
        session.take(key)
        session.hold(key, self._partition)
        read = self._look(is_repeated=False)
        if read is None:
            # The next turn of the session checks the partition again.
            return None
        self._read, request.decision = read, None
        if len(read.records) >= self._min_bytes:
            return self._translate(self._response())
        self._pending: Pending[T] = Pending(self._give_up)
        self._timer = session.call_later(request.max_wait_ms / 1000, self._look_at_last)
        session.sleep(self._turn, self._look_again)
        return self._pending

    def resume(self, begun: BegunPoll, left_s: float, *, is_over: bool) -> Pending[T]:
        """Continue a poll that waits."""
        self._key, self._turn, self._read, self._is_over = begun.key, begun.turn, begun.read, is_over
        self._pending = Pending(self._give_up)
        self._timer = self._session.call_later(left_s, self._look_at_last)
        self._look_again()
        return self._pending

    def _look(self, *, is_repeated: bool) -> ReadResult | None:
        """Read the partition. Return None for a result that only the way of all others can answer or store."""
        spec, context = self._entry.spec, self._context
        room = context.response_budget.room_for(wait_for_nothing, is_follower=True)
        most = min(spec.max_bytes, self._request.max_bytes, context.fetch_max_bytes, room)
        if most <= 0:
            return None
        epoch, last_epoch, log_start = spec.leader_epoch, spec.last_fetched_epoch, spec.log_start_offset
        asked = ReadRequest(spec.fetch_offset, most, epoch, False, last_epoch, log_start, False, is_repeated)
        try:
            read = self._partition.read_as_leader(asked, self._session.follower)
        except Exception:  # noqa: BLE001  # the way of all others meets it again, and answers or logs it
            return None
        is_plain = read.diverging is None and log_start >= read.log_start_offset
        return read if is_plain and (not read.records or len(read.records) >= self._min_bytes) else None

    def _look_at_last(self) -> None:
        self._is_over = True
        self._look_again()

    def _look_again(self) -> None:
        if self._pending.is_settled or self._successor is not None:
            return
        session = self._session
        if self._is_over:
            # The session forgets a sleeper that it wakes; the timer may find one.
            session.forget_sleeper(self._look_again)
        if not session.is_turn_of(self._turn):
            self._settle(FetchResponse(error=superseded(session.state.id)))
        elif not self._has_looked():
            self._hand_over()
        elif self._is_over or self._is_complete():
            self._settle(self._response())
        else:
            session.sleep(self._turn, self._look_again)

    def _has_looked(self) -> bool:
        """Read the partition if it has changed. Return False if others have, or it can no longer be read here."""
        session, changed = self._session, self._session.state.changed
        if not changed:
            session.must_recheck = False
            return True
        if len(changed) > 1 or self._key not in changed:
            return False
        if _partition(self._context, self._request, self._key, self._entry) is not self._partition:
            return False
        session.take(self._key)
        read = self._look(is_repeated=True)
        if read is None:
            session.state.mark(self._key)
            return False
        self._read, self._request.decision = read, None
        return True

    def _is_complete(self) -> bool:
        asked = self._request.session
        assert asked is not None, "only a session's requests come here"
        return len(self._read.records) >= self._min_bytes or self._session.wait_ended_epoch == asked.epoch

    def _response(self) -> FetchResponse:
        """Return the response, and record it in the session."""
        session, entry, read = self._session, self._entry, self._read
        response = FetchResponse({}, session.state.id)
        records, high_watermark, log_start = read.records, read.high_watermark, read.log_start_offset
        if records or entry.is_news(high_watermark, log_start):
            entry.tell(high_watermark, log_start)
            self._partition.traffic.replicated_out += len(records)
            topic, index = self._key
            result = FetchResult(index, None, high_watermark, read.last_stable_offset, log_start, records)
            response.topics[topic] = [result]
        session.finish(self._turn, () if read.has_all else (self._key,))
        return response

    def _settle(self, response: FetchResponse) -> None:
        self._timer.cancel()
        try:
            answer = self._translate(response)
        except Exception as error:  # noqa: BLE001  # who waits hears of it; else nobody would
            self._pending.fail(error)
            return
        budget, size = self._context.response_budget, response.size
        budget.take(size)
        self._pending.settle(answer)
        if size:
            # One step later, when the caller has counted it.
            self._session.call_soon(partial(budget.give_back, size))

    def _hand_over(self) -> None:
        self._timer.cancel()
        self._session.must_recheck = True
        item = FetchItem(self._key, self._entry, self._partition, self._read)
        waited_ms = self._context.clock.monotonic_ms() - self._session.state.lease.last_fetch_ms
        left_ms = 0 if self._is_over else max(0, self._request.max_wait_ms - waited_ms)
        self._successor = self._take_over(item, self._turn, left_ms)
        self._successor.then(self._pass_on)

    def _pass_on(self, done: Pending[T]) -> None:
        if self._pending.is_settled:
            return
        if done.error is not None:
            self._pending.fail(done.error)
        elif done.is_cancelled:
            self._pending.cancel()
        else:
            self._pending.settle(done.result())

    def _give_up(self) -> None:
        self._timer.cancel()
        self._session.forget_sleeper(self._look_again)
        if self._successor is not None:
            self._successor.cancel()


def _partition(
    context: NodeContext, request: FetchRequest, key: PartitionKey, entry: SessionPartition
) -> Partition | None:
    """Return the partition, or None if it is not here, is throttled, or the follower may not read it.

    The request keeps the authorizer's decision for the way of all others, so that the log has it once.
    """
    topic, index = key
    name = topic if isinstance(topic, str) else entry.name
    partition = None if name is None else context.partitions.get(name, index)
    topic_id = entry.spec.topic_id
    if partition is None or partition.throttled.leader or (topic_id and topic_id != partition.topic_id):
        return None
    if request.access is None:
        return partition
    is_permitted = request.may_read(partition.topic)
    request.decision = partition.topic, is_permitted
    return partition if is_permitted else None
