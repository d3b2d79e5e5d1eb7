"""A consumer group of KIP-848's protocol: the part of Kafka's GroupMetadataManager that concerns one such group.

A member's heartbeat contains its subscription and its partitions; the answer contains its assignment. A change of the
members, their subscriptions or the topics begins a group epoch. The first heartbeat after it computes the target
assignment of that epoch. Then each member moves to its part of it at its own pace (see :mod:`.reconciliation`). Members
of the classic protocol do the same by JoinGroup, SyncGroup and Heartbeat (see :mod:`.classic_members`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.consumer import classic_members
from tidelog_node.groups.consumer.assignors import Assignment
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
    joining_classic_member,
    known_member,
    unknown_member,
)
from tidelog_node.groups.consumer.rebalance import preferred_assignor, refresh, update_target
from tidelog_node.groups.consumer.reconciliation import reconcile
from tidelog_node.groups.consumer.state import GroupState, Record
from tidelog_node.groups.consumer.timeouts import Timeouts
from tidelog_node.groups.consumer.validation import check_request, is_full, owned_partitions
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    Key,
    Value,
)
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.shards.events import ClientIdentity

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """``records`` are written as one batch and then replayed. ``response`` may be sent once they are committed."""

    records: tuple[Record, ...]
    response: R


class ConsumerGroup:
    """One group on the node that coordinates it.

    Requests return records and a response and do not modify the state. After writing the records the caller passes them
    to :meth:`replay`, before the next request. Timeouts are not persistent and restart when a group is loaded.
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self._settings = settings
        self._timings = settings.timings_of(group_id)
        self._state = GroupState(group_id)
        self._timeouts = Timeouts(self._timings.session_timeout_ms)
        self._topics: Mapping[str, TopicInfo] | None = None
        # The topics that the group's epoch accounts for, and the time of the last check.
        self._accounted: Mapping[str, TopicInfo] | None = None
        self._accounted_ms = 0

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self._state.group_id

    @property
    def state(self) -> GroupState:
        """The persistent state, as the records describe it."""
        return self._state

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self._state.members

    @property
    def is_deleted(self) -> bool:
        """True if the group has no record."""
        return self._state.metadata is None and self.is_empty

    @property
    def state_name(self) -> str:
        """Empty, Assigning, Reconciling, Stable, or Dead if the group has no record (ConsumerGroupState)."""
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

    def change_settings(self, settings: GroupSettings) -> None:
        """Use other settings from now on. Sessions that have begun keep their deadlines."""
        self._settings = settings
        self._timings = settings.timings_of(self.group_id)
        self._timeouts.session_timeout_ms = self._timings.session_timeout_ms

    def replay(self, key: Key, value: Value | None) -> None:
        """Apply a record that has been written. Nothing else changes the persistent state."""
        self._state.replay(key, value)
        if not isinstance(key, ConsumerGroupMemberMetadataKey | ConsumerGroupCurrentMemberAssignmentKey):
            return
        if key.member_id in self._state.members:
            self._timeouts.note_member(key.member_id)
        else:
            self._timeouts.end(key.member_id)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: ClientIdentity,
        topics: Mapping[str, TopicInfo],
        now_ms: int,
        wall_ms: int | None = None,
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Handle a heartbeat: a member joins, stays alive, changes its subscription, revokes partitions or leaves.

        Records contain the wall-clock time, ``wall_ms``, by default ``now_ms``. Deadlines use ``now_ms``.

        Raises:
            TidelogError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION, UNKNOWN_MEMBER_ID,
                FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED.
        """
        check_request(request, self._settings.consumer_assignors)
        self._topics = topics
        draft = Draft(self._state, now_ms if wall_ms is None else wall_ms, request.may_describe)
        if request.member_epoch in (LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH):
            return self._leave(draft, request)
        member = heartbeating_member(self._state, draft, request, self._settings.consumer_max_size)
        described = described_metadata(member, request, client)
        reconciled = self._advance(draft, member, described, owned_partitions(request), now_ms)
        is_changed = is_full(request) or reconciled.assigned != member.assigned
        response = ConsumerGroupHeartbeatResponse(
            member_id=reconciled.member_id,
            member_epoch=reconciled.member_epoch,
            heartbeat_interval_ms=self._timings.heartbeat_interval_ms,
            assignment=member_topics(reconciled.assigned) if is_changed else None,
        )
        return Result(tuple(draft.records), response)

    def join(
        self,
        request: JoinGroupRequest,
        client: ClientIdentity,
        topics: Mapping[str, TopicInfo],
        new_member_id: str,
        now_ms: int,
        wall_ms: int | None = None,
    ) -> Result[JoinGroupResponse]:
        """Handle JoinGroup of a classic member: it joins, or takes its next step to its target assignment.

        A member without an id gets ``new_member_id``. :meth:`heartbeat` explains ``wall_ms``.

        Raises:
            TidelogError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, INVALID_REQUEST, UNKNOWN_MEMBER_ID,
                FENCED_INSTANCE_ID.
        """
        classic_members.check_join(self._state, request, self._settings.consumer_max_size)
        subscription = classic_members.subscription_of(request)
        if classic_members.must_ask_for_id(request):
            return Result((), classic_members.member_id_required(new_member_id))
        self._topics = topics
        draft = Draft(self._state, now_ms if wall_ms is None else wall_ms, request.may_describe)
        member = joining_classic_member(self._state, draft, request, request.member_id or new_member_id)
        described = classic_members.joined_metadata(member, request, subscription, client)
        owned = classic_members.with_ids(subscription.owned, topics)
        reconciled = self._advance(draft, member, described, owned, now_ms)
        self._timeouts.await_sync(reconciled, now_ms)
        return Result(tuple(draft.records), classic_members.join_response(reconciled))

    def sync(self, request: SyncGroupRequest, topics: Mapping[str, TopicInfo], now_ms: int) -> SyncGroupResponse:
        """Handle SyncGroup of a classic member: return its assignment.

        Raises:
            TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, or
                REBALANCE_IN_PROGRESS if a new epoch has begun and the member must join again.
        """
        member = classic_members.classic_member(self._state, request)
        classic_members.check_protocol(member, request)
        # A member that must revoke partitions has already joined in this epoch and learns here which ones to revoke.
        if self._state.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timeouts.await_join(member, now_ms)
            raise classic_members.rebalance_in_progress(self._state)
        self._timeouts.end_sync(member.member_id)
        self._timeouts.begin(member, member, now_ms)
        return classic_members.sync_response(member, topics)

    def classic_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> None:
        """Handle Heartbeat of a classic member.

        Raises:
            TidelogError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS if the
                member must join again, which also keeps it alive.
        """
        member = classic_members.classic_member(self._state, request)
        self._timeouts.begin(member, member, now_ms)
        if classic_members.must_rejoin(self._state, member):
            self._timeouts.await_join(member, now_ms)
            raise classic_members.rebalance_in_progress(self._state)

    def _advance(
        self,
        draft: Draft,
        member: ConsumerGroupMember,
        described: ConsumerGroupMemberMetadataValue,
        owned: Assignment | None,
        now_ms: int,
    ) -> ConsumerGroupMember:
        """Update a member's metadata, and return the member after its next step to its target assignment."""
        assert self._topics is not None
        updated = self._update(draft, member, described, self._topics, now_ms)
        if draft.metadata.epoch > draft.assignment_epoch:
            update_target(draft, self._topics, self._settings.consumer_assignors)
        target = draft.target_of(updated.member_id)
        reconciled = reconcile(updated, draft.assignment_epoch, target, draft.owner_of, owned)
        if reconciled != updated:
            draft.put_current(reconciled)
        self._timeouts.begin(updated, reconciled, now_ms)
        return reconciled

    def _update(
        self,
        draft: Draft,
        member: ConsumerGroupMember,
        now: ConsumerGroupMemberMetadataValue,
        topics: Mapping[str, TopicInfo],
        now_ms: int,
    ) -> ConsumerGroupMember:
        """Update a member's metadata, and begin a group epoch if its subscription or the topics have changed."""
        before = member.metadata
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
            # A new epoch accounts for the topics once it is written. The next heartbeat checks that.
            if not epoch_began:
                self._accounted, self._accounted_ms = topics, now_ms
        return updated

    def _leave(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> Result[ConsumerGroupHeartbeatResponse]:
        member = known_member(self._state, request)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVE_GROUP_EPOCH:
            self._remove(draft, (member.member_id,))
        elif member.member_epoch != LEAVE_GROUP_STATIC_EPOCH:
            draft.put_current(replace(member, member_epoch=LEAVE_GROUP_STATIC_EPOCH, pending_revocation=frozenset()))
        return Result(tuple(draft.records), response)

    def _remove(self, draft: Draft, member_ids: Collection[str]) -> None:
        """Remove members and begin a group epoch, and an assignment epoch if no member is left (KAFKA-20442)."""
        for member_id in member_ids:
            draft.remove(member_id)
        if self._topics is None:
            draft.bump_epoch(draft.metadata.metadata_hash)
        else:
            refresh(draft, self._topics, has_changed=True, resolve_again=False)
        if not draft.members():
            draft.put_target_epoch()

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next check for :meth:`expired` members, or None if there is no deadline."""
        return self._timeouts.next_ms()

    def expired(self, now_ms: int) -> dict[str, str]:
        """Return the members to remove, with the reasons: silent for the session timeout, or late in a rebalance."""
        return self._timeouts.expired(self._state, now_ms)

    def remove(self, member_ids: Collection[str], wall_ms: int) -> Result[None]:
        """Remove members and begin a group epoch. Records contain the wall-clock time, ``wall_ms``."""
        draft = Draft(self._state, wall_ms)
        if member_ids:
            self._remove(draft, member_ids)
        return Result(tuple(draft.records), None)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic, by name or regular expression."""
        return topic in self._state.subscribed_topics()

    def check_commit(
        self, member_id: str, member_epoch: int, instance_id: str | None = None, *, knows_epochs: bool = True
    ) -> None:
        """Raise an error if offsets may not be committed.

        ``knows_epochs`` is whether the client's version knows member epochs. While the group is empty, commits from
        non-members with a negative epoch are accepted.

        Raises:
            TidelogError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH, or
                ILLEGAL_GENERATION for a classic member.
        """
        if member_epoch < 0 and self.is_empty:
            return
        if instance_id is not None:
            check_instance(self._state, instance_id, member_id)
        member = self._known(member_id)
        if not knows_epochs and not member.uses_classic:
            text = f"group {self.group_id} has group.protocol=consumer: its members commit with OffsetCommit 9 or above"
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
        self._check_epoch(member, member_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise an error if committed offsets may not be fetched. Without a member id and with a negative epoch they
        may.

        Raises:
            TidelogError: UNKNOWN_MEMBER_ID, or STALE_MEMBER_EPOCH and ILLEGAL_GENERATION as in :meth:`check_commit`.
        """
        if member_id is not None or member_epoch >= 0:
            self._check_epoch(self._known(member_id or ""), member_epoch)

    def _known(self, member_id: str) -> ConsumerGroupMember:
        if (member := self._state.members.get(member_id)) is None:
            raise unknown_member(self._state, member_id)
        return member

    def _check_epoch(self, member: ConsumerGroupMember, member_epoch: int) -> None:
        if member.member_epoch == member_epoch:
            return
        if member.uses_classic:
            raise classic_members.illegal_generation(self._state, member, member_epoch)
        text = f"member {member.member_id} of group {self.group_id} has epoch {member.member_epoch}, not {member_epoch}"
        raise error_for(ErrorCode.STALE_MEMBER_EPOCH, text)

    def check_delete(self) -> None:
        """Raise an error if the group may not be deleted.

        Raises:
            TidelogError: NON_EMPTY_GROUP.
        """
        if not self.is_empty:
            members = len(self._state.members)
            raise error_for(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has {members} members")

    def tombstones(self) -> tuple[Record, ...]:
        """Return the records that delete the group."""
        return tuple(self._state.tombstones())

    def describe(self, topics: Mapping[str, TopicInfo] | None = None) -> DescribedConsumerGroup:
        """Return the group's description. Topics that are not in ``topics`` are omitted, as in Kafka.

        By default ``topics`` are those of the last heartbeat.
        """
        assignor = preferred_assignor(self._state.members.values(), self._settings.consumer_assignors)
        known = self._topics or {} if topics is None else topics
        return describe_group(self._state, self.state_name, assignor, known)

    def check_invariants(self) -> None:
        """Assert the invariants that hold between two requests."""
        self._state.check_invariants()
        for member_id in self._state.members:
            assert member_id in self._timeouts, member_id
