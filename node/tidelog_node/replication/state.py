"""State of one replica of a partition: leader, follower, or neither, as the metadata log directs.

``step`` is the only method that changes the state. It ignores a registration whose partition epoch is not newer than
the known one, so metadata may be delivered again. The high watermark survives a change of role: a new leader begins
with its high watermark as a follower, and a restarted node with its checkpoint, bounded by its log. A leader whose log
is opened again in its leader epoch continues with the in-sync set that it knew, until the metadata is newer.

The leader of a mirror begins no epoch in its log, which has those of the source alone. The first epoch after the end of
a mirror is above all of them, and its leader aborts the source's open transactions; so does each later leader, in case
an earlier one could not.

A request's leader epoch must equal this replica's: an older one is fenced, a newer one means that this replica's
metadata lags (KIP-320).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import NO_BROKER, NO_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.replication import events
from tidelog_node.replication.commands import (
    AbortMirroredTransactions,
    AssignEpochStart,
    Command,
    LeadershipLost,
    StartFetching,
    StopFetching,
)
from tidelog_node.replication.follower import FollowerState
from tidelog_node.replication.isr import FormerLeadership
from tidelog_node.replication.leader import LeaderState

_LeaderEvent = (
    events.RecordsAppended
    | events.LogCut
    | events.LogRestarted
    | events.SourceStartMoved
    | events.FollowerFetched
    | events.FetchLeaseEnded
    | events.TimePassed
    | events.IsrChangeAccepted
    | events.IsrChangeRefused
)
_FollowerEvent = events.RecordsReplicated | events.LogDiverged | events.LogOutOfRange


class PartitionState:
    """The state machine of one replica of one partition. It lives as long as the process keeps the replica open."""

    def __init__(
        self,
        local_id: BrokerId,
        high_watermark: int,
        min_insync_replicas: int,
        replica_lag_time_max_ms: int,
        former: FormerLeadership | None = None,
    ) -> None:
        self.local_id = local_id
        self.role: LeaderState | FollowerState = FollowerState(NO_BROKER, NO_EPOCH, high_watermark)
        self.partition_epoch = PartitionEpoch(-1)
        self._min_insync_replicas = min_insync_replicas
        self._max_lag_ms = replica_lag_time_max_ms
        self._eligible: Mapping[BrokerId, BrokerEpoch] = {}
        self._registered: Mapping[BrokerId, BrokerEpoch] = {}
        self._former = former

    @property
    def leader(self) -> LeaderState | None:
        """The leader's state while this replica leads."""
        return self.role if isinstance(self.role, LeaderState) else None

    @property
    def leadership(self) -> FormerLeadership | None:
        """The leadership to remember when the log is closed, None for a replica that does not lead."""
        return self._former if self.leader is None else self.leader.leadership

    @property
    def leader_id(self) -> BrokerId:
        """The leader's id as this replica knows it; -1 for no leader."""
        return self.local_id if isinstance(self.role, LeaderState) else self.role.leader_id

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch that this replica knows."""
        return self.role.leader_epoch

    @property
    def high_watermark(self) -> int:
        """The exclusive end of the committed records."""
        return self.role.high_watermark

    def step(self, event: events.Event, now_ms: int) -> list[Command]:
        """Process ``event`` and return the commands in order."""
        role = self.role
        # The most frequent events first.
        if isinstance(role, LeaderState):
            if type(event) is events.FollowerFetched:
                return role.record_fetch(event, now_ms)
            if type(event) is events.RecordsAppended:
                return role.record_append(event.log_end_offset, now_ms)
        elif type(event) is events.RecordsReplicated:
            return role.record_replicated(event)
        match event:
            case events.RegistrationChanged():
                return self._change_registration(event, now_ms)
            case events.EligibleBrokersChanged():
                return self._change_eligible(event, now_ms)
            case events.MinIsrChanged():
                return self._change_min_isr(event, now_ms)
            case events.RecordsReplicated() | events.LogDiverged() | events.LogOutOfRange():
                return self._step_follower(self.role, event) if isinstance(self.role, FollowerState) else []
            case _:
                return self._step_leader(self.role, event, now_ms) if isinstance(self.role, LeaderState) else []

    def check_leader_epoch(self, requested: LeaderEpoch | None) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if a request names another leader epoch."""
        if requested is None or requested == self.role.leader_epoch:
            return
        older = requested < self.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise error_for(code, f"the request has leader epoch {requested}, the current one is {self.leader_epoch}")

    def require_leader(self) -> LeaderState:
        """Return the leader's state, or raise NOT_LEADER_OR_FOLLOWER if this replica does not lead."""
        if isinstance(self.role, LeaderState):
            return self.role
        text = f"node {self.local_id} is not the leader: in leader epoch {self.leader_epoch}, node {self.leader_id} is"
        raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        self.role.check_invariants()

    def _change_registration(self, event: events.RegistrationChanged, now_ms: int) -> list[Command]:
        if event.partition_epoch <= self.partition_epoch:
            return []
        self.partition_epoch = event.partition_epoch
        former, self._former = self._former, None
        if event.leader_id == self.local_id:
            return self._lead(event, former, now_ms)
        return self._follow(event)

    def _lead(self, event: events.RegistrationChanged, former: FormerLeadership | None, now_ms: int) -> list[Command]:
        if isinstance(self.role, LeaderState) and event.leader_epoch == self.leader_epoch:
            return self.role.change_registration(event, now_ms)
        self.role = LeaderState(
            self.local_id,
            event,
            min(self.high_watermark, event.log_end_offset),
            self._min_insync_replicas,
            self._max_lag_ms,
            self._eligible,
            self._registered,
            now_ms,
        )
        begin: list[Command] = [StopFetching()]
        if not event.is_mirror:
            begin.append(AssignEpochStart(event.leader_epoch, event.log_end_offset))
        if former is not None and former.leader_epoch == event.leader_epoch:
            known = former.isr.committed.partition_epoch
            if known >= event.partition_epoch:
                self.partition_epoch = known
                begin += self.role.resume(former, now_ms)
        begin += self.role.advance(now_ms)
        if event.mirror_end_epoch:
            begin.append(AbortMirroredTransactions(event.mirror_end_epoch))
        return begin

    def _follow(self, event: events.RegistrationChanged) -> list[Command]:
        commands: list[Command] = [LeadershipLost()] if isinstance(self.role, LeaderState) else []
        is_same_term = isinstance(self.role, FollowerState) and self.role.leader_epoch == event.leader_epoch
        if is_same_term and self.leader_id == event.leader_id:
            return []
        self.role = FollowerState(event.leader_id, event.leader_epoch, min(self.high_watermark, event.log_end_offset))
        if event.leader_id == NO_BROKER:
            return [*commands, StopFetching()]
        return [*commands, StartFetching(event.leader_id, event.leader_epoch)]

    def _change_eligible(self, event: events.EligibleBrokersChanged, now_ms: int) -> list[Command]:
        self._eligible, self._registered = event.epochs, event.registered
        if not isinstance(self.role, LeaderState):
            return []
        self.role.eligible, self.role.registered = event.epochs, event.registered
        return self.role.advance(now_ms)

    def _change_min_isr(self, event: events.MinIsrChanged, now_ms: int) -> list[Command]:
        self._min_insync_replicas = event.min_insync_replicas
        if not isinstance(self.role, LeaderState):
            return []
        self.role.min_insync_replicas = event.min_insync_replicas
        return self.role.advance(now_ms)

    def _step_leader(self, leader: LeaderState, event: _LeaderEvent, now_ms: int) -> list[Command]:
        match event:
            case events.FollowerFetched():
                return leader.record_fetch(event, now_ms)
            case events.FetchLeaseEnded():
                leader.end_lease(event)
                return []
            case events.RecordsAppended():
                return leader.record_append(event.log_end_offset, now_ms)
            case events.LogCut():
                leader.cut_log(event.log_end_offset)
                return []
            case events.LogRestarted():
                leader.restart_log(event.offset)
                return []
            case events.SourceStartMoved():
                return leader.follow_source_start(event)
            case events.TimePassed():
                return [*leader.advance(now_ms), *leader.shrink(now_ms)]
            case events.IsrChangeAccepted():
                commands = leader.accept(event, now_ms)
                self.partition_epoch = max(self.partition_epoch, leader.partition_epoch)
                return commands
            case events.IsrChangeRefused():
                return leader.refuse(event)
            case _:
                assert_never(event)

    def _step_follower(self, follower: FollowerState, event: _FollowerEvent) -> list[Command]:
        match event:
            case events.RecordsReplicated():
                return follower.record_replicated(event)
            case events.LogDiverged():
                return follower.truncate(event)
            case events.LogOutOfRange():
                return follower.restart_log(event)
            case _:
                assert_never(event)
