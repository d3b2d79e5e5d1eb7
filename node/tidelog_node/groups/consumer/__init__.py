"""The groups of KIP-848's protocol, without I/O: heartbeats in, records and responses out."""

from tidelog_node.groups.consumer.group import ConsumerGroup, Result
from tidelog_node.groups.consumer.state import Record

__all__ = ["ConsumerGroup", "Record", "Result"]
