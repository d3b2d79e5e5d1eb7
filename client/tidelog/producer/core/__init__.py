"""The producer's decisions, without I/O, clock or randomness."""

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import Batch, Delivery, DeliveryCallback
from tidelog.producer.core.events import (
    AskMetadata,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Event,
    Send,
    Settle,
    TopicLearned,
    TopicRefused,
)
from tidelog.producer.core.limits import AccumulatorLimits

__all__ = [
    "Accumulator",
    "AccumulatorLimits",
    "AskMetadata",
    "Batch",
    "BatchAcknowledged",
    "BatchFailed",
    "Command",
    "Delivery",
    "DeliveryCallback",
    "Event",
    "Send",
    "Settle",
    "TopicLearned",
    "TopicRefused",
]
