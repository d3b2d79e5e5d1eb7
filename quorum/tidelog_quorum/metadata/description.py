"""The image as the APIs describe it: topics with their partitions, and brokers."""

from __future__ import annotations

from tidelog.v1 import admin_service_pb2, common_pb2, log_service_pb2
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_BROKER, BrokerId
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_quorum.metadata.codec import listener_message
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.registrations import PartitionRegistration

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The name of the controllers' log; no topic has that name."""


def topic_metadata(image: MetadataImage, topic: TopicImage) -> log_service_pb2.TopicMetadata:
    """Return a topic with its partitions ordered by index."""
    return log_service_pb2.TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition_metadata(image, i, p) for i, p in sorted(topic.partitions.items())],
    )


def unknown_topic(name: str) -> log_service_pb2.TopicMetadata:
    """Return the answer for a topic that does not exist or has an invalid name."""
    try:
        validate_topic_name(name)
        problem = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    except TidelogError as invalid:
        problem = invalid
    error = common_pb2.Error(code=problem.code.code, message=problem.message)
    return log_service_pb2.TopicMetadata(name=name, error=error)


def cluster_brokers(image: MetadataImage) -> list[admin_service_pb2.ClusterBroker]:
    """Return every registered broker, ordered by id."""
    return [
        admin_service_pb2.ClusterBroker(
            broker_id=b.broker_id,
            host=b.endpoint.host,
            port=b.endpoint.port,
            rack=b.rack,
            is_fenced=b.fenced,
            listeners=map(listener_message, b.listeners),
        )
        for _, b in sorted(image.brokers.items())
    ]


def _is_offline(image: MetadataImage, partition: PartitionRegistration, replica: BrokerId) -> bool:
    broker = image.brokers.get(replica)
    return broker is None or broker.fenced or not broker.has_online(partition.directory_of(replica))


def _partition_metadata(
    image: MetadataImage, index: int, partition: PartitionRegistration
) -> log_service_pb2.PartitionMetadata:
    error = None
    if partition.leader == NO_BROKER:
        isr = ", ".join(map(str, partition.isr))
        error = common_pb2.Error(
            code=ErrorCode.LEADER_NOT_AVAILABLE.code, message=f"no broker of the ISR ({isr}) is alive"
        )
    offline = [b for b in partition.replicas if _is_offline(image, partition, b)]
    return log_service_pb2.PartitionMetadata(
        index=index,
        error=error,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=offline,
    )
