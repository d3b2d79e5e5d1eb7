"""The steps of a member to its target assignment, after Kafka's CurrentAssignmentBuilder.

A member first revokes the partitions that it loses, in its old epoch. Then it enters the new epoch and receives the
partitions that others have revoked by then; it receives the rest as they become free. No partition ever has two owners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.groups.consumer.assignors import Assignment, TopicPartition
from tidelog_node.groups.consumer.member import ConsumerGroupMember, MemberState

OwnerOf = Callable[[TopicPartition], str | None]
"""Returns the id of the member that owns a partition or has yet to revoke it, or None if it is free."""


def reconcile(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Assignment,
    owner_of: OwnerOf,
    owned: Assignment | None,
) -> ConsumerGroupMember:
    """Return the member after the next step to its target, or the member itself if no step is possible.

    ``owned`` contains the partitions that the member reports as owned, or is None if it reports none.

    Raises:
        TidelogError: FENCED_MEMBER_EPOCH: the member's state is from a later version and it still owns partitions.
    """
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch == target_epoch:
                return member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.pending_revocation):
                return member
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise error_for(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"the state of member {member.member_id} is not known: it must give up all its partitions and "
                    "join again",
                )
        case MemberState.UNRELEASED_PARTITIONS:
            pass
    return _next(member, target_epoch, target, owner_of, owned)


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    return owned is None or not owned.isdisjoint(revoked)


def _next(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Assignment,
    owner_of: OwnerOf,
    owned: Assignment | None,
) -> ConsumerGroupMember:
    kept = member.assigned & target
    revoked = member.assigned - target
    if revoked and _still_owns(owned, revoked):
        unrevoked = member.at(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept)
        return replace(unrevoked, pending_revocation=revoked)
    wanted = target - kept
    released = frozenset(partition for partition in wanted if owner_of(partition) in (None, member.member_id))
    state = MemberState.STABLE if released == wanted else MemberState.UNRELEASED_PARTITIONS
    next_member = member.at(target_epoch, state, kept | released)
    return member if _same(member, next_member) else next_member


def _same(member: ConsumerGroupMember, next_member: ConsumerGroupMember) -> bool:
    """Return whether only the previous epoch would change. A member that still waits needs no record."""
    return replace(next_member, previous_member_epoch=member.previous_member_epoch) == member
