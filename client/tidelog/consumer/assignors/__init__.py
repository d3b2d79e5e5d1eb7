"""Kafka's assignors, by which the leader of a classic group divides partitions, and the formats of its members."""

from tidelog.consumer.assignors.assignor import Assignment, Assignor, KnownTopic, Member
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
