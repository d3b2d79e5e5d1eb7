"""Which topics a group subscribes to: names and regular expressions against the topics that there are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from tidelog_node.groups.consumer.member import ConsumerGroupMember
from tidelog_node.groups.consumer.topic_regex import TopicRegex
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.records import ConsumerGroupRegularExpressionValue

_NO_TOPICS_HASH = 0
_NO_VERSION = 0


def metadata_hash(names: Iterable[str], topics: Mapping[str, TopicInfo], *, with_racks: bool = False) -> int:
    """Return a number, int64, that changes when what assignments depend on changes of these topics (KIP-1101).

    It is of the topics that exist; 0 when none does. ``with_racks`` says that a member has a rack: the racks of
    replicas count for no other group, so that a reassignment does not make it rebalance.
    """
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        if (topic := topics.get(name)) is not None:
            found = True
            digest.update(f"{topic.topic_id.hex()} {topic.partitions} {name}\n".encode())
            if with_racks and topic.racks:
                digest.update(repr([sorted(racks) for racks in topic.racks]).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if found else _NO_TOPICS_HASH


def resolve(
    members: Iterable[ConsumerGroupMember],
    before: Mapping[str, ConsumerGroupRegularExpressionValue],
    topics: Mapping[str, TopicInfo],
    *,
    again: bool,
    wall_ms: int,
) -> dict[str, ConsumerGroupRegularExpressionValue]:
    """Return the topics of each regular expression that a member has.

    With ``again`` those that were resolved ``before`` are, too; the value stays as it is when the topics are the same.
    """
    patterns = {member.metadata.subscribed_topic_regex for member in members}
    resolved: dict[str, ConsumerGroupRegularExpressionValue] = {}
    for pattern in sorted(pattern for pattern in patterns if pattern is not None):
        known = before.get(pattern)
        if known is not None and not again:
            resolved[pattern] = known
            continue
        names = tuple(sorted(TopicRegex(pattern).matching(topics)))
        is_same = known is not None and known.topics == names
        resolved[pattern] = (
            known if known is not None and is_same else ConsumerGroupRegularExpressionValue(names, _NO_VERSION, wall_ms)
        )
    return resolved


def topic_ids_of(
    member: ConsumerGroupMember,
    regular_expressions: Mapping[str, ConsumerGroupRegularExpressionValue],
    topics: Mapping[str, TopicInfo],
) -> frozenset[bytes]:
    """Return the ids of the topics that a member subscribes to and that exist."""
    names = set(member.metadata.subscribed_topic_names)
    if (resolved := regular_expressions.get(member.metadata.subscribed_topic_regex or "")) is not None:
        names.update(resolved.topics)
    return frozenset(topics[name].topic_id for name in names if name in topics)
