"""Consumer groups and assignments in the form that responses use."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.consumer.member import ConsumerGroupMember, by_topic
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.messages import (
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    MemberTopicPartitions,
)


def member_topics(partitions: Assignment) -> tuple[MemberTopicPartitions, ...]:
    """Return an assignment in the form of a heartbeat's response, without topic names."""
    return tuple(MemberTopicPartitions(topic.topic_id, topic.partitions) for topic in by_topic(partitions))


def describe_group(
    state: GroupState, state_name: str, assignor: str, topics: Mapping[str, TopicInfo]
) -> DescribedConsumerGroup:
    """Return a group with its members in order of their ids. Topics that do not exist are omitted."""
    names = {topic.topic_id: topic.name for topic in topics.values()}
    return DescribedConsumerGroup(
        group_id=state.group_id,
        group_state=state_name,
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=assignor,
        members=tuple(
            _describe_member(state.members[member_id], state.targets.get(member_id, frozenset()), names)
            for member_id in sorted(state.members)
        ),
    )


def _describe_member(
    member: ConsumerGroupMember, target: Assignment, names: Mapping[bytes, str]
) -> DescribedConsumerGroupMember:
    metadata = member.metadata
    return DescribedConsumerGroupMember(
        member_id=member.member_id,
        group_instance_id=metadata.instance_id,
        rack_id=metadata.rack_id or "",
        member_epoch=member.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=metadata.subscribed_topic_regex or "",
        assignment=_named_topics(member.assigned, names),
        target_assignment=_named_topics(target, names),
        uses_classic_protocol=member.uses_classic,
    )


def _named_topics(partitions: Assignment, names: Mapping[bytes, str]) -> tuple[MemberTopicPartitions, ...]:
    topics = (topic for topic in by_topic(partitions) if topic.topic_id in names)
    return tuple(MemberTopicPartitions(topic.topic_id, topic.partitions, names[topic.topic_id]) for topic in topics)
