"""The assignor ``sticky``: as balanced as the subscriptions allow, then with as few moves as it finds (KIP-54).

Balanced means that no member has two partitions more than another one that could take one of them. Balance takes
precedence over stickiness. With equal subscriptions, no balanced assignment needs fewer moves.

``cooperative-sticky`` does the same, but a partition changes owner in two rebalances (KIP-429). The first assignment
leaves out partitions that change owner. The old owner revokes them and joins again, and the second rebalance assigns
them. All other partitions stay with their owners without interruption.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from tidelog.consumer.assignors.assignor import Assignment, Assignor, KnownTopic, Member
from tidelog.consumer.assignors.balance import assign_sticky
from tidelog.consumer.assignors.protocol import Key, Reader, encode_partitions
from tidelog_foundation.errors import TidelogError


class StickyAssignor(Assignor):
    """An eager assignor: members revoke everything before they join, and their user data lists their old partitions."""

    name = "sticky"

    def user_data(self, owned: frozenset[Key], generation: int) -> bytes | None:
        """Return ``StickyAssignorUserData`` version 1: the previous assignment and its generation."""
        return encode_partitions(owned) + struct.pack(">i", generation)

    def assign(self, topics: Mapping[str, KnownTopic], members: Iterable[Member]) -> Assignment:
        """Divide the partitions; a member without readable user data starts without previous partitions."""
        listed = list(members)
        return assign_sticky(topics, listed, {member.member_id: previous_of(member) for member in listed})


def previous_of(member: Member) -> tuple[frozenset[Key], int]:
    """Return the partitions in a member's user data and their generation (-1 for version 0, which has none)."""
    data = member.subscription.user_data
    if not data:
        return frozenset(), -1
    reader = Reader(data, "previous assignment")
    try:
        owned = reader.partitions()
        return owned, reader.int32() if reader.remaining else -1
    except TidelogError:
        return frozenset(), -1


class CooperativeStickyAssignor(Assignor):
    """A cooperative assignor: members keep their partitions while they join, and list them in their subscriptions."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: frozenset[Key], generation: int) -> bytes | None:
        """Return the generation, for leaders older than KIP-814, whose subscriptions have no field for it."""
        return struct.pack(">i", generation)

    def assign(self, topics: Mapping[str, KnownTopic], members: Iterable[Member]) -> Assignment:
        """Divide the partitions, leaving out those that another member must revoke first."""
        listed = list(members)
        assignment = assign_sticky(topics, listed, {member.member_id: _owned_of(member) for member in listed})
        claims = {member.member_id: member.subscription.owned for member in listed}
        transferring = _given_up(claims, assignment)
        return {
            member_id: [key for key in partitions if key in claims[member_id] or key not in transferring]
            for member_id, partitions in assignment.items()
        }


def _owned_of(member: Member) -> tuple[frozenset[Key], int]:
    subscription = member.subscription
    if subscription.generation < 0 and subscription.user_data and len(subscription.user_data) == 4:
        return subscription.owned, int.from_bytes(subscription.user_data, "big", signed=True)
    return subscription.owned, subscription.generation


def _given_up(claims: dict[str, frozenset[Key]], assignment: Assignment) -> set[Key]:
    """Return partitions that their members lose; their new owners must wait."""
    given_up: set[Key] = set()
    for member_id, owned in claims.items():
        given_up |= owned.difference(assignment[member_id])
    return given_up
