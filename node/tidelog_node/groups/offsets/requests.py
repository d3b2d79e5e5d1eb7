"""OffsetCommit, OffsetFetch and OffsetDelete (Kafka's OffsetMetadataManager). Callers check permissions first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from operator import itemgetter

from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.answers import NO_OFFSET, error_message, refusal
from tidelog_node.groups.events import AllOffsets, TopicInfo
from tidelog_node.groups.offsets.committed import CommittedOffsets, OffsetChange, TopicPartition
from tidelog_node.groups.records import OffsetCommitValue
from tidelog_node.groups.turn import Turn
from tidelog_node.groups.value_formats import NO_LEADER_EPOCH, NO_TIMESTAMP

_LAST_TIMESTAMP = 2**63 - 1
"""The latest timestamp, which limits the expiry of offsets with very long retention times."""


def commit(request: pb.OffsetCommitRequest, turn: Turn) -> tuple[list[OffsetChange], pb.OffsetCommitResponse]:
    """Return the changes of a commit and its response. Partitions that cannot be committed have an error in it."""
    changes: list[OffsetChange] = []
    response = pb.OffsetCommitResponse()
    chosen = request.HasField("retention_time_ms")
    expires_ms = min(turn.wall_ms + request.retention_time_ms, _LAST_TIMESTAMP) if chosen else NO_TIMESTAMP
    for topic in request.topics:
        result = response.topics.add(name=topic.name)
        for partition in topic.partitions:
            error = _refused(topic.name, partition, turn)
            result.partitions.add(index=partition.index, error=error)
            if error is None:
                changes.append(
                    (TopicPartition(topic.name, partition.index), _value(partition, turn.wall_ms, expires_ms))
                )
    return changes, response


def fetch(request: pb.OffsetFetchGroup, offsets: CommittedOffsets | None) -> pb.OffsetFetchGroupResult | AllOffsets:
    """Return the committed offsets of all partitions, or of the named ones with -1 where there is none."""
    committed = {} if offsets is None else offsets.committed
    if request.all_topics:
        return AllOffsets(request.group_id, list(committed.items()))
    response = pb.OffsetFetchGroupResult(group_id=request.group_id)
    for named in request.topics:
        result = response.topics.add(name=named.name)
        for partition in named.partitions:
            _add_partition(result, partition, committed.get(TopicPartition(named.name, partition)))
    return response


def fill_in_steps(response: pb.OffsetFetchGroupResult, found: AllOffsets) -> Generator[None, None, None]:
    """Write all offsets of a group into its response in order, one partition per step."""
    response.group_id = found.group_id
    if found.error is not None:
        response.error.CopyFrom(error_message(found.error))
    topics: dict[str, list[tuple[int, OffsetCommitValue]]] = {}
    for (topic, partition), value in found.committed:
        topics.setdefault(topic, []).append((partition, value))
        yield
    for topic in sorted(topics):
        result = response.topics.add(name=topic)
        for partition, value in sorted(topics[topic], key=itemgetter(0)):
            _add_partition(result, partition, value)
            yield


def delete(
    request: pb.OffsetDeleteRequest, offsets: CommittedOffsets, is_subscribed_to: Callable[[str], bool]
) -> tuple[list[OffsetChange], pb.OffsetDeleteResponse]:
    """Return the deleted offsets and the response. A topic with subscribers keeps its offsets (KIP-496)."""
    changes: list[OffsetChange] = []
    response = pb.OffsetDeleteResponse()
    known = offsets.known
    for topic in request.topics:
        result = response.topics.add(name=topic.name)
        subscribed = is_subscribed_to(topic.name)
        for partition in topic.partitions:
            error = refusal(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if subscribed else None
            result.partitions.add(index=partition, error=error)
            if not subscribed and (topic.name, partition) in known:
                changes.append((TopicPartition(topic.name, partition), None))
    return changes, response


def deletions(partitions: Iterable[TopicPartition]) -> list[OffsetChange]:
    """Return the changes that delete the offsets of these partitions, in order."""
    return [(partition, None) for partition in sorted(partitions)]


def _refused(topic: str, partition: pb.OffsetCommitPartition, turn: Turn) -> Error | None:
    limit = turn.settings.offset_metadata_max_bytes
    # Kafka counts characters too.
    if len(partition.committed_metadata) > limit:
        said = f"metadata of {len(partition.committed_metadata)} characters, offset.metadata.max.bytes is {limit}"
        return refusal(ErrorCode.OFFSET_METADATA_TOO_LARGE, said)
    if turn.topics is not None and not _exists(turn.topics.get(topic), partition.index):
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition.index}")
    return None


def _exists(topic: TopicInfo | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.partitions


def _value(partition: pb.OffsetCommitPartition, wall_ms: int, expires_ms: int) -> OffsetCommitValue:
    knows_epoch = partition.HasField("committed_leader_epoch")
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch if knows_epoch else NO_LEADER_EPOCH,
        metadata=partition.committed_metadata,
        commit_timestamp=wall_ms,
        expire_timestamp=expires_ms,
    )


def _add_partition(result: pb.OffsetFetchTopicResult, partition: int, value: OffsetCommitValue | None) -> None:
    result.partitions.add(
        index=partition,
        committed_offset=NO_OFFSET if value is None else value.offset,
        committed_leader_epoch=NO_LEADER_EPOCH if value is None else value.leader_epoch,
        metadata="" if value is None else value.metadata,
    )
