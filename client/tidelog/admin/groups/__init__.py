"""Administration of consumer groups."""

from tidelog.admin.groups.group_admin import GroupAdmin
from tidelog.admin.groups.metadata import GroupMember, GroupMetadata, group_metadata
from tidelog.admin.groups.model import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
    MemberToRemove,
    PartitionLag,
)

__all__ = [
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "GroupAdmin",
    "GroupMember",
    "GroupMetadata",
    "ListConsumerGroupsResult",
    "MemberAssignment",
    "MemberDescription",
    "MemberToRemove",
    "PartitionLag",
    "group_metadata",
]
