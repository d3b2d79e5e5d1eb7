"""Group epochs and target assignments: detection of changed subscriptions and topics, and the call of the assignor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tidelog_node.groups.consumer.assignors import ASSIGNORS, MemberSpec
from tidelog_node.groups.consumer.draft import Draft
from tidelog_node.groups.consumer.member import ConsumerGroupMember
from tidelog_node.groups.consumer.state import subscribed_topics
from tidelog_node.groups.consumer.subscriptions import metadata_hash, resolve, topic_ids_of
from tidelog_node.groups.events import TopicInfo


def refresh(draft: Draft, topics: Mapping[str, TopicInfo], *, has_changed: bool, resolve_again: bool) -> bool:
    """Begin a group epoch if subscriptions or their topics have changed, and return whether one began.

    ``has_changed`` begins one in any case. ``resolve_again`` searches for new topics of regular expressions.

    Raises:
        TidelogError: INVALID_REGULAR_EXPRESSION.
    """
    members = draft.members()
    before = draft.regular_expressions
    resolved = resolve(members.values(), before, topics, again=resolve_again, wall_ms=draft.wall_ms)
    has_changed |= any(before[pattern] != resolved[pattern] for pattern in before.keys() & resolved.keys())
    draft.put_regular_expressions(resolved)
    with_racks = any(member.metadata.rack_id is not None for member in members.values())
    of_topics = metadata_hash(subscribed_topics(members, resolved), topics, with_racks=with_racks)
    if has_changed or of_topics != draft.metadata.metadata_hash:
        draft.bump_epoch(of_topics)
        return True
    return False


def update_target(draft: Draft, topics: Mapping[str, TopicInfo], assignors: Sequence[str]) -> None:
    """Compute the target assignment of the group's epoch (Kafka's TargetAssignmentBuilder)."""
    members = draft.members()
    specs = {
        member_id: MemberSpec(
            topic_ids_of(member, draft.regular_expressions, topics),
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
