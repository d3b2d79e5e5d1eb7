"""The shell around the shards of coordinators: those that this node leads, their logs and views, and calls to them."""

from tidelog_node.coordination.group_coordinator import GroupCoordinator
from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC, OffsetsTopicSettings
from tidelog_node.coordination.transaction_coordinator import TransactionCoordinator
from tidelog_node.coordination.transaction_topic import TRANSACTION_TOPIC, TransactionTopicSettings

__all__ = [
    "OFFSETS_TOPIC",
    "TRANSACTION_TOPIC",
    "GroupCoordinator",
    "OffsetsTopicSettings",
    "TransactionCoordinator",
    "TransactionTopicSettings",
]
