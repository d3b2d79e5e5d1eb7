"""A consumer group of KIP-848's protocol: Kafka's GroupMetadataManager, as far as it is about one such group.

A member's heartbeat says what it subscribes to and owns; the answer says what it is to own. A change of the members,
their subscriptions or the topics begins a group epoch; the first heartbeat after it makes the target assignment of
that epoch; then each member comes to its part of it in its own time (see :mod:`.reconciliation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog.errors import ErrorCode, error_for
from tidelog.v1 import group_service_pb2 as pb
from tidelog_node.groups.consumer.deadlines import Deadlines
from tidelog_node.groups.consumer.description import describe_group, member_topics
from tidelog_node.groups.consumer.draft import Draft
from tidelog_node.groups.consumer.member import (
    LEAVE_GROUP_EPOCH,
    LEAVE_GROUP_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from tidelog_node.groups.consumer.members import (
    check_instance,
    described_metadata,
    heartbeating_member,
    known_member,
    unknown_member,
)
from tidelog_node.groups.consumer.rebalance import preferred_assignor, refresh, update_target
from tidelog_node.groups.consumer.reconciliation import reconcile
from tidelog_node.groups.consumer.requests import check_request, is_full, owned_partitions
from tidelog_node.groups.consumer.result import Record, Result
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.groups.events import ClientIdentity, TopicInfo
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    Key,
    Value,
)
from tidelog_node.groups.settings import GroupSettings

_NOTHING: Result[None] = Result((), None)


class ConsumerGroup:
    """One group, on the node that coordinates it.

    Requests give records and a response and leave the state as it is; who has written the records hands them to
    :meth:`replay`, before the next request. Timeouts are not persistent: a group that is loaded begins them anew.
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self._settings = settings
        self._state = GroupState(group_id)
        self._sessions = Deadlines()
        self._rebalances = Deadlines()
        self._rebalance_epochs: dict[str, int] = {}
        # Members that have come by records and have no session yet.
        self._without_session: set[str] = set()
        self._topics: Mapping[str, TopicInfo] | None = None
        # The topics that the group's epoch accounts for, and when they were looked at.
        self._accounted: Mapping[str, TopicInfo] | None = None
        self._accounted_ms = 0

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self._state.group_id

    @property
    def state(self) -> GroupState:
        """What the records say."""
        return self._state

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self._state.members

    @property
    def is_deleted(self) -> bool:
        """Whether there is no record of the group."""
        return self._state.metadata is None and self.is_empty

    @property
    def state_name(self) -> str:
        """Empty, Assigning, Reconciling, Stable; Dead when there is no record of the group (ConsumerGroupState)."""
        state = self._state
        if self.is_deleted:
            return "Dead"
        if self.is_empty:
            return "Empty"
        if state.group_epoch > state.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(state.assignment_epoch) for member in state.members.values()):
            return "Stable"
        return "Reconciling"

    def replay(self, key: Key, value: Value | None) -> None:
        """Take over a record that has been written; nothing else changes the persistent state."""
        self._state.replay(key, value)
        if not isinstance(key, ConsumerGroupMemberMetadataKey | ConsumerGroupCurrentMemberAssignmentKey):
            return
        if key.member_id not in self._state.members:
            self._end_timeouts(key.member_id)
        elif key.member_id not in self._sessions:
            self._without_session.add(key.member_id)

    def heartbeat(
        self,
        request: pb.ConsumerGroupHeartbeatRequest,
        client: ClientIdentity,
        topics: Mapping[str, TopicInfo],
        now_ms: int,
        wall_ms: int | None = None,
    ) -> Result[pb.ConsumerGroupHeartbeatResponse]:
        """Handle a heartbeat: a member joins, lives, changes its subscription, gives up partitions or leaves.

        Records have the time of day, ``wall_ms``; None: the same as ``now_ms``, which deadlines go by.

        Raises:
            TidelogError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, UNKNOWN_MEMBER_ID,
                FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED.
        """
        check_request(request, self._settings.consumer_assignors)
        self._topics = topics
        draft = Draft(self._state, now_ms if wall_ms is None else wall_ms)
        if request.member_epoch in (LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH):
            return self._leave(draft, request)
        member = heartbeating_member(self._state, draft, request, self._settings.consumer_max_size)
        updated = self._update(draft, member, request, client, topics, now_ms)
        if draft.metadata.epoch > draft.assignment_epoch:
            update_target(draft, topics, self._settings.consumer_assignors)
        reconciled = reconcile(
            updated,
            draft.assignment_epoch,
            draft.target_of(updated.member_id),
            draft.owner_of,
            owned_partitions(request),
        )
        if reconciled != updated:
            draft.put_current(reconciled)
        self._begin_timeouts(updated, reconciled, now_ms)
        response = self._response(reconciled)
        if is_full(request) or reconciled.assigned != member.assigned:
            response.assignment.CopyFrom(member_topics(reconciled.assigned))
        return Result(tuple(draft.records), response)

    def _update(
        self,
        draft: Draft,
        member: ConsumerGroupMember,
        request: pb.ConsumerGroupHeartbeatRequest,
        client: ClientIdentity,
        topics: Mapping[str, TopicInfo],
        now_ms: int,
    ) -> ConsumerGroupMember:
        """Take over what a member says of itself; begin a group epoch when that, or the topics, are not as before."""
        before, now = member.metadata, described_metadata(member, request, client)
        updated = replace(member, metadata=now)
        if updated != member or draft.member(member.member_id) is None:
            draft.put_metadata(updated)
        resubscribes = (before.subscribed_topic_names, before.subscribed_topic_regex) != (
            now.subscribed_topic_names,
            now.subscribed_topic_regex,
        )
        interval_ms = self._settings.consumer_regex_refresh_interval_ms
        is_accounted = topics is self._accounted and now_ms < self._accounted_ms + interval_ms
        has_changed = resubscribes or self._state.group_epoch == 0
        if has_changed or not is_accounted:
            epoch_began = refresh(draft, topics, has_changed=has_changed, resolve_again=not is_accounted)
            # An epoch that begins accounts for the topics once it is written; the next heartbeat sees.
            if not epoch_began:
                self._accounted, self._accounted_ms = topics, now_ms
        return updated

    def _leave(
        self, draft: Draft, request: pb.ConsumerGroupHeartbeatRequest
    ) -> Result[pb.ConsumerGroupHeartbeatResponse]:
        member = known_member(self._state, request)
        response = pb.ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVE_GROUP_EPOCH:
            self._remove(draft, [member.member_id])
        elif member.member_epoch != LEAVE_GROUP_STATIC_EPOCH:
            draft.put_current(replace(member, member_epoch=LEAVE_GROUP_STATIC_EPOCH, pending_revocation=frozenset()))
        return Result(tuple(draft.records), response)

    def _remove(self, draft: Draft, member_ids: list[str]) -> None:
        """Remove members and begin a group epoch, the assignment's too when nobody is left (KAFKA-20442)."""
        for member_id in member_ids:
            draft.remove(member_id)
        if self._topics is None:
            draft.bump_epoch(draft.metadata.metadata_hash)
        else:
            refresh(draft, self._topics, has_changed=True, resolve_again=False)
        if not draft.members():
            draft.put_target_epoch()

    def _response(self, member: ConsumerGroupMember) -> pb.ConsumerGroupHeartbeatResponse:
        return pb.ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._settings.consumer_heartbeat_interval_ms,
        )

    @property
    def next_deadline_ms(self) -> int | None:
        """When :meth:`expire` is to be called; None while there is nothing to wait for."""
        if self._without_session:
            return 0
        deadlines = [ms for ms in (self._sessions.next_ms(), self._rebalances.next_ms()) if ms is not None]
        return min(deadlines, default=None)

    def expire(self, now_ms: int, wall_ms: int | None = None) -> Result[None]:
        """Remove who was silent for the session timeout, or did not give partitions up within its rebalance timeout.

        ``wall_ms`` is as for :meth:`heartbeat`.
        """
        for member in [self._state.members[member_id] for member_id in self._without_session]:
            self._begin_timeouts(member, member, now_ms)
        late = [member_id for member_id in self._rebalances.due(now_ms) if self._is_late(member_id)]
        silent = [member_id for member_id in self._sessions.due(now_ms) if self._is_member(member_id)]
        expired = sorted({*silent, *late})
        if not expired:
            return _NOTHING
        for member_id in expired:
            # They end when the records are replayed. If these cannot be written there will be another time.
            self._sessions.set(member_id, now_ms + self._settings.consumer_session_timeout_ms)
            self._rebalances.cancel(member_id)
        draft = Draft(self._state, now_ms if wall_ms is None else wall_ms)
        self._remove(draft, expired)
        return Result(tuple(draft.records), None)

    def _is_member(self, member_id: str) -> bool:
        """Return whether there is such a member; of one that could not be written the session ends."""
        if member_id not in self._state.members:
            self._sessions.cancel(member_id)
        return member_id in self._state.members

    def _is_late(self, member_id: str) -> bool:
        """Return whether a member still is where its rebalance timeout began; else the timeout ends."""
        member = self._state.members.get(member_id)
        is_late = (
            member is not None
            and member.state is MemberState.UNREVOKED_PARTITIONS
            and member.member_epoch == self._rebalance_epochs.get(member_id)
        )
        if not is_late:
            self._rebalances.cancel(member_id)
        return is_late

    def _begin_timeouts(self, before: ConsumerGroupMember, member: ConsumerGroupMember, now_ms: int) -> None:
        """Begin the session anew, and the rebalance timeout when the member has partitions to give up now."""
        member_id = member.member_id
        self._without_session.discard(member_id)
        self._sessions.set(member_id, now_ms + self._settings.consumer_session_timeout_ms)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._rebalances.cancel(member_id)
        elif member != before or member_id not in self._rebalances:
            self._rebalances.set(member_id, now_ms + member.metadata.rebalance_timeout_ms)
            self._rebalance_epochs[member_id] = member.member_epoch

    def _end_timeouts(self, member_id: str) -> None:
        self._without_session.discard(member_id)
        self._sessions.cancel(member_id)
        self._rebalances.cancel(member_id)
        self._rebalance_epochs.pop(member_id, None)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic, by name or regular expression."""
        return topic in self._state.subscribed_topics()

    def check_commit(
        self, member_id: str, member_epoch: int, instance_id: str | None = None, *, knows_epochs: bool = True
    ) -> None:
        """Raise when offsets may not be committed; ``knows_epochs`` says whether the client's version does.

        No member may do so, with a negative epoch, while the group is empty.

        Raises:
            TidelogError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, FENCED_INSTANCE_ID.
        """
        if member_epoch < 0 and self.is_empty:
            return
        if instance_id is not None:
            check_instance(self._state, instance_id, member_id)
        if not knows_epochs and member_id in self._state.members:
            text = f"group {self.group_id} has group.protocol=consumer: its members commit with OffsetCommit 9 or above"
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
        self._check_epoch(member_id, member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise when committed offsets may not be asked for; without a member id and with a negative epoch all may.

        Raises:
            TidelogError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        """
        if member_id is not None or member_epoch >= 0:
            self._check_epoch(member_id or "", member_epoch)

    def _check_epoch(self, member_id: str, member_epoch: int) -> None:
        if (member := self._state.members.get(member_id)) is None:
            raise unknown_member(self._state, member_id)
        if member.member_epoch != member_epoch:
            raise error_for(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"member {member_id} of group {self.group_id} has epoch {member.member_epoch}, not {member_epoch}",
            )

    def check_delete(self) -> None:
        """Raise when the group may not be deleted.

        Raises:
            TidelogError: NON_EMPTY_GROUP.
        """
        if not self.is_empty:
            members = len(self._state.members)
            raise error_for(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has {members} members")

    def tombstones(self) -> tuple[Record, ...]:
        """Return the records that delete the group."""
        return tuple(self._state.tombstones())

    def describe(self, topics: Mapping[str, TopicInfo] | None = None) -> pb.DescribedConsumerGroup:
        """Return the group as people see it; topics that are not in ``topics`` are left out, as in Kafka.

        Without ``topics`` they are those of the last heartbeat.
        """
        assignor = preferred_assignor(self._state.members.values(), self._settings.consumer_assignors)
        known = self._topics or {} if topics is None else topics
        return describe_group(self._state, self.state_name, assignor, known)

    def check_invariants(self) -> None:
        """Assert what must hold between two requests."""
        self._state.check_invariants()
        for member_id in self._state.members:
            assert member_id in self._sessions or member_id in self._without_session, member_id
