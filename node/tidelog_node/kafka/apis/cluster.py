"""DescribeCluster and DescribeTopicPartitions: descriptions of the cluster and its topics for administrators."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_node.kafka.apis.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidelog_node.kafka.cluster_view import ClusterView
from tidelog_node.kafka.protocol.messages import metadata as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi
from tidelog_quorum.metadata.description import INTERNAL_TOPICS
from tidelog_quorum.metadata.image import TopicImage

_BROKERS, _CONTROLLERS = 1, 2
_NAMES_ENDPOINTS: Final = 1
"""The first version with an endpoint type and with specific errors for it (KIP-919)."""
_WITH_LISTENER_ERRORS: Final = 6
MOST_PARTITIONS: Final = 2_000
"""The maximum number of partitions in a response (Kafka's default of max.request.partition.size.limit)."""


async def describe_cluster(
    node: KafkaNode, request: wire.DescribeClusterRequest, caller: Caller
) -> wire.DescribeClusterResponse:
    """Describe the brokers that have the caller's listener. A broker does not describe controllers.

    As in Kafka's AuthHelper.computeDescribeClusterResponse, the reported controller is any live broker.
    """
    kind = request.endpoint_type
    if kind != _BROKERS:
        own = ErrorCode.MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        error = own if caller.version >= _NAMES_ENDPOINTS else ErrorCode.INVALID_REQUEST
        text = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            if kind == _CONTROLLERS
            else f"Unsupported endpoint type {kind}"
        )
        return wire.DescribeClusterResponse(error_code=error.code, error_message=text)
    view = ClusterView(node.context.metadata.image.brokers, caller.listener)
    shown = view.shown if request.include_fenced_brokers else view.alive
    return wire.DescribeClusterResponse(
        cluster_id=node.context.cluster_id,
        controller_id=view.any_alive(),
        brokers=[
            wire.DescribeClusterBroker(i, endpoint.host, endpoint.port, broker.rack or None, broker.fenced)
            for i, (broker, endpoint) in shown.items()
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else wire.NO_OPERATIONS
        ),
    )


async def describe_topic_partitions(
    node: KafkaNode, request: wire.DescribeTopicPartitionsRequest, caller: Caller
) -> wire.DescribeTopicPartitionsResponse:
    """Describe the partitions from the cursor on, in order of topic names, up to the limit.

    As in Kafka's DescribeTopicPartitionsRequestHandler, an invalid cursor causes INVALID_REQUEST.
    """
    cursor = request.cursor
    begin = cursor.topic_name if cursor is not None else ""
    image = node.context.metadata.image
    known = image.topics if not request.topics else {t.name for t in request.topics}
    names = sorted(name for name in known if name >= begin)
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and begin not in names)):
        error = ErrorCode.INVALID_REQUEST.code
        return wire.DescribeTopicPartitionsResponse(topics=[wire.DescribedTopic(error, t.name) for t in request.topics])
    view = ClusterView(image.brokers, caller.listener)
    room = max(1, min(MOST_PARTITIONS, request.response_partition_limit))
    response = wire.DescribeTopicPartitionsResponse()
    async for name in TimeSlices().of(names):
        if room == 0:
            response.next_cursor = wire.Cursor(name, 0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = cursor.partition_index if cursor is not None and name == begin else 0
        described = _described(view, topic, first, room)
        response.topics.append(described)
        end = first + room
        if end < len(topic.partitions):
            response.next_cursor = wire.Cursor(name, end)
            break
        room -= len(described.partitions)
    return response


def _missing(name: str) -> wire.DescribedTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_topic_name(name)
    except TidelogError as invalid:
        error = invalid.code
    return wire.DescribedTopic(
        error.code, name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(view: ClusterView, topic: TopicImage, first: int, count: int) -> wire.DescribedTopic:
    end = min(len(topic.partitions), first + count)
    return wire.DescribedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(view, topic, i) for i in range(first, end)],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(view: ClusterView, topic: TopicImage, index: int) -> wire.DescribedPartition:
    """Return the description of a partition. As in Kafka it has no error; an unreachable leader is -1."""
    partition = topic.partitions[index]
    shown = view.partition(partition, _WITH_LISTENER_ERRORS)
    return wire.DescribedPartition(
        partition_index=index,
        leader_id=shown.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(shown.replicas),
        isr_nodes=list(shown.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=list(shown.offline),
    )


APIS: tuple[Api, ...] = (
    MessageApi(wire.DescribeClusterRequest, describe_cluster),
    MessageApi(wire.DescribeTopicPartitionsRequest, describe_topic_partitions),
)
