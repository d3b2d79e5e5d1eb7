"""The topics that a group subscribes to: names and regular expressions resolved against the existing topics."""

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
    """Return an int64 that changes when the properties of these topics that assignments depend on change (KIP-1101).

    It covers the topics that exist and is 0 if none does. ``with_racks`` includes the racks of replicas. It is set only
    if a member has a rack, so that a reassignment does not cause a rebalance in other groups.
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

    With ``again``, expressions that were resolved ``before`` are resolved once more. A value stays the same object if
    its topics are unchanged.
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
    """Return the ids of the existing topics that a member subscribes to."""
    names = set(member.metadata.subscribed_topic_names)
    if (resolved := regular_expressions.get(member.metadata.subscribed_topic_regex or "")) is not None:
        names.update(resolved.topics)
    return frozenset(topics[name].topic_id for name in names if name in topics)
