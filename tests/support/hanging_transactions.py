"""Transactions that hang: their records are in partitions, but their coordinator does not know of the partitions.

They are written with requests of Kafka's protocol, since no client leaves one, to the only node of a cluster without
``transaction.partition.verification.enable``.
"""

from __future__ import annotations

from compat.wire.side import Side
from compat.wire.transactional import OLD, TIMEOUT_MS, UNKNOWN_PRODUCER, epoch_of, id_of, init, ready, write

from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.messages.group_admin import FindCoordinatorRequest
from tidelog_node.kafka.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog_node.kafka.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog_node.kafka.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUP = "hanging"
_COMMITTED, _ALL = 1, 0
_LAST = -1


def leave_hanging(side: Side, topic: str) -> int:
    """Leave a record in partition 0, one of an unknown producer in partition 1, and a group's offset.

    Return the producer id of the first and the last.
    """
    ready(side)
    side.wait_for(lambda: side.ask(FindCoordinatorRequest(GROUP), 3).error_code == 0, "have a coordinator of groups")
    side.kept[topic] = side.ask(init(topic), 4)
    # A node may not have applied the setting yet.
    side.wait_for(lambda: _is_written(side, topic), "accept a record without verification")
    unknown = write(topic, 0, 1, topic=topic, producer_id=UNKNOWN_PRODUCER)
    assert _errors(side.ask(unknown(side), OLD)) == [0]
    side.wait_for(lambda: _errors(side.ask(_commit(side, topic), 3)) == [0], "accept an offset")
    return id_of(side, topic)


def ends(side: Side, topic: str, partition: int) -> tuple[int, int]:
    """Return the last stable offset and the high watermark of a partition."""
    found = []
    for isolation in (_COMMITTED, _ALL):
        named = [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, _LAST)])]
        response = side.ask(ListOffsetsRequest(-1, isolation, named, TIMEOUT_MS), 7)
        found.append(response.topics[0].partitions[0].offset)
    return found[0], found[1]


def stable_offset(side: Side, topic: str) -> ErrorCode | int:
    """Return the group's committed offset of partition 0, -1 for none, or the error of a reader of stable offsets."""
    asked = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(topic, bytes(16), [0])], require_stable=True)
    [found] = side.ask(asked, 7).topics[0].partitions
    return ErrorCode.of(found.error_code) if found.error_code else int(found.committed_offset)


def _is_written(side: Side, topic: str) -> bool:
    return _errors(side.ask(write(topic, 0, 0, topic=topic)(side), OLD)) == [0]


def _commit(side: Side, topic: str) -> TxnOffsetCommitRequest:
    offsets = [TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, 5)])]
    return TxnOffsetCommitRequest(topic, GROUP, id_of(side, topic), epoch_of(side, topic), topics=offsets)


def _errors(response: object) -> list[int]:
    topics = response.topics  # type: ignore[attr-defined]
    return [partition.error_code for topic in topics for partition in topic.partitions]
