"""confluent-kafka's Message, TopicPartition and ThrottleEvent, and the special offsets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog._pure_message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Headers,
)
from tidelog_foundation.errors import KafkaError

if TYPE_CHECKING:
    from tidelog._pure_message import Message
else:
    try:
        if os.environ.get("TIDELOG_PURE_PYTHON"):
            raise ImportError("the pure engine is selected")
        from tidelog._fast_message import Message
    except ImportError:
        from tidelog._pure_message import Message

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Headers",
    "Message",
    "ThrottleEvent",
    "TopicPartition",
]

OFFSET_BEGINNING = -2
"""The first offset of the log."""
OFFSET_END = -1
"""The high watermark: reading starts with later records."""
OFFSET_STORED = -1000
"""The committed offset, or else ``auto.offset.reset``."""
OFFSET_INVALID = -1001
"""No offset given: same as ``OFFSET_STORED``."""


class TopicPartition:
    """A partition of a topic with an offset and, in results, an error. Mutable, as in confluent-kafka."""

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return (self.topic, self.partition) == (other.topic, other.partition)

    def __lt__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __repr__(self) -> str:
        place = f"topic={self.topic},partition={self.partition},offset={self.offset}"
        return f"TopicPartition{{{place},leader_epoch={self.leader_epoch},error={self.error}}}"


@dataclass(slots=True)
class ThrottleEvent:
    """The argument of ``throttle_cb``: a quota delays the next request to a node by ``throttle_time`` seconds."""

    broker_name: str
    broker_id: int
    throttle_time: float

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1000)} ms"
