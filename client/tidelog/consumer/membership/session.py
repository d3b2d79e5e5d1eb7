"""A member's exchange with the coordinator of a classic group (Kafka's ``AbstractCoordinator``).

It joins, syncs, sends heartbeats and leaves, and it owns the member's identity and phase. The membership in
:mod:`tidelog.consumer.membership.classic` decides when to join and leave, and what the application gets.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from tidelog.consumer.assignors import Assignor, KnownTopic, decode_assignment
from tidelog.consumer.membership import requests
from tidelog.consumer.membership.events import (
    AskTopics,
    Call,
    CallFailed,
    Command,
    Key,
    MembershipChanged,
    MembershipRequest,
    MembershipSettings,
    ReportError,
    Responded,
)
from tidelog.consumer.membership.leadership import Leadership
from tidelog.consumer.membership.liveness import Heartbeats
from tidelog.v1 import common_pb2
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for

JOIN_TIMEOUT_LAPSE_MS = 5_000
"""The extra time of JoinGroup beyond the rebalance timeout (Kafka's ``JOIN_GROUP_TIMEOUT_LAPSE``)."""
NO_MEMBER = MembershipChanged(-1, "")
_RETRIED = frozenset(
    (
        *(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
        *(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
    )
)
_GONE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))


class Phase(enum.Enum):
    """The member's state in its group."""

    UNJOINED = "it has to join, for the first time or again"
    JOINING = "JoinGroup is under way"
    ASSIGNING = "it leads, and waits for the metadata of the topics"
    SYNCING = "SyncGroup is under way"
    STABLE = "it has its assignment of this generation"
    LEAVING = "LeaveGroup is under way"


_IN_GENERATION = frozenset((Phase.ASSIGNING, Phase.SYNCING, Phase.STABLE))


class GroupSession:
    """One member's session. It passes its commands to ``emit``.

    ``has_lost`` and ``assignment`` are news, which the owner clears. ``rejoin_reason`` is the reason for a stable
    member to join again, empty if there is none.
    """

    def __init__(
        self,
        settings: MembershipSettings,
        assignors: Mapping[str, Assignor],
        choose_backoff: Callable[[int], float],
        emit: Callable[[Command], None],
    ) -> None:
        self._settings = settings
        self._assignors = assignors
        self._choose_backoff = choose_backoff
        self._emit = emit
        self._leadership = Leadership()
        self._heartbeats = Heartbeats(settings.heartbeat_interval_ms, settings.session_timeout_ms)
        self._joined = pb.JoinGroupResponse(generation_id=-1)
        self._told = NO_MEMBER
        self._failures = 0
        self.join_ms = float("-inf")
        """The earliest time to join."""
        self._join_sent_ms = 0.0
        self._follow_up_ms = float("inf")
        self._calls = 0
        self._call_id: int | None = None
        self.phase = Phase.UNJOINED
        self.member_id = ""
        self.rejoin_reason = ""
        self.has_lost = False
        self.assignment: frozenset[Key] | None = None
        self.is_fatal = False
        self.awaits_poll = False

    @property
    def generation_id(self) -> int:
        """The generation that the member joined last; -1 if none."""
        return self._joined.generation_id

    @property
    def is_leaving(self) -> bool:
        """True while LeaveGroup is in flight."""
        return self.phase is Phase.LEAVING

    @property
    def wants_to_join(self) -> bool:
        """True if the member must join, now or later."""
        if self.is_fatal or self.awaits_poll:
            return False
        return self.phase is Phase.UNJOINED or (self.phase is Phase.STABLE and bool(self.rejoin_reason))

    @property
    def deadline_ms(self) -> float:
        """The time of the next :meth:`watch`."""
        watched = self._heartbeats.session_deadline_ms if self._watches_session else float("inf")
        return min(self._heartbeats.due_ms, watched, self._follow_up_ms)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state is inconsistent."""
        calling = self.phase in (Phase.JOINING, Phase.SYNCING, Phase.LEAVING)
        assert calling == (self._call_id is not None), self.phase
        in_generation = self.phase in _IN_GENERATION
        assert not in_generation or (self.generation_id >= 0 and self.member_id)
        assert not in_generation or self._told == MembershipChanged(self.generation_id, self.member_id)
        assert in_generation == (self._heartbeats.due_ms < float("inf") or self._heartbeats.call_id is not None)
        assert self.assignment is None or self.phase is Phase.STABLE
        assert self._follow_up_ms == float("inf") or self.phase in (Phase.STABLE, Phase.UNJOINED)
        assert not self.is_fatal or (self.phase is Phase.UNJOINED and self._told == NO_MEMBER)

    def join(self, protocols: Iterable[tuple[str, bytes]], now_ms: float) -> None:
        """Send JoinGroup after the application has released the revoked partitions."""
        request = requests.join_group(self._settings, self.member_id, protocols, self.rejoin_reason)
        self.rejoin_reason = ""
        self._follow_up_ms = float("inf")
        self.phase = Phase.JOINING
        self._join_sent_ms = now_ms
        self._heartbeats.pause()
        lasting = self._settings.max_poll_interval_ms + JOIN_TIMEOUT_LAPSE_MS
        self._call_id = self._call(request, max(self._settings.request_timeout_ms, lasting))

    def abandon(self) -> None:
        """Stop joining, to leave or to begin again."""
        if self.phase in (Phase.JOINING, Phase.ASSIGNING, Phase.SYNCING):
            self._unjoin()

    def leave(self, reason: str) -> None:
        """Leave the group. A static member leaves silently and keeps its place for the session timeout (KIP-345)."""
        member_id, self.member_id = self.member_id, ""
        self._forget_generation()
        if member_id and not self._settings.is_static:
            self.phase = Phase.LEAVING
            request = requests.leave_group(self._settings, member_id, reason)
            self._call_id = self._call(request, self._settings.request_timeout_ms)

    def watch(self, now_ms: float) -> None:
        """Send a due heartbeat, end an expired session, and make sure that every partition gets an owner.

        Partitions that the leader left out are assigned in the next generation, for which their former owner joins
        again. An owner that left silently, or that returned as the same static member (KIP-345), does not. The leader
        then rejoins after the time that members have to release partitions.
        """
        if now_ms >= self._follow_up_ms:
            self._follow_up_ms = float("inf")
            self.rejoin_reason = self.rejoin_reason or "partitions still wait for a rebalance to get an owner"
        if self._watches_session and now_ms >= self._heartbeats.session_deadline_ms:
            self._lose()
        elif now_ms >= self._heartbeats.due_ms:
            request = requests.heartbeat(self._settings, self.generation_id, self.member_id)
            self._heartbeats.sent(self._call(request, max(1, self._settings.session_timeout_ms // 3)), now_ms)

    def learn(self, topics: Mapping[str, KnownTopic]) -> None:
        """Store the topics' metadata. A leader waits for it, and reassigns when it changes."""
        self._leadership.learn(topics)
        if self.phase is Phase.ASSIGNING:
            self._assign()
        self._look_at_topics()

    def responded(self, event: Responded, now_ms: float) -> None:
        """Apply a response; drop one that no call is waiting for."""
        response = event.response
        if event.call_id == self._heartbeats.call_id:
            assert isinstance(response, pb.HeartbeatResponse)
            self._heartbeat_answered(response, now_ms)
        elif event.call_id == self._call_id:
            self._call_id = None
            if isinstance(response, pb.JoinGroupResponse):
                self._join_answered(response, now_ms)
            elif isinstance(response, pb.SyncGroupResponse):
                self._sync_answered(response, now_ms)
            else:
                self.phase = Phase.UNJOINED

    def call_failed(self, event: CallFailed, now_ms: float) -> None:
        """Handle a call without an answer. As in Kafka, leaving is not retried; the session will expire."""
        if event.call_id == self._heartbeats.call_id:
            self._heartbeat_failed(now_ms)
        elif event.call_id == self._call_id:
            if self.phase is Phase.LEAVING:
                self._unjoin()
            else:
                self._retry_later(now_ms)

    def _join_answered(self, response: pb.JoinGroupResponse, now_ms: float) -> None:
        code = ErrorCode.of(response.error.code)
        if code is ErrorCode.NONE and response.protocol_name not in self._assignors:
            known = ", ".join(self._assignors)
            message = f"the group's assignor is {response.protocol_name!r}, not one of {known}"
            self._report(error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message), now_ms)
        elif code is ErrorCode.NONE:
            self._enter_generation(response, now_ms)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._unjoin()
        else:
            self._failed(code, response.error, now_ms)

    def _enter_generation(self, response: pb.JoinGroupResponse, now_ms: float) -> None:
        self._joined = response
        self.member_id = response.member_id
        self._tell(MembershipChanged(response.generation_id, response.member_id))
        self._heartbeats.start(now_ms)
        if response.leader == response.member_id:
            self._lead()
        else:
            if self._leadership.topics:
                self._emit(AskTopics(frozenset()))
            self._leadership.end()
            self._sync(())

    def _lead(self) -> None:
        for error in self._leadership.begin(list(self._joined.members)):
            self._emit(ReportError(error))
        self.phase = Phase.ASSIGNING
        if self._leadership.is_informed:
            self._assign()
        else:
            self._emit(AskTopics(self._leadership.topics))

    def _assign(self) -> None:
        if self._joined.skip_assignment:
            self._leadership.accept(self._assignors[self._joined.protocol_name])
            self._sync(())
        else:
            self._sync(self._leadership.assign(self._assignors[self._joined.protocol_name]))

    def _sync(self, assignments: Iterable[pb.MemberAssignment]) -> None:
        self.phase = Phase.SYNCING
        request = requests.sync_group(self._settings, self._joined, assignments)
        self._call_id = self._call(request, self._settings.request_timeout_ms)

    def _sync_answered(self, response: pb.SyncGroupResponse, now_ms: float) -> None:
        code = ErrorCode.of(response.error.code)
        if code is not ErrorCode.NONE:
            self._failed(code, response.error, now_ms)
            return
        try:
            self.assignment = decode_assignment(response.assignment)
        except TidelogError as error:
            self._report(error, now_ms)
            return
        self.phase = Phase.STABLE
        self._failures = 0
        self._heartbeats.extend(now_ms)
        if self._leadership.is_partial:
            self._follow_up_ms = now_ms + self._settings.max_poll_interval_ms
        self._look_at_topics()

    def _heartbeat_answered(self, response: pb.HeartbeatResponse, now_ms: float) -> None:
        code = ErrorCode.of(response.error.code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heartbeats.succeeded(now_ms)
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._rebalance()
        elif code in _RETRIED:
            self._heartbeat_failed(now_ms)
        else:
            self._failed(code, response.error, now_ms)

    def _rebalance(self) -> None:
        """Join again; while SyncGroup is in flight, its answer will require that anyway."""
        if self.phase is Phase.STABLE:
            self.rejoin_reason = self.rejoin_reason or "group is already rebalancing"
        elif self.phase is Phase.ASSIGNING:
            self._unjoin()

    def _heartbeat_failed(self, now_ms: float) -> None:
        self._heartbeats.failures += 1
        self._heartbeats.failed(now_ms, self._choose_backoff(self._heartbeats.failures))

    def _failed(self, code: ErrorCode, error: common_pb2.Error, now_ms: float) -> None:
        """Handle the error of any response."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS and self.phase is Phase.SYNCING:
            self._unjoin()
        elif code in _RETRIED:
            self._retry_later(now_ms)
        elif code in _GONE:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                if not self.member_id:
                    self._retry_later(now_ms)
                self.member_id = ""
            self._lose()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.member_id = ""
            self._lose()
            self.is_fatal = True
            self._emit(ReportError(TidelogError(KafkaError(code, error.message or None, fatal=True))))
        else:
            self._report(error_for(code, error.message or None), now_ms)

    def _report(self, error: TidelogError, now_ms: float) -> None:
        """Report an error to the application, and retry when it polls."""
        self._emit(ReportError(error))
        self.awaits_poll = True
        self._retry_later(now_ms)

    def _retry_later(self, now_ms: float) -> None:
        self._failures += 1
        self.join_ms = now_ms + self._choose_backoff(self._failures)
        if self.phase is Phase.JOINING:
            # The coordinator keeps a member while it waits for the others, so that time does not count.
            self._heartbeats.session_deadline_ms += now_ms - self._join_sent_ms
        self._unjoin()

    def _lose(self) -> None:
        """Record the loss: the coordinator reassigns the member's partitions."""
        self._forget_generation()
        self.has_lost = True

    def _forget_generation(self) -> None:
        self._unjoin()
        self._heartbeats.stop()
        self._follow_up_ms = float("inf")
        self._joined = pb.JoinGroupResponse(generation_id=-1)
        self._leadership.end()
        self.assignment = None
        self.rejoin_reason = ""
        self._tell(NO_MEMBER)

    def _unjoin(self) -> None:
        self.phase = Phase.UNJOINED
        self._call_id = None
        self._heartbeats.pause()

    @property
    def _watches_session(self) -> bool:
        return self.phase not in (Phase.JOINING, Phase.LEAVING) and self.generation_id >= 0

    def _look_at_topics(self) -> None:
        if self.phase is Phase.STABLE and self._leadership.is_outdated and not self.rejoin_reason:
            self.rejoin_reason = "cached metadata has changed"

    def _tell(self, changed: MembershipChanged) -> None:
        if changed != self._told:
            self._told = changed
            self._emit(changed)

    def _call(self, request: MembershipRequest, timeout_ms: int) -> int:
        self._calls += 1
        self._emit(Call(self._calls, request, timeout_ms))
        return self._calls
