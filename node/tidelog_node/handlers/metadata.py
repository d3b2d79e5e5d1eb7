"""GetMetadata: brokers, topics and leaders of this node's image."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import topic_metadata, unknown_topic


async def get_metadata(context: NodeContext, request: pb.GetMetadataRequest) -> pb.GetMetadataResponse:
    """Describe all topics, or the named ones once each, and the unfenced brokers.

    A named topic that does not exist is created in the background if client and node allow it. Until then the answer is
    that it does not exist, as in Kafka, and the client retries.
    """
    image = context.metadata.image
    names: Iterable[str] = sorted(image.topics) if request.all_topics else dict.fromkeys(request.topics)
    topics = [_topic(image, name) async for name in TimeSlices().of(names)]
    if request.allow_auto_topic_creation and context.topic_creator is not None:
        # An invalid name has a different error.
        context.topic_creator.want(t.name for t in topics if t.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code)
    return pb.GetMetadataResponse(
        cluster_id=context.cluster_id,
        controller_id=context.metadata.controller_id,
        brokers=_brokers(image),
        topics=topics,
    )


def _topic(image: MetadataImage, name: str) -> pb.TopicMetadata:
    topic = image.topics.get(name)
    return unknown_topic(name) if topic is None else topic_metadata(image, topic)


def _brokers(image: MetadataImage) -> list[pb.BrokerMetadata]:
    return [
        pb.BrokerMetadata(node_id=b.broker_id, host=b.endpoint.host, port=b.endpoint.port, rack=b.rack)
        for _, b in sorted(image.brokers.items())
        if not b.fenced
    ]
