"""Administration of topics: changes go to the leading controller, descriptions come from this node's image.

A change is answered when this node's own image shows it, within the request's timeout, so that a client can use a new
topic at once on the node that created it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests import topics as requests
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.cluster import DescribeClusterRequest, DescribeClusterResponse, QuorumVoter
from tidelog_foundation.requests.metadata import BrokerMetadata, GetMetadataRequest, GetMetadataResponse
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, forward, timeout_ms
from tidelog_quorum.metadata.description import (
    cluster_brokers,
    describe_topic,
    listed_topic,
    topic_metadata,
    unknown_topic,
)
from tidelog_quorum.metadata.image import MetadataImage


async def create_topics(context: NodeContext, request: requests.CreateTopicsRequest) -> requests.CreateTopicsResponse:
    """Create topics at the controller, and wait until this node's image has them.

    Raises:
        TidelogError: The controllers did not answer in time.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(request.timeout_ms)
    response = await forward(context, request)
    created = {t.topic_id for t in response.topics if t.error is None}
    if created and not request.validate_only:
        remaining_s = (deadline_ms - context.clock.monotonic_ms()) / 1000
        await context.metadata.wait_until(lambda image: created <= image.topic_names.keys(), remaining_s)
    return response


async def delete_topics(context: NodeContext, request: requests.DeleteTopicsRequest) -> requests.DeleteTopicsResponse:
    """Delete topics at the controller, and wait until this node's image no longer has them.

    Raises:
        TidelogError: The controllers did not answer in time.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(request.timeout_ms)
    response = await forward(context, request)
    deleted = {t.topic_id for t in response.topics if t.error is None}
    remaining_s = (deadline_ms - context.clock.monotonic_ms()) / 1000
    await context.metadata.wait_until(lambda image: deleted.isdisjoint(image.topic_names), remaining_s)
    return response


async def create_partitions(
    context: NodeContext, request: requests.CreatePartitionsRequest
) -> requests.CreatePartitionsResponse:
    """Add partitions at the controller, and wait until this node's image has them.

    Raises:
        TidelogError: The controllers did not answer in time.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(request.timeout_ms)
    response = await forward(context, request)
    done = {t.name for t in response.topics if t.error is None}
    added = {(t.name, t.count - 1) for t in request.topics if t.name in done}
    if added and not request.validate_only:
        remaining_s = (deadline_ms - context.clock.monotonic_ms()) / 1000
        await context.metadata.wait_until(lambda image: all(_is_there(image, *last) for last in added), remaining_s)
    return response


async def list_topics(context: NodeContext, request: requests.ListTopicsRequest) -> requests.ListTopicsResponse:
    """List the topics by name."""
    image = context.metadata.image
    listings = [listed_topic(t) async for _, t in TimeSlices().of(sorted(image.topics.items()))]
    return requests.ListTopicsResponse(tuple(t for t in listings if request.include_internal or not t.is_internal))


async def describe_topics(
    context: NodeContext, request: requests.DescribeTopicsRequest
) -> requests.DescribeTopicsResponse:
    """Describe the named topics, each once, with their own settings."""
    image = context.metadata.image
    names = dict.fromkeys(request.topic_names)
    return requests.DescribeTopicsResponse(
        tuple([describe_topic(image, name) async for name in TimeSlices().of(names)])
    )


async def describe_cluster(context: NodeContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the nodes, including fenced ones, and the controllers."""
    voters = tuple(QuorumVoter(voter_id, Endpoint(*address)) for voter_id, address in sorted(context.voters.items()))
    brokers = cluster_brokers(context.metadata.image)
    return DescribeClusterResponse(context.cluster_id, context.metadata.controller_id, brokers, voters)


def _is_there(image: MetadataImage, topic_name: str, index: int) -> bool:
    """Return whether a partition exists or can no longer appear."""
    return topic_name not in image.topics or image.partition(topic_name, index) is not None


async def get_metadata(
    context: NodeContext, request: GetMetadataRequest, client: QuotaClient | None = None
) -> GetMetadataResponse:
    """Describe all topics, or the named ones once each, and the unfenced brokers.

    A named topic that does not exist is created in the background if client and node allow it. Until then the answer is
    that it does not exist, as in Kafka, and the client retries. The quota of ``client`` counts the partitions.
    """
    image = context.metadata.image
    names: Iterable[str] = sorted(image.topics) if request.all_topics else dict.fromkeys(request.topics)
    topics = [_topic(image, name) async for name in TimeSlices().of(names)]
    if request.allow_auto_topic_creation and context.topic_creator is not None:
        # An invalid name has a different error.
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = (t.name for t in topics if t.error is not None and t.error.code is unknown)
        context.topic_creator.want(missing, client)
    return GetMetadataResponse(
        cluster_id=context.cluster_id,
        controller_id=context.metadata.controller_id,
        brokers=_brokers(image, context.grpc_listener),
        topics=tuple(topics),
    )


def _topic(image: MetadataImage, name: str) -> requests.TopicMetadata:
    topic = image.topics.get(name)
    return unknown_topic(name) if topic is None else topic_metadata(image, topic)


def _brokers(image: MetadataImage, listener: str | None) -> tuple[BrokerMetadata, ...]:
    found = [(b, b.grpc_endpoint(listener)) for _, b in sorted(image.brokers.items()) if not b.fenced]
    return tuple(BrokerMetadata(node_id=b.broker_id, host=e.host, port=e.port, rack=b.rack) for b, e in found)
