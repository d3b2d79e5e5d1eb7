"""Ids of the topics that a test's controllers create."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.ids import TopicId


@dataclass(slots=True)
class SequentialTopicIds:
    """The numbers from 1 on, as ids of 16 bytes; ``created`` is the last one."""

    created: int = 0

    def __iter__(self) -> SequentialTopicIds:
        return self

    def __next__(self) -> TopicId:
        self.created += 1
        return TopicId(self.created.to_bytes(16, "big"))
