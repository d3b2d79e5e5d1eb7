"""The assignor ``sticky``: as balanced as subscriptions allow, and of that with as few moves as it finds (KIP-54).

Balanced: no member has two partitions or more than another one that could take one of them. Balance comes before
stickiness. With equal subscriptions the number of moves is the least that any balanced assignment has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from tidelog.consumer.assignors.assignor import Assignment, Member, Topic
from tidelog.consumer.assignors.balance import assign_sticky
from tidelog.consumer.assignors.protocol import Key, Reader, encode_partitions
from tidelog_foundation.errors import TidelogError


class StickyAssignor:
    """Eager: members give everything up before they join, and say in their user data what they had."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, owned: frozenset[Key], generation: int) -> bytes | None:
        """Return ``StickyAssignorUserData`` version 1: the previous assignment and its generation."""
        return encode_partitions(owned) + struct.pack(">i", generation)

    def assign(self, topics: Mapping[str, Topic], members: Iterable[Member]) -> Assignment:
        """Divide the partitions; members that have had none, or whose user data cannot be read, begin afresh."""
        listed = list(members)
        return assign_sticky(topics, listed, {member.member_id: previous_of(member) for member in listed})


def previous_of(member: Member) -> tuple[frozenset[Key], int]:
    """Return what a member's user data says it had, and in which generation (-1: version 0 does not say)."""
    data = member.subscription.user_data
    if not data:
        return frozenset(), -1
    reader = Reader(data, "previous assignment")
    try:
        owned = reader.partitions()
        return owned, reader.int32() if reader.remaining else -1
    except TidelogError:
        return frozenset(), -1
