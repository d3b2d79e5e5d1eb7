"""Return of messages to the queue when a call ends before its application gets them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.consumer.core.commits import OffsetAndMetadata
from tidelog.consumer.partitions import Key
from tidelog.message import Message, TopicPartition
from tidelog_foundation.errors import KafkaException

if TYPE_CHECKING:
    from tidelog.consumer.consumer import Consumer


def unread_messages(consumer: Consumer, messages: Iterable[Message]) -> None:
    """Return these messages and events again."""
    taken = list(messages)
    firsts: dict[Key, int] = {}
    for message in taken:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is None and topic is not None and partition is not None and offset is not None:
            firsts.setdefault((topic, partition), offset)
    unread(consumer, firsts)
    for message in reversed(taken):
        if message.error() is not None:
            consumer._queue.put_back(message)


def unread(consumer: Consumer, firsts: Mapping[Key, int]) -> None:
    """Go back to these offsets, also in the stored offsets."""
    for key, offset in firsts.items():
        # The partition may have been revoked in the meantime.
        with contextlib.suppress(KafkaException):
            consumer.seek(TopicPartition(*key, offset))
            if consumer._group is not None and consumer._config.enable_auto_offset_store:
                consumer._group.store({key: OffsetAndMetadata(offset)}, consumer._positions)
