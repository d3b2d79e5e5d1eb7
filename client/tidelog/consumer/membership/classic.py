"""Membership by the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; the leader assigns.

It follows Kafka's ``ConsumerCoordinator``, but uses poll() as librdkafka does: joining proceeds without poll(),
callbacks wait for poll(), and a session without an answer from the coordinator ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from tidelog.consumer.assignors import Subscription, assignor_named, encode_subscription
from tidelog.consumer.membership.events import (
    CallFailed,
    Closing,
    Command,
    Event,
    Key,
    Left,
    MembershipSettings,
    Polled,
    RebalanceServed,
    ReportError,
    Responded,
    Subscribed,
    TimePassed,
    TopicsLearned,
    Unsubscribed,
)
from tidelog.consumer.membership.liveness import PollTimer, poll_exceeded
from tidelog.consumer.membership.reconciliation import Handover
from tidelog.consumer.membership.session import GroupSession, Phase
from tidelog_foundation.errors import ErrorCode, error_for


class ClassicMembership:
    """One consumer's membership for its whole life. ``choose_backoff`` maps a number of failures to milliseconds.

    If all assignors are cooperative, members keep their partitions while they join. Otherwise they revoke everything
    first, whichever assignor the group chooses (Kafka's lowest common rebalance protocol).
    """

    def __init__(self, settings: MembershipSettings, choose_backoff: Callable[[int], float]) -> None:
        if not settings.assignors:
            raise error_for(ErrorCode._INVALID_ARG, "partition.assignment.strategy must name at least one assignor")
        self._settings = settings
        self._assignors = {name: assignor_named(name) for name in settings.assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors.values())
        self._commands: list[Command] = []
        self._session = GroupSession(settings, self._assignors, choose_backoff, self._emit)
        self._handover = Handover()
        self._poll_timer = PollTimer(settings.max_poll_interval_ms)
        self._topics: frozenset[str] | None = None
        self._target: frozenset[Key] | None = None
        self._assigned: frozenset[Key] = frozenset()
        self._assigned_generation = -1
        self._is_closing = False
        self._has_left = False

    @property
    def owned(self) -> frozenset[Key]:
        """The application's partitions, from their assignment until it has released them."""
        return self._handover.owned

    @property
    def next_deadline_ms(self) -> float | None:
        """The latest time for :class:`TimePassed`; None if no timer is set."""
        soonest = min(self._session.deadline_ms, self._poll_timer.deadline_ms)
        if self._topics is not None and self._session.wants_to_join and self._handover.serving is None:
            soonest = min(soonest, self._session.join_ms)
        return None if soonest == float("inf") else soonest

    def step(self, event: Event, now_ms: float) -> list[Command]:
        """Apply an event, and return the shell's commands in order."""
        assert not self._has_left or not isinstance(event, Subscribed)
        self._take(event, now_ms)
        if self._session.is_fatal:
            self._poll_timer.stop()
        elif self._poll_timer.exceed(now_ms):
            self._exceeded()
        self._session.watch(now_ms)
        self._proceed(now_ms)
        commands, self._commands[:] = list(self._commands), []
        return commands

    def check_invariants(self) -> None:
        """Raise AssertionError if the state is inconsistent."""
        self._session.check_invariants()
        self._handover.check_invariants()
        assert not self._session.has_lost or self._handover.serving is not None
        assert self._is_cooperative or self._session.phase is not Phase.JOINING or not self.owned
        assert not self._has_left or not self.owned

    def _take(self, event: Event, now_ms: float) -> None:
        match event:
            case Subscribed():
                self._subscribe(event.topics, now_ms)
            case Unsubscribed():
                self._unsubscribe()
            case Closing():
                self._is_closing = True
                self._unsubscribe()
            case TopicsLearned():
                self._session.learn(event.topics)
            case Polled():
                self._session.awaits_poll = False
                if self._topics is not None:
                    self._poll_timer.restart(now_ms)
            case Responded():
                self._session.responded(event, now_ms)
            case CallFailed():
                self._session.call_failed(event, now_ms)
            case RebalanceServed():
                self._handover.served(event.rebalance_id)
            case TimePassed():
                pass
            case _:
                assert_never(event)

    def _subscribe(self, topics: frozenset[str], now_ms: float) -> None:
        if self._topics is None:
            self._poll_timer.restart(now_ms)
        if self._topics != topics and self._session.phase is not Phase.UNJOINED:
            self._session.rejoin_reason = "the subscription has changed"
        self._topics = topics

    def _unsubscribe(self) -> None:
        self._topics = None
        self._target = None
        self._poll_timer.stop()
        self._session.abandon()

    def _exceeded(self) -> None:
        """Leave at once: the application is late, and other members can take its partitions."""
        self._emit(ReportError(poll_exceeded(self._settings.max_poll_interval_ms)))
        self._session.awaits_poll = True
        self._session.leave("max.poll.interval.ms exceeded")
        self._session.has_lost = True

    def _proceed(self, now_ms: float) -> None:
        """Take the next step after the application has handled the previous one."""
        if self._session.assignment is not None:
            self._receive(self._session.assignment)
            self._session.assignment = None
        if self._session.has_lost:
            self._target = None
        if self._handover.serving is not None:
            return
        if self._session.has_lost:
            self._session.has_lost = False
            if self.owned:
                self._revoke(self.owned, lost=True)
                return
        if self._topics is None:
            self._give_up()
        elif self._target is not None:
            self._hand_over(self._target)
        elif self._session.wants_to_join:
            self._prepare_join(now_ms)

    def _receive(self, assignment: frozenset[Key]) -> None:
        """Accept the leader's assignment for the topics that are still subscribed."""
        topics = self._topics or frozenset()
        self._target = frozenset(key for key in assignment if key[0] in topics)
        self._assigned, self._assigned_generation = self._target, self._session.generation_id

    def _hand_over(self, target: frozenset[Key]) -> None:
        """Give the application the target partitions. Revocations come first, and after one the member joins again."""
        revoked = self.owned - target
        if revoked:
            assert self._is_cooperative
            self._session.rejoin_reason = "need to revoke partitions and re-join"
            self._revoke(revoked)
            return
        self._target = None
        self._emit(self._handover.assign(target - self.owned, incremental=self._is_cooperative))

    def _prepare_join(self, now_ms: float) -> None:
        """Revoke the partitions that the member must not keep while it joins, then join."""
        topics = self._topics or frozenset()
        kept = frozenset(key for key in self.owned if key[0] in topics) if self._is_cooperative else frozenset()
        if kept != self.owned:
            self._revoke(self.owned - kept)
        elif now_ms >= self._session.join_ms:
            self._session.join(self._protocols(topics), now_ms)

    def _protocols(self, topics: frozenset[str]) -> Iterator[tuple[str, bytes]]:
        generation = self._assigned_generation
        for name, assignor in self._assignors.items():
            user_data = assignor.user_data(self.owned if assignor.is_cooperative else self._assigned, generation)
            subscription = Subscription(topics, user_data, self.owned, generation, self._settings.client_rack)
            yield name, encode_subscription(subscription)

    def _give_up(self) -> None:
        """Release everything and leave the group."""
        if self._has_left or self._session.is_leaving:
            return
        if self.owned:
            self._revoke(self.owned)
            return
        if self._session.member_id:
            self._session.leave("the consumer is being closed" if self._is_closing else "unsubscribed from all topics")
        if self._is_closing and not self._session.is_leaving:
            self._has_left = True
            self._emit(Left())

    def _revoke(self, partitions: frozenset[Key], *, lost: bool = False) -> None:
        self._emit(self._handover.revoke(partitions, incremental=self._is_cooperative, lost=lost))

    def _emit(self, command: Command) -> None:
        self._commands.append(command)
