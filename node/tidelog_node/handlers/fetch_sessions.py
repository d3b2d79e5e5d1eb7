"""The fetch sessions of a node and their waiting requests, which wake when one of their partitions changes.

:mod:`tidelog_node.replication.fetch_session` implements the rules of sessions; this module connects them to partitions.
A request without a session has one of its own, which ends with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Protocol

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import result_at_once
from tidelog_node.fetching import FetchRequest, FetchSpec, PartitionKey, TopicRef
from tidelog_node.partitions import FollowerIdentity, Partition
from tidelog_node.partitions.purgatory import PartitionListeners
from tidelog_node.replication import FetchSession, FetchSessionCache
from tidelog_node.replication.fetch_session import FINAL_EPOCH, FULL_EPOCH, MAX_EPOCH

DEFAULT_SLOTS = 1_000


class Timer(Protocol):
    """The part of a timer's handle that a request needs."""

    def cancel(self) -> None:
        """Cancel the call."""


class OpenSession:
    """A session and the partitions that it is registered with, until :meth:`close`."""

    def __init__(self, state: FetchSession, *, wants_high_watermark: bool = False) -> None:
        """Open the session.

        ``wants_high_watermark`` is set if a follower that serves consumers must learn commits at once.
        """
        self.state = state
        self.wants_high_watermark = wants_high_watermark
        self.is_read_committed = False
        self.wait_ended_epoch = FINAL_EPOCH
        self.must_recheck = False
        """True if the request must check its partitions again."""
        self.is_changing = False
        """True while a request changes the partitions in several steps."""
        self.follower = None if state.replica is None else FollowerIdentity(*state.replica, state.lease)
        """The reading follower, None for a consumer."""
        self._held: dict[PartitionKey, tuple[Partition, PartitionListeners]] = {}
        self._sleeper: Callable[[], None] | None = None
        self._turn = 0
        self._looked_at: dict[PartitionKey, None] = {}

    def wake(self, topic: TopicRef, index: int) -> None:
        """Mark a partition with new data and wake the waiting request."""
        self.state.mark((topic, index))
        self.must_recheck = True
        if self._sleeper is not None:
            self.wake_up()

    def mark(self, topic: TopicRef, index: int) -> None:
        """Mark a partition to be checked before the next answer."""
        self.state.mark((topic, index))
        if self.wants_high_watermark:
            self.recheck()

    def recheck(self) -> None:
        """Make the current request, or the next one, check its partitions again."""
        self.must_recheck = True
        if self._sleeper is not None:
            self.wake_up()

    def begin(self) -> int:
        """Return the number of a new request. An earlier one that still waits is superseded and woken.

        Partitions that an earlier request checked without an answer are checked again, since nobody has seen the
        result.
        """
        self._turn += 1
        if self._looked_at:
            self._keep(self._looked_at)
        self.recheck()
        return self._turn

    def may_poll(self, key: PartitionKey, partition: Partition, epoch: int) -> bool:
        """Return whether the request of this epoch finds the session at rest, with no other partition to check."""
        held, changed = self._held.get(key), self.state.changed
        return not (
            self._sleeper is not None
            or self._looked_at
            or self.is_changing
            or self.is_read_committed
            or self.wait_ended_epoch == epoch
            or held is None
            or held[0] is not partition
            or len(changed) > 1
            or (changed and key not in changed)
        )

    def begin_poll(self, key: PartitionKey) -> int:
        """Return the number of a new request, which :meth:`may_poll`, and take the partition that it names."""
        self._turn += 1
        self.wants_high_watermark = False
        self.take(key)
        return self._turn

    def is_turn_of(self, number: int) -> bool:
        """Return whether this is the latest request and the session has not ended."""
        return number == self._turn and not self.is_changing

    def take_changed(self) -> list[PartitionKey]:
        """Return the partitions to check."""
        self.must_recheck = False
        keys = self.state.take_changed()
        looked_at = self._looked_at
        for key in keys:
            looked_at[key] = None
        return keys

    def finish(self, number: int, unfinished: Iterable[PartitionKey]) -> None:
        """Record the answer of a request, unless it is superseded. ``unfinished`` are checked by the next one."""
        if number == self._turn and not self.is_changing:
            self._keep(unfinished)

    def sleep(self, number: int, wake_up: Callable[[], None]) -> None:
        """Call ``wake_up`` once when there is something to check, or soon for a superseded request.

        It runs in the loop's next iteration, so that it sees all changes of the current step.
        """
        assert self._sleeper is None, "a request sleeps already"
        self._sleeper = wake_up
        if self.must_recheck or number != self._turn or self.is_changing:
            self.wake_up()

    def wake_up(self) -> None:
        """Wake the sleeping request, if there is one."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            self.call_soon(sleeper)

    def take(self, key: PartitionKey) -> None:
        """Take the only changed partition, which the caller checks."""
        self.must_recheck = False
        self.state.changed.clear()
        self._looked_at[key] = None

    def forget_sleeper(self, wake_up: Callable[[], None]) -> None:
        """Do not wake a request that has gone. A later one of the session may already sleep."""
        if self._sleeper == wake_up:
            self._sleeper = None

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in the loop's next iteration."""
        asyncio.get_running_loop().call_soon(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call after the delay."""
        return asyncio.get_running_loop().call_later(delay_s, call)

    def hold(self, key: PartitionKey, partition: Partition) -> None:
        """Register with a partition, and unregister from another one that had its name."""
        held = self._held.get(key)
        if held is not None and held[0] is partition:
            return
        self.let_go(key)
        waiters = partition.waiters.log_end if self.state.is_privileged else partition.waiters.high_watermark
        waiters.add(self, *key)
        self._held[key] = (partition, waiters)

    def let_go(self, key: PartitionKey) -> None:
        """Unregister from a partition."""
        held = self._held.pop(key, None)
        if held is not None:
            held[1].discard(self, *key)

    def end_lease(self, key: PartitionKey) -> None:
        """End the lease of a partition until it is read again."""
        held = self._held.get(key)
        if held is not None and self.follower is not None:
            held[0].end_lease(self.follower)

    def close(self) -> None:
        """Unregister from everything and wake the waiting request."""
        self.begin()
        for key in list(self._held):
            self.let_go(key)

    def _keep(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            self.state.mark(key)
        self._looked_at.clear()


class FetchSessions:
    """All sessions of a node, used on the event loop's thread. ``open_session`` creates them."""

    def __init__(
        self,
        slots: int = DEFAULT_SLOTS,
        draw_id: Callable[[], int] = lambda: random.SystemRandom().randint(1, MAX_EPOCH),
        open_session: Callable[[FetchSession], OpenSession] = OpenSession,
    ) -> None:
        self.cache = FetchSessionCache(slots, draw_id)
        self._open_session = open_session
        self._open: dict[int, OpenSession] = {}

    def session_of(self, session_id: int) -> OpenSession | None:
        """Return the session with an id, None without one."""
        return self._open.get(session_id)

    def begin(self, request: FetchRequest, now_ms: int) -> OpenSession:
        """Return the session that a request continues, or one of its own.

        Raises:
            TidelogError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if request.forgotten or is_full(request):
            return result_at_once(self.begin_in_steps(request, now_ms))
        session = self._resume(request, now_ms)
        self._update_at_once(session, request.wanted)
        session.state.lease.last_fetch_ms = now_ms
        return session

    def begin_in_steps(self, request: FetchRequest, now_ms: int) -> Generator[None, None, OpenSession]:
        """Do the same, one partition a step.

        A session that a request changes refuses others with INVALID_FETCH_SESSION_EPOCH until the last step. It is
        closed if the caller does not take all steps.
        """
        session = self._new(request, now_ms) if is_full(request) else self._resume(request, now_ms)
        state = session.state
        if is_full(request):
            yield from state.add_in_steps(request.wanted)
        else:
            yield from self._update(session, request)
            self.cache.touch(state, now_ms)
        state.lease.last_fetch_ms = now_ms
        return session

    def finish(self, session: OpenSession, wants_slot: bool, now_ms: int) -> int:
        """Return the session id of a request's answer, 0 if it has ended. A new session may get a slot."""
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
        """End a session that has no slot; do nothing for others."""
        if session.state.id not in self._open:
            session.close()

    def end_wait(self, session_id: int, epoch: int, owner: str = "") -> None:
        """End the wait of the request of this epoch, even if it has not arrived yet."""
        session = self._open.get(session_id)
        if session is not None and session.state.owner == owner:
            session.wait_ended_epoch = epoch
            session.recheck()

    def _new(self, request: FetchRequest, now_ms: int) -> OpenSession:
        if request.session is not None:
            replaced = self._open.get(request.session.id)
            if replaced is not None and replaced.state.owner == request.owner:
                self._close(request.session.id)
        state = FetchSession(request.replica, now_ms, uses_topic_ids=request.uses_topic_ids, owner=request.owner)
        session = self._open_session(state)
        session.state.lease.last_fetch_ms = now_ms
        return session

    def _resume(self, request: FetchRequest, now_ms: int) -> OpenSession:
        asked = request.session
        assert asked is not None, "a request without a session names all its partitions"
        known = self._open.get(asked.id)
        if known is not None and known.is_changing and known.state.owner == request.owner:
            text = f"fetch session {asked.id} still takes in the partitions of its last request"
            raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH, text)
        state = self.cache.resume(
            asked.id, asked.epoch, request.replica, now_ms, request.uses_topic_ids, owner=request.owner
        )
        return self._open[state.id]

    def _update(self, session: OpenSession, request: FetchRequest) -> Generator[None, None, None]:
        session_id, size = session.state.id, len(session.state.partitions)
        session.is_changing = True
        try:
            yield from self._update_in_steps(session, request)
            if self._open.get(session_id) is not session:
                raise superseded(session_id)
            if len(session.state.partitions) > size:
                self._check_size(session)
            session.is_changing = False
        finally:
            if session.is_changing and self._open.get(session_id) is session:
                self._close(session_id)

    def _update_at_once(self, session: OpenSession, wanted: Mapping[PartitionKey, FetchSpec]) -> None:
        """Do what :meth:`_update` does for a request that forgets no partition, without a pause."""
        state = session.state
        size = len(state.partitions)
        for key in wanted:
            session.end_lease(key)
        for key in tuple(state.changed):
            if key not in wanted:
                session.end_lease(key)
        for key, spec in wanted.items():
            state.ask_for(key, spec)
        if len(state.partitions) > size:
            self._check_size(session)
            state.cached_size = len(state.partitions)

    @staticmethod
    def _update_in_steps(session: OpenSession, request: FetchRequest) -> Generator[None, None, None]:
        state = session.state
        for keys in (request.wanted, request.forgotten, tuple(state.changed)):
            for key in keys:
                session.end_lease(key)
                yield
        yield from state.add_in_steps(request.wanted)
        for key in request.forgotten:
            if state.remove(key):
                session.let_go(key)
            yield

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
    """Return whether a request names all its partitions and therefore creates a session."""
    return request.session is None or request.session.epoch in (FULL_EPOCH, FINAL_EPOCH)


def superseded(session_id: int) -> TidelogError:
    """Return the error of a request whose session continued or ended while it waited."""
    text = f"fetch session {session_id} went on without this request"
    return error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH, text)
