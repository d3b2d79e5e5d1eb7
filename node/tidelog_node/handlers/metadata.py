"""GetMetadata: brokers, topics and leaders, as this node's image has them."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_node.handlers.context import NodeContext
from tidelog_node.partitions.time_slices import TimeSlices
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import topic_metadata, unknown_topic


async def get_metadata(context: NodeContext, request: pb.GetMetadataRequest) -> pb.GetMetadataResponse:
    """Describe all topics, or those named, each once; only brokers that are not fenced are shown.

    A named topic that is not there is created in the background if client and node allow it. Until it is there the
    answer is that it is not, as Kafka's is: the client asks again.
    """
    image = context.metadata.image
    names: Iterable[str] = sorted(image.topics) if request.all_topics else dict.fromkeys(request.topics)
    topics = [_topic(image, name) async for name in TimeSlices().of(names)]
    if request.allow_auto_topic_creation and context.topic_creator is not None:
        # A name that no topic can have is answered with another error.
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
