"""The rules of the service of records and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.authorization.rules import (
    CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
    Handle,
    Rule,
    in_order,
    is_open,
    on_cluster,
    per_item,
)
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.acls import CLUSTER_NAME, AclOperation
from tidelog_foundation.requests.metadata import GetMetadataRequest
from tidelog_foundation.requests.topics import TopicMetadata
from tidelog_node.handlers.requests import offsets, producers


def _of_partitions(
    operation: AclOperation, topic_result: Callable[..., Any], partition_result: Callable[[int, TidelogError], Any]
) -> Rule:
    """Return the rule of a method whose topics are denied partition by partition."""

    def denied(topic: Any, error: TidelogError) -> Any:
        return topic_result(topic.name, tuple(partition_result(i, error) for i in _indexes(topic.partitions)))

    return per_item(operation, TOPIC, "topics", "topics", denied)


def _indexes(partitions: Iterable[Any]) -> Iterable[int]:
    return (partition if isinstance(partition, int) else partition.index for partition in partitions)


async def _get_metadata(access: Access, request: GetMetadataRequest, handle: Handle) -> Any:
    """A named topic is denied, one of a request for all topics is left out. Creating a topic needs a permission."""
    if request.all_topics:
        response = await handle(request)
        shown = await access.allowed(AclOperation.DESCRIBE, TOPIC, (t.name for t in response.topics), log=False)
        return replace(response, topics=tuple(t for t in response.topics if t.name in shown))
    described = await access.allowed(AclOperation.DESCRIBE, TOPIC, request.topics)
    permitted = tuple(name for name in request.topics if name in described)
    response = await handle(replace(request, topics=permitted, allow_auto_topic_creation=False))
    undescribed = [t for t in response.topics if t.error is not None and _is_unknown(t.error)]
    if undescribed and request.allow_auto_topic_creation:
        response = await _create(access, request, permitted, [t.name for t in undescribed], handle)

    def denied(name: str) -> TopicMetadata:
        return TopicMetadata(name, access.denial(AclOperation.DESCRIBE, TOPIC, name))

    merged = in_order(request.topics, described, response.topics, denied, lambda name: name, lambda t: t.name)
    return replace(response, topics=merged)


async def _create(
    access: Access, request: GetMetadataRequest, permitted: tuple[str, ...], missing: list[str], handle: Handle
) -> Any:
    """Return the topics after a request to create the missing ones; those that the caller may not create are denied."""
    creatable = frozenset(missing)
    if not access.on_cluster(AclOperation.CREATE, log=False):
        creatable = await access.allowed(AclOperation.CREATE, TOPIC, missing)
    refused = frozenset(missing) - creatable
    asked = tuple(name for name in permitted if name not in refused)
    response = await handle(replace(request, topics=asked))

    def denied(name: str) -> TopicMetadata:
        return TopicMetadata(name, access.denial(AclOperation.CREATE, TOPIC, name))

    merged = in_order(permitted, set(asked), response.topics, denied, lambda name: name, lambda t: t.name)
    return replace(response, topics=merged)


def _is_unknown(error: TidelogError) -> bool:
    return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _offset_for_leader_epoch(access: Access, request: offsets.OffsetForLeaderEpochRequest, handle: Handle) -> Any:
    """Nodes act for the cluster; consumers may describe topics instead (KIP-320)."""
    if access.on_cluster(AclOperation.CLUSTER_ACTION, log=False):
        return await handle(request)
    return await _EPOCHS(access, request, handle)


async def _init_producer_id(access: Access, request: producers.InitProducerIdRequest, handle: Handle) -> Any:
    """Without a transactional id, an idempotent write to the cluster or a write to any topic is enough (KIP-679)."""
    name = request.transactional_id
    if name is not None:
        access.require(AclOperation.WRITE, TRANSACTIONAL_ID, name)
        if request.enable_two_phase_commit:
            access.require(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, name)
    elif not access.on_cluster(AclOperation.IDEMPOTENT_WRITE, log=False) and not access.allows_any(
        AclOperation.WRITE, TOPIC
    ):
        raise access.denial(AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    return await handle(request)


_EPOCHS: Final = _of_partitions(
    AclOperation.DESCRIBE, offsets.OffsetForLeaderTopicResult, offsets.OffsetForLeaderPartitionResult
)
LOG_RULES: Final[Mapping[str, Rule]] = {
    # The handlers of records decide topic by topic.
    "Produce": is_open,
    "Fetch": is_open,
    "ListOffsets": _of_partitions(
        AclOperation.DESCRIBE, offsets.ListOffsetsTopicResult, offsets.ListOffsetsPartitionResult
    ),
    "GetMetadata": _get_metadata,
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "DeleteRecords": _of_partitions(
        AclOperation.DELETE, offsets.DeleteRecordsTopicResult, offsets.DeleteRecordsPartitionResult
    ),
    "DescribeLogDirs": on_cluster(AclOperation.DESCRIBE),
    "AlterReplicaLogDirs": on_cluster(AclOperation.ALTER),
    "InitProducerId": _init_producer_id,
    "DescribeProducers": _of_partitions(
        AclOperation.READ, producers.DescribeProducersTopicResult, producers.DescribeProducersPartitionResult
    ),
    "WriteTxnMarkers": on_cluster(AclOperation.CLUSTER_ACTION),
    # As in Kafka, clients need no right to push what subscriptions ask of them.
    "GetTelemetrySubscriptions": is_open,
    "PushTelemetry": is_open,
}
