"""The fetch sessions of a node with their waiting requests: who is told when one of their partitions changes.

The rules of sessions are in :mod:`tidelog_node.replication.fetch_session`; this is what ties them to partitions. A
request without a session has one of its own, which ends with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Protocol

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.fetching import FetchRequest, PartitionKey, TopicRef
from tidelog_node.partitions import FollowerIdentity, Partition
from tidelog_node.partitions.purgatory import ReadWaiters
from tidelog_node.replication import FetchSession, FetchSessionCache
from tidelog_node.replication.fetch_session import FINAL_EPOCH, FULL_EPOCH, MAX_EPOCH

DEFAULT_SLOTS = 1_000


class Timer(Protocol):
    """As much of a timer's handle as a request needs."""

    def cancel(self) -> None:
        """Do not call any more."""


class OpenSession:
    """A session and the partitions that it is registered with; ends with :meth:`close`, on the event loop."""

    def __init__(self, state: FetchSession, *, wants_high_watermark: bool = False) -> None:
        """``wants_high_watermark``: a follower that serves consumers is to learn at once what is committed."""
        self.state = state
        self.wants_high_watermark = wants_high_watermark
        self.is_read_committed = False
        self.hurried_epoch = FINAL_EPOCH
        self.was_hurried = False
        """True if somebody wants the request to look again since it looked."""
        self.follower = None if state.replica is None else FollowerIdentity(*state.replica, state.lease)
        """Who reads, None for a consumer."""
        self._held: dict[PartitionKey, tuple[Partition, ReadWaiters]] = {}
        self._sleeper: Callable[[], None] | None = None
        self._turn = 0
        self._looked_at: dict[PartitionKey, None] = {}

    def wake(self, topic: TopicRef, index: int) -> None:
        """A partition has something new: the request that waits looks at it."""
        self.state.mark((topic, index))
        self.hurry()

    def mark(self, topic: TopicRef, index: int) -> None:
        """A partition is different: it is looked at before the next answer."""
        self.state.mark((topic, index))
        if self.wants_high_watermark:
            self.hurry()

    def hurry(self) -> None:
        """Let the request that waits, or is about to, look again."""
        self.was_hurried = True
        if self._sleeper is not None:
            self.wake_up()

    def begin(self) -> int:
        """Return the number of a new request; one that still waits has no say any more, and is woken.

        What a request has looked at that was not answered is to be looked at again: nobody heard of what it found.
        """
        self._turn += 1
        self._keep(self._looked_at)
        self.hurry()
        return self._turn

    def is_turn_of(self, number: int) -> bool:
        """Return whether no later request came, and the session has not ended."""
        return number == self._turn

    def take_changed(self) -> list[PartitionKey]:
        """Return the partitions to look at."""
        self.was_hurried = False
        keys = self.state.take_changed()
        self._looked_at.update(dict.fromkeys(keys))
        return keys

    def finish(self, number: int, unfinished: Iterable[PartitionKey]) -> None:
        """A request is answered, unless it has no say; ``unfinished`` are to be looked at with the next one."""
        if self.is_turn_of(number):
            self._keep(unfinished)

    def sleep(self, number: int, wake_up: Callable[[], None]) -> None:
        """Have ``wake_up`` called, once, when something is to be looked at: soon for a request that has no say.

        It is called in the loop's next round, so that it finds all that the present step changes.
        """
        assert self._sleeper is None, "a request sleeps already"
        self._sleeper = wake_up
        if self.was_hurried or not self.is_turn_of(number):
            self.wake_up()

    def wake_up(self) -> None:
        """Wake the request that sleeps, if one does."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            self.call_soon(sleeper)

    def forget_sleeper(self, wake_up: Callable[[], None]) -> None:
        """Do not wake a request that has gone; a later one of the session may sleep already."""
        if self._sleeper == wake_up:
            self._sleeper = None

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the loop's next round."""
        asyncio.get_running_loop().call_soon(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call when the time is over."""
        return asyncio.get_running_loop().call_later(delay_s, call)

    def hold(self, key: PartitionKey, partition: Partition) -> None:
        """Be told of what happens to a partition, and no more of another one that had its name."""
        held = self._held.get(key)
        if held is not None and held[0] is partition:
            return
        self.let_go(key)
        waiters = partition.waiters.log_end if self.state.is_privileged else partition.waiters.high_watermark
        waiters.add(self, *key)
        self._held[key] = (partition, waiters)

    def let_go(self, key: PartitionKey) -> None:
        """Be told no more of a partition."""
        held = self._held.pop(key, None)
        if held is not None:
            held[1].discard(self, *key)

    def end_leases(self, keys: Iterable[PartitionKey]) -> None:
        """Let no fetch count as one of these partitions until they are read again."""
        follower = self.follower
        for key in keys:
            held = self._held.get(key)
            if held is not None and follower is not None:
                held[0].end_lease(follower)

    def close(self) -> None:
        """Be told of nothing any more; a request that waits is woken."""
        self.begin()
        for key in list(self._held):
            self.let_go(key)

    def _keep(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            self.state.mark(key)
        self._looked_at.clear()


class FetchSessions:
    """All sessions of a node. Used on the event loop's thread. ``open_session`` makes them."""

    def __init__(
        self,
        slots: int = DEFAULT_SLOTS,
        draw_id: Callable[[], int] = lambda: random.SystemRandom().randint(1, MAX_EPOCH),
        open_session: Callable[[FetchSession], OpenSession] = OpenSession,
    ) -> None:
        self.cache = FetchSessionCache(slots, draw_id)
        self._open_session = open_session
        self._open: dict[int, OpenSession] = {}

    def begin(self, request: FetchRequest, now_ms: int) -> OpenSession:
        """Return the session that a request goes on with, or one of its own.

        Raises:
            TidelogError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        asked = request.session
        if is_full(request):
            session = self.begin_empty(request, now_ms)
            session.state.update(request.wanted, ())
        else:
            assert asked is not None, "a request without a session names all its partitions"
            state = self.cache.resume(asked.id, asked.epoch, request.replica, now_ms, request.uses_topic_ids)
            session = self._open[state.id]
            size = len(state.partitions)
            self._update(session, request)
            if len(state.partitions) > size:
                self._check_size(session)
            self.cache.touch(state, now_ms)
        session.state.lease.last_fetch_ms = now_ms
        return session

    def begin_empty(self, request: FetchRequest, now_ms: int) -> OpenSession:
        """Return the session of a request that names all its partitions, without them; nobody else knows it yet."""
        if request.session is not None:
            self._close(request.session.id)
        session = self._open_session(FetchSession(request.replica, now_ms, uses_topic_ids=request.uses_topic_ids))
        session.state.lease.last_fetch_ms = now_ms
        return session

    def finish(self, session: OpenSession, wants_slot: bool, now_ms: int) -> int:
        """Return the id that a request's answer tells, 0 when the session has ended; one that is new may get a slot."""
        state = session.state
        if state.id in self._open:
            if state.partitions:
                return state.id
            self._close(state.id)
            return 0
        if wants_slot and state.partitions:
            is_admitted, gone = self.cache.admit(state, now_ms)
            for old in gone:
                self._open.pop(old.id).close()
            if is_admitted:
                self._open[state.id] = session
                return state.id
        return 0

    def abandon(self, session: OpenSession) -> None:
        """End a session that has no slot; does nothing to others."""
        if session.state.id not in self._open:
            session.close()

    def end_wait(self, session_id: int, epoch: int) -> None:
        """Let the request of this epoch wait no longer, also when it is only on its way."""
        session = self._open.get(session_id)
        if session is not None:
            session.hurried_epoch = epoch
            session.hurry()

    def _update(self, session: OpenSession, request: FetchRequest) -> None:
        state = session.state
        session.end_leases({*request.wanted, *request.forgotten, *state.changed})
        for key in state.update(request.wanted, request.forgotten):
            session.let_go(key)

    def _check_size(self, session: OpenSession) -> None:
        try:
            self.cache.check_size(session.state)
        except TidelogError:
            self._close(session.state.id)
            raise

    def _close(self, session_id: int) -> None:
        if self.cache.remove(session_id) is not None:
            self._open.pop(session_id).close()


def is_full(request: FetchRequest) -> bool:
    """Return whether a request names all its partitions, and so makes a session."""
    return request.session is None or request.session.epoch in (FULL_EPOCH, FINAL_EPOCH)


def superseded(session_id: int) -> TidelogError:
    """Return the error of a request whose session went on, or ended, while it waited."""
    text = f"fetch session {session_id} went on without this request"
    return error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH, text)
