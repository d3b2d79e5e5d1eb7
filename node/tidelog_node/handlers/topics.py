"""Administration of topics: changes go to the leading controller, descriptions come from this node's image.

A change is answered when this node's own image shows it, within the request's timeout, so that a client can use a new
topic at once on the node that created it.
"""

from __future__ import annotations

from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import common_pb2
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, timeout_ms
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import INTERNAL_TOPICS, cluster_brokers, topic_metadata, unknown_topic


async def create_topics(context: NodeContext, request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse:
    """Create topics at the controller, and wait until this node's image has them.

    Raises:
        TidelogError: The controllers did not answer in time.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(request.timeout_ms)
    response = await context.controller.create_topics(request, timeout_ms(request.timeout_ms) / 1000)
    created = {t.topic_id for t in response.topics if not t.HasField("error")}
    if created and not request.validate_only:
        remaining_s = (deadline_ms - context.clock.monotonic_ms()) / 1000
        await context.metadata.wait_until(lambda image: created <= image.topic_names.keys(), remaining_s)
    return response


async def delete_topics(context: NodeContext, request: pb.DeleteTopicsRequest) -> pb.DeleteTopicsResponse:
    """Delete topics at the controller, and wait until this node's image no longer has them.

    Raises:
        TidelogError: The controllers did not answer in time.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(request.timeout_ms)
    response = await context.controller.delete_topics(request, timeout_ms(request.timeout_ms) / 1000)
    deleted = {t.topic_id for t in response.topics if not t.HasField("error")}
    remaining_s = (deadline_ms - context.clock.monotonic_ms()) / 1000
    await context.metadata.wait_until(lambda image: deleted.isdisjoint(image.topic_names), remaining_s)
    return response


async def create_partitions(context: NodeContext, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsResponse:
    """Add partitions at the controller, and wait until this node's image has them.

    Raises:
        TidelogError: The controllers did not answer in time.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(request.timeout_ms)
    response = await context.controller.create_partitions(request, timeout_ms(request.timeout_ms) / 1000)
    done = {t.name for t in response.topics if not t.HasField("error")}
    added = {(t.name, t.count - 1) for t in request.topics if t.name in done}
    if added and not request.validate_only:
        remaining_s = (deadline_ms - context.clock.monotonic_ms()) / 1000
        await context.metadata.wait_until(lambda image: all(_is_there(image, *last) for last in added), remaining_s)
    return response


async def list_topics(context: NodeContext, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
    """List the topics by name."""
    image = context.metadata.image
    listings = [
        pb.TopicListing(name=t.name, topic_id=t.topic_id, is_internal=t.name in INTERNAL_TOPICS)
        async for _, t in TimeSlices().of(sorted(image.topics.items()))
    ]
    return pb.ListTopicsResponse(topics=[t for t in listings if request.include_internal or not t.is_internal])


async def describe_topics(context: NodeContext, request: pb.DescribeTopicsRequest) -> pb.DescribeTopicsResponse:
    """Describe the named topics, each once, with their own settings."""
    image = context.metadata.image
    names = dict.fromkeys(request.topic_names)
    return pb.DescribeTopicsResponse(topics=[_describe(image, name) async for name in TimeSlices().of(names)])


async def describe_cluster(context: NodeContext, request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
    """Describe the nodes, including fenced ones, and the controllers."""
    voters = [
        pb.QuorumVoter(voter_id=voter_id, endpoint=common_pb2.Endpoint(host=host, port=port))
        for voter_id, (host, port) in sorted(context.voters.items())
    ]
    return pb.DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=context.metadata.controller_id,
        brokers=cluster_brokers(context.metadata.image),
        voters=voters,
    )


def _is_there(image: MetadataImage, topic_name: str, index: int) -> bool:
    """Return whether a partition exists or can no longer appear."""
    return topic_name not in image.topics or image.partition(topic_name, index) is not None


def _describe(image: MetadataImage, name: str) -> pb.TopicDescription:
    topic = image.topics.get(name)
    if topic is None:
        return pb.TopicDescription(topic=unknown_topic(name))
    configs = [common_pb2.ConfigEntry(name=n, value=v) for n, v in sorted(image.config_of_topic(name).items())]
    return pb.TopicDescription(topic=topic_metadata(image, topic), configs=configs)
