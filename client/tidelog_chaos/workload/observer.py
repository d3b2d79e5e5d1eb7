"""Watches the group's commits: it reads the log of the groups, and finally asks the coordinator.

While faults are active a coordinator may not know yet that another has taken over, and return older commits; that is so
in Kafka as well. The log below the high watermark is authoritative, in the order in which it was written.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping, Sequence

from tidelog.admin import AdminClient, ConsumerGroupTopicPartitions
from tidelog.consumer import Consumer
from tidelog.message import OFFSET_BEGINNING, OFFSET_INVALID, Message, TopicPartition
from tidelog_chaos.background import BackgroundThread
from tidelog_chaos.deadline import Deadline
from tidelog_chaos.workload.group_notes import GroupNotes
from tidelog_chaos.workload.keys import Keys, key_of, partition_of
from tidelog_foundation.errors import TidelogError

OFFSETS_TOPIC = "__consumer_offsets"
STATE_TOPIC = "__transaction_state"
"""The topic with the log of the groups."""

_NAME = "observer"
_TIMEOUT_S = 5.0
_PAUSE_S = 0.5
_POLL_S = 0.25
_AT_MOST = 2_000
_OFFSET_KEYS = (0, 1)


class Observer(BackgroundThread):
    """Notes the commits in the log, in its thread, until :meth:`stop`; the caller's thread makes the requests."""

    def __init__(
        self, servers: Mapping[str, str], admin: AdminClient, group_id: str, keys: Keys, notes: GroupNotes
    ) -> None:
        self._servers = servers
        self._admin = admin
        self._group_id = group_id
        self._keys = keys
        self._notes = notes
        self._ends: Mapping[int, int] | None = None
        self._is_at_ends = threading.Event()
        super().__init__(_NAME)

    def wait_committed(self, ends: Mapping[str, int], deadline: Deadline) -> dict[str, int | None]:
        """Wait until the group has committed all of these ends; return the commits of unfinished keys."""
        committed: dict[str, int | None] = {}
        while True:
            since_ns = self._notes.now_ns()
            try:
                found = self._ask()
            except (TidelogError, TimeoutError):
                found = {}
            self._notes.committed(_NAME, since_ns, found)
            committed |= found
            behind = {key: committed.get(key) for key, end in ends.items() if (committed.get(key) or 0) < end}
            if not behind or deadline.is_over:
                return behind
            time.sleep(_PAUSE_S)

    def wait_read(self, deadline: Deadline) -> int | None:
        """Wait until everything now in the log is read; return that time of the history, None on a timeout.

        It is 0 for a cluster without a log of groups, such as the fake.

        Raises:
            TidelogError: The cluster does not return the end of the log.
        """
        read_ns, partitions = self._notes.now_ns(), self._partitions(deadline.left_s)
        if not partitions:
            return 0
        with Consumer({**self._servers, "isolation.level": "read_uncommitted"}) as consumer:
            self._ends = {
                at.partition: consumer.get_watermark_offsets(at, timeout=deadline.left_s)[1] for at in partitions
            }
        return read_ns if self._is_at_ends.wait(deadline.left_s) else None

    def _ask(self) -> dict[str, int | None]:
        partitions = [TopicPartition(*partition_of(key)) for key in self._keys.all]
        asked = ConsumerGroupTopicPartitions(self._group_id, partitions)
        [future] = self._admin.list_consumer_group_offsets([asked], request_timeout=_TIMEOUT_S).values()
        return {
            key_of(at.topic, at.partition): None if at.offset == OFFSET_INVALID else at.offset
            for at in future.result(timeout=2 * _TIMEOUT_S).topic_partitions or ()
            if at.error is None
        }

    def _run(self) -> None:
        with Consumer({**self._servers, "auto.offset.reset": "earliest"}) as consumer:
            while not self._stopping.is_set():
                try:
                    if not consumer.assignment():
                        consumer.assign(self._partitions(_TIMEOUT_S))
                    self._take(consumer.consume(_AT_MOST, timeout=_POLL_S))
                    self._look_at_ends(consumer)
                except TidelogError:
                    self._stopping.wait(_PAUSE_S)

    def _partitions(self, timeout_s: float) -> list[TopicPartition]:
        """Return the partitions of the log, from the beginning; none before the topic exists."""
        topic = self._admin.list_topics(OFFSETS_TOPIC, timeout=timeout_s).topics.get(OFFSETS_TOPIC)
        numbers = topic.partitions if topic is not None and topic.error is None else ()
        return [TopicPartition(OFFSETS_TOPIC, number, OFFSET_BEGINNING) for number in numbers]

    def _take(self, messages: Sequence[Message]) -> None:
        found = [logged_offset(m.key(), m.value(), self._group_id) for m in messages if m.error() is None]
        offsets = [pair for pair in found if pair is not None]
        if offsets:
            self._notes.logged(offsets)

    def _look_at_ends(self, consumer: Consumer) -> None:
        ends = self._ends
        if ends is None:
            return
        positions = consumer.position([TopicPartition(OFFSETS_TOPIC, number) for number in ends])
        if all(at.offset >= ends[at.partition] or not ends[at.partition] for at in positions):
            self._is_at_ends.set()


def logged_offset(key: bytes | None, value: bytes | None, group_id: str) -> tuple[str, int | None] | None:
    """Return the key and the offset that a record of the groups' log commits; None for other records.

    Kafka's OffsetCommitKey.json and OffsetCommitValue.json: both begin with a version; a record without a value deletes
    the offset, which is None here.
    """
    if key is None or struct.unpack_from(">h", key)[0] not in _OFFSET_KEYS:
        return None
    group, place = _text(key, 2)
    topic, place = _text(key, place)
    if group != group_id:
        return None
    offset = None if value is None else struct.unpack_from(">q", value, 2)[0]
    return key_of(topic, struct.unpack_from(">i", key, place)[0]), offset


def _text(data: bytes, place: int) -> tuple[str, int]:
    start = place + 2
    end = start + int(struct.unpack_from(">h", data, place)[0])
    return data[start:end].decode(), end
