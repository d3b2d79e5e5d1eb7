"""The shell around the groups: the shards that this node leads, their logs and view, and calls to them."""

from tidelog_node.coordination.coordinator import GroupCoordinator
from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC, OffsetsTopicSettings

__all__ = ["OFFSETS_TOPIC", "GroupCoordinator", "OffsetsTopicSettings"]
