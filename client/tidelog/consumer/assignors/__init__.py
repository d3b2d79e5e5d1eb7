"""Kafka's assignors, by which the leader of a classic group divides partitions, and the formats of its members."""

from tidelog.consumer.assignors.assignor import Assignment, Assignor, Member, Topic
from tidelog.consumer.assignors.protocol import (
    PROTOCOL_TYPE,
    Key,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.consumer.assignors.registry import assignor_named

__all__ = [
    "PROTOCOL_TYPE",
    "Assignment",
    "Assignor",
    "Key",
    "Member",
    "Subscription",
    "Topic",
    "assignor_named",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]
