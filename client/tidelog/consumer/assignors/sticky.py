"""The assignor ``sticky``: as balanced as the subscriptions allow, then with as few moves as it finds (KIP-54).

Balanced means that no member has two partitions more than another one that could take one of them. Balance takes
precedence over stickiness. With equal subscriptions, no balanced assignment needs fewer moves.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from tidelog.consumer.assignors.assignor import Assignment, Member, Topic
from tidelog.consumer.assignors.balance import assign_sticky
from tidelog.consumer.assignors.protocol import Key, Reader, encode_partitions
from tidelog_foundation.errors import TidelogError


class StickyAssignor:
    """An eager assignor: members revoke everything before they join, and their user data lists their old partitions."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, owned: frozenset[Key], generation: int) -> bytes | None:
        """Return ``StickyAssignorUserData`` version 1: the previous assignment and its generation."""
        return encode_partitions(owned) + struct.pack(">i", generation)

    def assign(self, topics: Mapping[str, Topic], members: Iterable[Member]) -> Assignment:
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
