"""How the leader of a classic group divides partitions: Kafka's assignors, and the formats in which members speak."""

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
