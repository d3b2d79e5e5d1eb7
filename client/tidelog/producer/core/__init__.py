"""The producer's decisions, without I/O, clock or randomness."""

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import Batch, DeliveryCallback, Rows
from tidelog.producer.core.engine import COMPILED, Delivery, Intake
from tidelog.producer.core.events import (
    AskMetadata,
    AskProducerId,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Event,
    ProducerIdLearned,
    ProducerIdRefused,
    Send,
    Settle,
    TopicLearned,
    TopicRefused,
)
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.numbering import NO_NUMBER, ProducerNumber
from tidelog.producer.core.refusals import REFUSALS

__all__ = [
    "COMPILED",
    "NO_NUMBER",
    "REFUSALS",
    "Accumulator",
    "AccumulatorLimits",
    "AskMetadata",
    "AskProducerId",
    "Batch",
    "BatchAcknowledged",
    "BatchFailed",
    "Command",
    "Delivery",
    "DeliveryCallback",
    "Event",
    "Intake",
    "ProducerIdLearned",
    "ProducerIdRefused",
    "ProducerNumber",
    "Rows",
    "Send",
    "Settle",
    "TopicLearned",
    "TopicRefused",
]
