"""Group epochs and target assignments: the topics that members subscribe to, and the call of the assignor."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tidelog_node.groups.consumer.assignors import ASSIGNORS, MemberSpec
from tidelog_node.groups.consumer.draft import Draft
from tidelog_node.groups.consumer.member import ConsumerGroupMember
from tidelog_node.groups.consumer.state import subscribed_topics
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.records import ConsumerGroupRegularExpressionValue
from tidelog_node.shards.name_regex import NameRegex

_NO_TOPICS_HASH = 0
_NO_VERSION = 0


def refresh(draft: Draft, topics: Mapping[str, TopicInfo], *, has_changed: bool, resolve_again: bool) -> bool:
    """Begin a group epoch if subscriptions or their topics have changed, and return whether one began.

    ``has_changed`` begins one in any case. ``resolve_again`` searches for new topics of regular expressions.

    Raises:
        TidelogError: INVALID_REGULAR_EXPRESSION.
    """
    members = draft.members()
    before = draft.regular_expressions
    resolved = _resolve(draft, members.values(), topics, again=resolve_again)
    has_changed |= any(before[pattern] != resolved[pattern] for pattern in before.keys() & resolved.keys())
    draft.put_regular_expressions(resolved)
    with_racks = any(member.metadata.rack_id is not None for member in members.values())
    of_topics = _metadata_hash(subscribed_topics(members, resolved), topics, with_racks=with_racks)
    if has_changed or of_topics != draft.metadata.metadata_hash:
        draft.bump_epoch(of_topics)
        return True
    return False


def update_target(draft: Draft, topics: Mapping[str, TopicInfo], assignors: Sequence[str]) -> None:
    """Compute the target assignment of the group's epoch (Kafka's TargetAssignmentBuilder)."""
    members = draft.members()
    specs = {
        member_id: MemberSpec(
            _topic_ids_of(member, draft.regular_expressions, topics),
            draft.target_of(member_id),
            member.metadata.instance_id,
            member.metadata.rack_id,
        )
        for member_id, member in members.items()
    }
    subscribed = frozenset[bytes]().union(*(spec.subscribed_topic_ids for spec in specs.values()))
    counts = {topic.topic_id: topic.partitions for topic in topics.values() if topic.topic_id in subscribed}
    racks = {topic.topic_id: topic.racks for topic in topics.values() if topic.topic_id in subscribed and topic.racks}
    targets = ASSIGNORS[preferred_assignor(members.values(), assignors)](specs, counts, racks)
    for member_id in sorted(targets):
        if targets[member_id] != specs[member_id].partitions:
            draft.put_target(member_id, targets[member_id])
    draft.put_target_epoch()


def preferred_assignor(members: Iterable[ConsumerGroupMember], assignors: Sequence[str]) -> str:
    """Return the assignor that most members request. The earliest in ``assignors`` wins a tie."""
    votes = Counter(member.metadata.server_assignor for member in members)
    return max(assignors, key=votes.__getitem__)


def _metadata_hash(names: Iterable[str], topics: Mapping[str, TopicInfo], *, with_racks: bool = False) -> int:
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


def _resolve(
    draft: Draft, members: Iterable[ConsumerGroupMember], topics: Mapping[str, TopicInfo], *, again: bool
) -> dict[str, ConsumerGroupRegularExpressionValue]:
    """Return the topics of each regular expression that a member has.

    With ``again``, expressions that were resolved before are resolved once more. A value stays the same object if
    its topics are unchanged.
    """
    patterns = {member.metadata.subscribed_topic_regex for member in members}
    resolved: dict[str, ConsumerGroupRegularExpressionValue] = {}
    for pattern in sorted(pattern for pattern in patterns if pattern is not None):
        known = draft.regular_expressions.get(pattern)
        if known is not None and not again:
            resolved[pattern] = known
            continue
        names = tuple(sorted(filter(draft.may_describe, NameRegex(pattern).matching(topics))))
        is_same = known is not None and known.topics == names
        resolved[pattern] = (
            known
            if known is not None and is_same
            else ConsumerGroupRegularExpressionValue(names, _NO_VERSION, draft.wall_ms)
        )
    return resolved


def _topic_ids_of(
    member: ConsumerGroupMember,
    regular_expressions: Mapping[str, ConsumerGroupRegularExpressionValue],
    topics: Mapping[str, TopicInfo],
) -> frozenset[bytes]:
    """Return the ids of the existing topics that a member subscribes to."""
    names = set(member.metadata.subscribed_topic_names)
    if (resolved := regular_expressions.get(member.metadata.subscribed_topic_regex or "")) is not None:
        names.update(resolved.topics)
    return frozenset(topics[name].topic_id for name in names if name in topics)
