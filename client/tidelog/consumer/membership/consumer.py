"""Membership by KIP-848's protocol: the coordinator assigns, and heartbeats carry all information.

It follows Kafka's ``AbstractMembershipManager`` and ``ConsumerHeartbeatRequestManager``. Joining proceeds without
poll(), and callbacks wait for poll(). The member acknowledges released partitions at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from tidelog.consumer.membership.events import (
    AskTopics,
    Call,
    CallFailed,
    Closing,
    Command,
    Event,
    Key,
    Left,
    MembershipChanged,
    MembershipRequest,
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
from tidelog.consumer.membership.reconciliation import Reconciliation, TopicIdPartition, member_topics
from tidelog.v1 import common_pb2
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

_NO_MEMBER = MembershipChanged(-1, "")


class MemberPhase(enum.Enum):
    """The member's state in its group."""

    OUTSIDE = "it is no member, and does not want to be one now"
    JOINING = "it wants to join, or has sent its first heartbeat"
    MEMBER = "it has an epoch"
    LEAVING = "its last heartbeat is under way, or waits for the one before it"


class ConsumerMembership:
    """One consumer's membership for its whole life, under one member id (KIP-1082)."""

    def __init__(
        self, settings: MembershipSettings, new_id: Callable[[], str], choose_backoff: Callable[[int], float]
    ) -> None:
        self._settings = settings
        self._choose_backoff = choose_backoff
        self._member_id = new_id()
        self._state = HeartbeatState(settings, self._member_id)
        self._reconciliation = Reconciliation()
        self._poll_timer = PollTimer(settings.max_poll_interval_ms)
        self._phase = MemberPhase.OUTSIDE
        self._epoch = JOIN_EPOCH
        self._told = _NO_MEMBER
        self._is_subscribed = False
        self._subscription = Subscribed(frozenset())
        self._due_ms = float("-inf")
        self._retry_at_ms = float("-inf")
        self._failures = 0
        self._calls = 0
        self._call_id: int | None = None
        self._may_be_member = False
        self._has_to_leave = False
        self._has_lost = False
        self._awaits_poll = False
        self._is_fatal = False
        self._is_closing = False
        self._has_left = False
        self._commands: list[Command] = []

    @property
    def owned(self) -> frozenset[Key]:
        """The application's partitions, from their assignment until it has released them."""
        return self._reconciliation.owned

    @property
    def next_deadline_ms(self) -> float | None:
        """The latest time for :class:`TimePassed`; None if no timer is set."""
        soonest = self._poll_timer.deadline_ms
        if self._sends_heartbeats and self._call_id is None:
            soonest = min(soonest, self._heartbeat_ms)
        return None if soonest == float("inf") else soonest

    def step(self, event: Event, now_ms: float) -> list[Command]:
        """Apply an event, and return the shell's commands in order."""
        self._take(event, now_ms)
        if self._is_fatal:
            self._poll_timer.stop()
        elif self._poll_timer.exceed(now_ms):
            self._exceeded()
        self._proceed()
        if self._sends_heartbeats and self._call_id is None and now_ms >= self._heartbeat_ms:
            self._heartbeat()
        commands, self._commands = self._commands, []
        return commands

    def check_invariants(self) -> None:
        """Raise AssertionError if the state is inconsistent."""
        self._reconciliation.check_invariants()
        assert (self._phase is MemberPhase.MEMBER) == (self._epoch > JOIN_EPOCH)
        assert self._phase is not MemberPhase.LEAVING or self._call_id is not None
        assert self._phase is not MemberPhase.OUTSIDE or self._call_id is None
        assert self._phase is not MemberPhase.JOINING or self._call_id is None or not self.owned
        expected = MembershipChanged(self._epoch, self._member_id) if self._phase is MemberPhase.MEMBER else _NO_MEMBER
        assert self._told == expected
        assert not self._is_fatal or self._phase is MemberPhase.OUTSIDE
        assert not self._has_left or not self.owned

    def _take(self, event: Event, now_ms: float) -> None:
        match event:
            case Subscribed():
                self._subscribe(event, now_ms)
            case Unsubscribed():
                self._unsubscribe()
            case Closing():
                self._is_closing = True
                self._unsubscribe()
            case TopicsLearned():
                self._reconciliation.learn(event.topics)
            case Polled():
                self._awaits_poll = False
                if self._is_subscribed:
                    self._poll_timer.restart(now_ms)
            case Responded():
                self._responded(event, now_ms)
            case CallFailed():
                self._call_failed(event, now_ms)
            case RebalanceServed():
                self._reconciliation.served(event.rebalance_id)
            case TimePassed():
                pass
            case _:
                assert_never(event)

    def _subscribe(self, event: Subscribed, now_ms: float) -> None:
        if not self._is_subscribed:
            self._poll_timer.restart(now_ms)
            # A member that has not left yet stays; a full heartbeat returns its assignment.
            self._state.reset()
        if not self._is_subscribed or self._subscription.topics != event.topics:
            self._emit(AskTopics(event.topics))
        self._is_subscribed = True
        self._subscription = event

    def _unsubscribe(self) -> None:
        self._is_subscribed = False
        self._poll_timer.stop()
        self._reconciliation.forget()

    def _exceeded(self) -> None:
        """Leave at once, and rejoin when the application polls (Kafka's stale member)."""
        self._emit(ReportError(poll_exceeded(self._settings.max_poll_interval_ms)))
        self._awaits_poll = True
        self._has_lost = True
        self._leave()

    def _responded(self, event: Responded, now_ms: float) -> None:
        if event.call_id != self._call_id:
            return
        self._call_id = None
        response = event.response
        assert isinstance(response, pb.ConsumerGroupHeartbeatResponse)
        code = ErrorCode.of(response.error.code)
        if self._phase is MemberPhase.LEAVING:
            self._go_on_leaving()
        elif code is ErrorCode.NONE:
            self._accepted(response, now_ms)
        elif code.retriable:
            self._retry_later(now_ms)
        elif code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            if self._phase is MemberPhase.JOINING:
                self._retry_later(now_ms)
            self._put_out()
        else:
            self._end(code, response.error)

    def _call_failed(self, event: CallFailed, now_ms: float) -> None:
        """Handle a call without an answer. As in Kafka, leaving is not retried; the session will expire."""
        if event.call_id != self._call_id:
            return
        self._call_id = None
        if self._phase is MemberPhase.LEAVING:
            self._go_on_leaving()
        else:
            self._retry_later(now_ms)

    def _accepted(self, response: pb.ConsumerGroupHeartbeatResponse, now_ms: float) -> None:
        self._failures = 0
        self._due_ms = now_ms + response.heartbeat_interval_ms
        self._phase = MemberPhase.MEMBER
        self._epoch = response.member_epoch
        self._tell(MembershipChanged(self._epoch, self._member_id))
        if not self._is_subscribed:
            return
        if response.HasField("assignment"):
            self._reconciliation.assign(response.assignment)
            if self._reconciliation.has_all:
                # Nothing changes here, but the coordinator may wait to hear that an earlier assignment was not adopted.
                self._state.forget_owned()
        if self._reconciliation.has_unresolved:
            self._emit(AskTopics(self._subscription.topics))

    def _retry_later(self, now_ms: float) -> None:
        self._failures += 1
        self._retry_at_ms = now_ms + self._choose_backoff(self._failures)
        self._state.reset()

    def _put_out(self) -> None:
        """Rejoin: the coordinator does not know the member in this epoch, and reassigns its partitions."""
        self._forget_epoch(MemberPhase.JOINING)
        self._has_lost = True

    def _end(self, code: ErrorCode, error: common_pb2.Error) -> None:
        """End the membership with a fatal error, as in Kafka: another member has its instance id, or a request is
        refused.
        """
        self._emit(ReportError(TidelogError(KafkaError(code, error.message or None, fatal=True))))
        self._forget_epoch(MemberPhase.OUTSIDE)
        self._has_lost = True
        self._is_fatal = True

    def _proceed(self) -> None:
        """Take the next step with the application after it has handled the previous one."""
        if self._reconciliation.is_serving:
            return
        lost, self._has_lost = self._has_lost, False
        if lost or not self._is_subscribed:
            command: Command | None = self._reconciliation.give_up(lost=lost)
        else:
            command = self._reconciliation.next_step()
        if command is not None:
            self._emit(command)
        elif not self._is_subscribed:
            self._give_up()
        elif self._phase is MemberPhase.OUTSIDE and not self._is_fatal and not self._awaits_poll:
            self._phase = MemberPhase.JOINING

    def _give_up(self) -> None:
        """Leave the group, now that the application has released everything."""
        if self._phase in (MemberPhase.JOINING, MemberPhase.MEMBER):
            self._leave()
        if self._is_closing and self._phase is MemberPhase.OUTSIDE and not self._has_left:
            self._has_left = True
            self._emit(Left())

    def _leave(self) -> None:
        """Leave after any pending heartbeat, which could otherwise arrive later and rejoin the member."""
        says_so, under_way = self._may_be_member, self._call_id
        self._forget_epoch(MemberPhase.OUTSIDE)
        if says_so:
            self._phase = MemberPhase.LEAVING
            self._call_id, self._has_to_leave = under_way, True
            if under_way is None:
                self._go_on_leaving()

    def _go_on_leaving(self) -> None:
        if self._has_to_leave:
            self._has_to_leave = False
            self._call(self._state.leave())
        else:
            self._phase = MemberPhase.OUTSIDE

    def _forget_epoch(self, phase: MemberPhase) -> None:
        self._phase = phase
        self._epoch = JOIN_EPOCH
        self._call_id = None
        self._may_be_member = False
        self._due_ms = float("-inf")
        self._state.reset()
        self._reconciliation.forget()
        self._tell(_NO_MEMBER)

    @property
    def _sends_heartbeats(self) -> bool:
        if self._phase is MemberPhase.JOINING:
            return self._is_subscribed and not self.owned
        return self._phase is MemberPhase.MEMBER

    @property
    def _heartbeat_ms(self) -> float:
        """The time of the next heartbeat: immediate if the coordinator lacks some of the member's state."""
        return self._retry_at_ms if self._state.is_news(self._said) else self._due_ms

    @property
    def _said(self) -> Said:
        return Said(self._subscription.topics, self._subscription.pattern, self._reconciliation.current)

    def _heartbeat(self) -> None:
        self._may_be_member = True
        self._call(self._state.request(self._epoch, self._said))

    def _tell(self, changed: MembershipChanged) -> None:
        if changed != self._told:
            self._told = changed
            self._emit(changed)

    def _call(self, request: MembershipRequest) -> None:
        self._calls += 1
        self._call_id = self._calls
        self._emit(Call(self._calls, request, self._settings.request_timeout_ms))

    def _emit(self, command: Command) -> None:
        self._commands.append(command)


JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


@dataclass(frozen=True, slots=True)
class Said:
    """The state that a heartbeat reports. ``owned`` is None if the next heartbeat must repeat it."""

    topics: frozenset[str]
    pattern: str
    owned: frozenset[TopicIdPartition] | None


class HeartbeatState:
    """The state last reported to the coordinator (Kafka's ``HeartbeatState``)."""

    def __init__(self, settings: MembershipSettings, member_id: str) -> None:
        self._settings = settings
        self._member_id = member_id
        self._said: Said | None = None

    def is_news(self, said: Said) -> bool:
        """Return True if this state was not reported yet."""
        return said != self._said

    def reset(self) -> None:
        """Report everything next time, because the coordinator may not know it."""
        self._said = None

    def forget_owned(self) -> None:
        """Report the owned partitions next time even if they did not change."""
        if self._said is not None:
            self._said = replace(self._said, owned=None)

    def request(self, epoch: int, said: Said) -> pb.ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat and record its state as reported."""
        before, self._said = self._said, said
        request = self._bare(epoch)
        if before is None:
            request.rebalance_timeout_ms = self._settings.max_poll_interval_ms
            if self._settings.client_rack:
                request.rack_id = self._settings.client_rack
            if self._settings.remote_assignor:
                request.server_assignor = self._settings.remote_assignor
        if before is None or before.topics != said.topics:
            request.subscribed_topic_names.CopyFrom(pb.SubscribedTopicNames(names=sorted(said.topics)))
        if before.pattern != said.pattern if before is not None else said.pattern:
            request.subscribed_topic_regex = said.pattern
        if before is None or before.owned != said.owned:
            request.topic_partitions.CopyFrom(member_topics(said.owned or ()))
        return request

    def leave(self) -> pb.ConsumerGroupHeartbeatRequest:
        """Return the last heartbeat; a static member's tells that it will return."""
        self.reset()
        return self._bare(LEAVE_STATIC_EPOCH if self._settings.is_static else LEAVE_EPOCH)

    def _bare(self, epoch: int) -> pb.ConsumerGroupHeartbeatRequest:
        return pb.ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            group_instance_id=self._settings.group_instance_id,
        )
