"""Committed offsets of groups: commit, fetch, delete, expiry."""

from tidelog_node.groups.offsets.committed import CommittedOffsets, TopicPartition

__all__ = ["CommittedOffsets", "TopicPartition"]
