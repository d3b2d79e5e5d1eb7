"""GetMetadata: brokers, topics and leaders of this node's image."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.metadata import BrokerMetadata, GetMetadataRequest, GetMetadataResponse
from tidelog_foundation.requests.topics import TopicMetadata
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import topic_metadata, unknown_topic


async def get_metadata(context: NodeContext, request: GetMetadataRequest) -> GetMetadataResponse:
    """Describe all topics, or the named ones once each, and the unfenced brokers.

    A named topic that does not exist is created in the background if client and node allow it. Until then the answer is
    that it does not exist, as in Kafka, and the client retries.
    """
    image = context.metadata.image
    names: Iterable[str] = sorted(image.topics) if request.all_topics else dict.fromkeys(request.topics)
    topics = [_topic(image, name) async for name in TimeSlices().of(names)]
    if request.allow_auto_topic_creation and context.topic_creator is not None:
        # An invalid name has a different error.
        context.topic_creator.want(t.name for t in topics if _is_unknown(t))
    return GetMetadataResponse(
        cluster_id=context.cluster_id,
        controller_id=context.metadata.controller_id,
        brokers=_brokers(image),
        topics=tuple(topics),
    )


def _is_unknown(topic: TopicMetadata) -> bool:
    return topic.error is not None and topic.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(image: MetadataImage, name: str) -> TopicMetadata:
    topic = image.topics.get(name)
    return unknown_topic(name) if topic is None else topic_metadata(image, topic)


def _brokers(image: MetadataImage) -> tuple[BrokerMetadata, ...]:
    return tuple(
        BrokerMetadata(node_id=b.broker_id, host=b.endpoint.host, port=b.endpoint.port, rack=b.rack)
        for _, b in sorted(image.brokers.items())
        if not b.fenced
    )
