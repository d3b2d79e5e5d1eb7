"""The state of a classic group (Kafka's ClassicGroup): its members, generation, protocol and leader.

It makes no decisions except that its state changes by Kafka's table alone. :mod:`.rebalance` and its sibling modules
change the group through these methods, which keep the counts and indexes consistent. A member with a ``join_call``
waits for the answer to its JoinGroup, one with a ``sync_call`` for the answer to its SyncGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.classic.timers import Timers
from tidelog_node.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics


class ClassicState(StrEnum):
    """Kafka's ClassicGroupState, with the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_VALID_PREVIOUS_STATES = {
    ClassicState.EMPTY: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.PREPARING_REBALANCE: (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY),
    ClassicState.COMPLETING_REBALANCE: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.STABLE: (ClassicState.COMPLETING_REBALANCE,),
    ClassicState.DEAD: tuple(ClassicState),
}


@dataclass(slots=True)
class ClassicMember:
    """A member. ``protocols`` contains the names of its supported protocols in order of preference, with metadata."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    """True if its first JoinGroup is unanswered."""
    join_call: int | None = None
    sync_call: int | None = None

    @property
    def awaits_join(self) -> bool:
        """True if the member waits for the answer to its JoinGroup."""
        return self.join_call is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol, empty if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the member's most preferred protocol among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroup:
    """A group, used on its shard's thread. A new group is empty; a loaded or converted one begins in another state."""

    __slots__ = (
        "_previous_state",
        "_state",
        "_state_timestamp_ms",
        "_supported",
        "assigned_generation",
        "generation",
        "group_id",
        "leader",
        "members",
        "must_rebalance",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "protocol_name",
        "protocol_type",
        "static_members",
        "subscribed_topics",
        "timers",
    )

    def __init__(
        self, group_id: str, state: ClassicState = ClassicState.EMPTY, state_timestamp_ms: int | None = None
    ) -> None:
        self.group_id = group_id
        self._state = state
        self._previous_state = ClassicState.DEAD
        self._state_timestamp_ms = state_timestamp_ms
        self.generation = 0
        self.assigned_generation = -1
        """The last generation whose assignment was passed to the log."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.pending_joins: dict[str, None] = {}
        """Member ids that were sent with MEMBER_ID_REQUIRED and have not joined (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members whose JoinGroup was answered and that have not sent SyncGroup."""
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        """None if unknown."""
        self.must_rebalance = False
        """True if the group was a consumer group and no generation has begun since."""
        self.timers = Timers()
        self._supported: Counter[str] = Counter()

    @property
    def state(self) -> ClassicState:
        """The state. Only :meth:`transition_to` changes it."""
        return self._state

    @property
    def previous_state(self) -> ClassicState:
        """The state before the last transition, DEAD before the first one."""
        return self._previous_state

    @property
    def state_timestamp_ms(self) -> int | None:
        """The time of day of the last transition, or None if an old record did not contain it."""
        return self._state_timestamp_ms

    @property
    def is_empty(self) -> bool:
        """True if the group has no members and no rebalance is in progress."""
        return self.state is ClassicState.EMPTY

    @property
    def has_all_joined(self) -> bool:
        """True if the join phase waits for no member."""
        return not self.pending_joins and all(member.awaits_join for member in self.members.values())

    @property
    def can_rebalance(self) -> bool:
        """True if a rebalance can begin."""
        return self.state in _VALID_PREVIOUS_STATES[ClassicState.PREPARING_REBALANCE]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        """True if the members are consumers, whose metadata the coordinator can read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def transition_to(self, state: ClassicState, wall_ms: int) -> None:
        """Change the state, as the table of valid previous states allows."""
        assert self.state in _VALID_PREVIOUS_STATES[state], f"{self.group_id}: from {self.state} to {state}"
        self._previous_state, self._state = self._state, state
        self._state_timestamp_ms = wall_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member. The first one sets the group's protocol type and becomes its leader."""
        assert member.instance_id not in self.static_members
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._supported.update(name for name, _ in member.protocols)
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or an unused member id. If it was the leader, the next member leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.join_call is None
            assert member.sync_call is None
            self._supported.subtract(name for name, _ in member.protocols)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        self.timers.cancel_session(member_id)

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Give a static member another member id. All other state stays (KIP-345)."""
        assert member.instance_id is not None
        old_id = member.member_id
        del self.members[old_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(member_id)
        self.timers.cancel_session(old_id)

    def update_protocols(self, member: ClassicMember, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Replace the protocols that a member supports."""
        self._supported.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self._supported.update(name for name, _ in protocols)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Return whether a member with these protocols can join the group."""
        names = tuple(protocols)
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        is_shared = any(self._supported[name] == len(self.members) for name in names)
        return self.protocol_type == protocol_type and is_shared

    def shared_protocols(self) -> set[str]:
        """Return the protocols that all members support."""
        return {name for name, count in self._supported.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """Return the shared protocol with the most votes of members. The first one voted for wins a tie."""
        candidates = self.shared_protocols()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader. Return False if none has joined."""
        if self.leader is None:
            return False
        if not self.members[self.leader].awaits_join:
            joined = next((member.member_id for member in self.members.values() if member.awaits_join), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def begin_generation(self, wall_ms: int) -> None:
        """Begin the next generation with the current members, or become empty without any."""
        self.generation += 1
        self.must_rebalance = False
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.find_subscribed_topics()
        self.pending_syncs.clear()
        state = ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY
        self.transition_to(state, wall_ms)

    def find_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all members, or None if they are not consumers or their metadata cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic; True for consumers with unknown subscriptions."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member.

        Raises:
            TidelogError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id.
        """
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                raise error_for(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self.group_id} has no member with the instance id {instance_id}",
                )
            if holder != member_id:
                raise error_for(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"in group {self.group_id} the instance id {instance_id} is that of {holder}, not of {member_id}",
                )
        member = self.members.get(member_id)
        if member is None:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no member {member_id!r}")
        return member

    def check_invariants(self) -> None:
        """Assert the group's invariants."""
        assert self._supported == Counter(name for m in self.members.values() for name, _ in m.protocols)
        assert self.static_members == {m.instance_id: m.member_id for m in self.members.values() if m.instance_id}
        assert all(member.member_id == member_id for member_id, member in self.members.items())
        assert (self.leader in self.members) if self.members else self.leader is None
        assert not self.pending_joins.keys() & self.members.keys()
        assert self.pending_syncs <= self.members.keys()
        assert self.timers.sessions.keys() <= self.members.keys() | self.pending_joins.keys()
        assert not self.is_empty or not self.members
        for member in self.members.values():
            assert member.sync_call is None or self.state is ClassicState.COMPLETING_REBALANCE
            if self.state is ClassicState.STABLE and member.awaits_join:
                assert member.instance_id is not None
        if self.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            assert self.members
            assert self.protocol_name is not None
            assert self.timers.join_ms is None
        if self.state is ClassicState.PREPARING_REBALANCE:
            assert self.timers.join_ms is not None
