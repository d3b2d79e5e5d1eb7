"""A member's conversation with the coordinator of a classic group (Kafka's ``AbstractCoordinator``).

Join, sync, heartbeats, leave. It owns who the member is and how far it has got. What its partitions mean to the
application is decided by :mod:`tidelog.consumer.membership.classic`, which also says when to join and to leave.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from tidelog.consumer.assignors import Assignor, decode_assignment
from tidelog.consumer.membership import requests
from tidelog.consumer.membership.events import (
    AskTopics,
    Call,
    CallFailed,
    Command,
    Key,
    KnownTopic,
    MembershipChanged,
    MembershipRequest,
    ReportError,
    Responded,
)
from tidelog.consumer.membership.leadership import Leadership
from tidelog.consumer.membership.liveness import Heartbeats
from tidelog.consumer.membership.settings import MembershipSettings
from tidelog.v1 import common_pb2
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for

JOIN_TIMEOUT_LAPSE_MS = 5_000
"""How much longer than the rebalance timeout JoinGroup may take (Kafka's ``JOIN_GROUP_TIMEOUT_LAPSE``)."""
NO_MEMBER = MembershipChanged(-1, "")
_RETRIED = frozenset(
    (
        *(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
        *(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
    )
)
_GONE = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))


class Phase(enum.Enum):
    """Where the member stands with its group."""

    UNJOINED = "it has to join, for the first time or again"
    JOINING = "JoinGroup is under way"
    ASSIGNING = "it leads, and waits for the metadata of the topics"
    SYNCING = "SyncGroup is under way"
    STABLE = "it has its assignment of this generation"
    LEAVING = "LeaveGroup is under way"


_IN_GENERATION = frozenset((Phase.ASSIGNING, Phase.SYNCING, Phase.STABLE))


class GroupSession:
    """One member's. Its commands are given to ``emit``.

    ``has_lost`` and ``assignment`` are news for the owner, which takes them; ``rejoin_reason`` says why a stable
    member has to join again (empty: it need not).
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
        self._retry_at_ms = float("-inf")
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
        """The generation that the member has last joined; -1 when it is in none."""
        return self._joined.generation_id

    @property
    def is_leaving(self) -> bool:
        """Whether LeaveGroup is under way."""
        return self.phase is Phase.LEAVING

    @property
    def wants_to_join(self) -> bool:
        """Whether it has to join, now or later."""
        if self.is_fatal or self.awaits_poll:
            return False
        return self.phase is Phase.UNJOINED or (self.phase is Phase.STABLE and bool(self.rejoin_reason))

    @property
    def join_ms(self) -> float:
        """The earliest time at which it may join."""
        return self._retry_at_ms

    @property
    def deadline_ms(self) -> float:
        """When :meth:`watch` has something to do."""
        watched = self._heartbeats.session_deadline_ms if self._watches_session else float("inf")
        return min(self._heartbeats.due_ms, watched, self._follow_up_ms)

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself."""
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
        """Send JoinGroup, now that the application has given up what it must."""
        request = requests.join_group(self._settings, self.member_id, protocols, self.rejoin_reason)
        self.rejoin_reason = ""
        self._follow_up_ms = float("inf")
        self.phase = Phase.JOINING
        self._join_sent_ms = now_ms
        self._heartbeats.pause()
        lasting = self._settings.max_poll_interval_ms + JOIN_TIMEOUT_LAPSE_MS
        self._call_id = self._call(request, max(self._settings.request_timeout_ms, lasting))

    def abandon(self) -> None:
        """Do not go on with joining: it is to leave, or to begin again."""
        if self.phase in (Phase.JOINING, Phase.ASSIGNING, Phase.SYNCING):
            self._unjoin()

    def leave(self, reason: str) -> None:
        """Be no member any more. A static one says nothing, and keeps its place for the session timeout (KIP-345)."""
        member_id, self.member_id = self.member_id, ""
        self._forget_generation()
        if member_id and not self._settings.is_static:
            self.phase = Phase.LEAVING
            request = requests.leave_group(self._settings, member_id, reason)
            self._call_id = self._call(request, self._settings.request_timeout_ms)

    def watch(self, now_ms: float) -> None:
        """Send the heartbeat that is due, give a session up that is over, and see that every partition gets an owner.

        What a leader has left out is given away in the next generation, for which its former owner joins again. One
        that left without a word or came back as the same static member (KIP-345) will not: then the leader does,
        once the time is over that a member has for giving up.
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
        """Take the metadata of the topics: a leader waits for it, and assigns anew when it changes."""
        self._leadership.learn(topics)
        if self.phase is Phase.ASSIGNING:
            self._assign()
        self._look_at_topics()

    def responded(self, event: Responded, now_ms: float) -> None:
        """Take an answer; one that nobody waits for any more is dropped."""
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
        """Nobody has answered. Leaving is not tried again, as in Kafka: the session will end by itself."""
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
        """Join again; an answer to SyncGroup will say it by itself."""
        if self.phase is Phase.STABLE:
            self.rejoin_reason = self.rejoin_reason or "group is already rebalancing"
        elif self.phase is Phase.ASSIGNING:
            self._unjoin()

    def _heartbeat_failed(self, now_ms: float) -> None:
        self._heartbeats.failures += 1
        self._heartbeats.failed(now_ms, self._choose_backoff(self._heartbeats.failures))

    def _failed(self, code: ErrorCode, error: common_pb2.Error, now_ms: float) -> None:
        """Act on the error of any answer."""
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
        """Say what the application should know, and try again when it polls."""
        self._emit(ReportError(error))
        self.awaits_poll = True
        self._retry_later(now_ms)

    def _retry_later(self, now_ms: float) -> None:
        self._failures += 1
        self._retry_at_ms = now_ms + self._choose_backoff(self._failures)
        if self.phase is Phase.JOINING:
            # While it waits for the others the coordinator keeps a member: that time is not the session's.
            self._heartbeats.session_deadline_ms += now_ms - self._join_sent_ms
        self._unjoin()

    def _lose(self) -> None:
        """The coordinator has given the member's partitions to others, or will."""
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
