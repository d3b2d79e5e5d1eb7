"""The deadlines of a consumer group's members: sessions, revocations, and the phases of classic members.

They are not persistent and restart when a group is loaded. A member of the classic protocol has its own session
timeout. It must send JoinGroup within its rebalance timeout after it learns of a rebalance, and SyncGroup within the
same time after the answer.
"""

from __future__ import annotations

from tidelog_node.groups.consumer.member import ConsumerGroupMember, MemberState
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.shards.deadlines import Deadlines


class Timeouts:
    """The deadlines of one group, in ms of its shard's clock. They live as long as the group is in memory."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        """The session timeout of members of the consumer protocol, from their next heartbeat on."""
        self._sessions = Deadlines()
        self._rebalances = Deadlines()
        self._rebalance_epochs: dict[str, int] = {}
        self._joins = Deadlines()
        self._syncs = Deadlines()
        # Members that were loaded from records and have no session yet.
        self._without_session: set[str] = set()

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._sessions or member_id in self._without_session

    def next_ms(self) -> int | None:
        """Return the time of the next call of :meth:`expired`, or None if there is no deadline."""
        if self._without_session:
            return 0
        kinds = self._sessions, self._rebalances, self._joins, self._syncs
        return min((ms for ms in (kind.next_ms() for kind in kinds) if ms is not None), default=None)

    def note_member(self, member_id: str) -> None:
        """Record a member loaded from records. Its session begins with the next call of :meth:`expired`."""
        if member_id not in self._sessions:
            self._without_session.add(member_id)

    def begin(self, before: ConsumerGroupMember, member: ConsumerGroupMember, now_ms: int) -> None:
        """Restart the session, and start the rebalance timeout if the member must now revoke partitions."""
        member_id = member.member_id
        self._without_session.discard(member_id)
        self._sessions.set(member_id, now_ms + self._session_timeout_ms(member))
        if not member.uses_classic:
            self._joins.cancel(member_id)
            self._syncs.cancel(member_id)
        if member.uses_classic or member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._rebalances.cancel(member_id)
        elif member != before or member_id not in self._rebalances:
            self._rebalances.set(member_id, now_ms + member.metadata.rebalance_timeout_ms)
            self._rebalance_epochs[member_id] = member.member_epoch

    def await_join(self, member: ConsumerGroupMember, now_ms: int) -> None:
        """Start the time limit for a classic member to join again, unless it is already running."""
        if member.member_id not in self._joins:
            self._joins.set(member.member_id, now_ms + member.metadata.rebalance_timeout_ms)

    def await_sync(self, member: ConsumerGroupMember, now_ms: int) -> None:
        """Start the time limit for a joined classic member to request its assignment."""
        self._joins.cancel(member.member_id)
        self._syncs.set(member.member_id, now_ms + member.metadata.rebalance_timeout_ms)

    def end_sync(self, member_id: str) -> None:
        """Record that a classic member has requested its assignment."""
        self._syncs.cancel(member_id)

    def end(self, member_id: str) -> None:
        """Forget a member that has left."""
        self._without_session.discard(member_id)
        for kind in (self._sessions, self._rebalances, self._joins, self._syncs):
            kind.cancel(member_id)
        self._rebalance_epochs.pop(member_id, None)

    def expired(self, state: GroupState, now_ms: int) -> dict[str, str]:
        """Return the members to remove, with the reasons.

        Their sessions restart in case the removal cannot be written.
        """
        for member in [state.members[member_id] for member_id in self._without_session]:
            self.begin(member, member, now_ms)
        revoking = [member_id for member_id in self._rebalances.pop_expired(now_ms) if self._is_late(state, member_id)]
        late = dict.fromkeys(revoking, "it has not revoked its partitions within the rebalance timeout")
        late |= dict.fromkeys(self._syncs.pop_expired(now_ms), "it has not sent SyncGroup within the rebalance timeout")
        late |= dict.fromkeys(self._joins.pop_expired(now_ms), "it has not joined again within the rebalance timeout")
        late |= dict.fromkeys(self._sessions.pop_expired(now_ms), "its session expired")
        expired = {member_id: late[member_id] for member_id in sorted(late.keys() & state.members.keys())}
        for member_id in expired:
            self.end(member_id)
            self._sessions.set(member_id, now_ms + self._session_timeout_ms(state.members[member_id]))
        return expired

    def _session_timeout_ms(self, member: ConsumerGroupMember) -> int:
        classic = member.metadata.classic
        return self.session_timeout_ms if classic is None else classic.session_timeout_ms

    def _is_late(self, state: GroupState, member_id: str) -> bool:
        """Return whether a member has not progressed since its rebalance timeout began."""
        member = state.members.get(member_id)
        return (
            member is not None
            and member.state is MemberState.UNREVOKED_PARTITIONS
            and member.member_epoch == self._rebalance_epochs.get(member_id)
        )
