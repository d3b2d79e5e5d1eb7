"""Cluster links and mirror topics: this node asks the source and forwards changes to the leading controller."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LinkId
from tidelog_foundation.link_settings import COPIED_SETTINGS, parse_link_settings
from tidelog_foundation.requests import links as requests
from tidelog_foundation.requests.links import ClusterLink, LinkSetting, MirrorOperation, MirrorState
from tidelog_node.handlers.context import NodeContext, forward, forward_change
from tidelog_node.handlers.link_sources import Links, Source, SourceMetadata
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.link_description import describe_mirror_topics as topics_of_image
from tidelog_quorum.metadata.link_description import list_cluster_links as links_of_image

_ID_SIZE: Final = 16
_OF_CONNECTIONS: Final = frozenset(
    (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
"""Errors of connections to a source, beside those without a code of Kafka's."""


async def create_cluster_link(
    context: NodeContext, request: requests.CreateClusterLinkRequest
) -> requests.CreateClusterLinkResponse:
    """Create a link after the source has answered, and wait until this node's image has it.

    Raises:
        TidelogError: INVALID_CONFIG: a setting is wrong, or the source cannot be reached with them; an error of the
            source; an error of the leading controller.
    """
    source = await _ask_source(context, {s.name: s.value for s in request.settings})
    link_id = LinkId(os.urandom(_ID_SIZE))
    change = replace(request, link_id=link_id, source_cluster_id=source.cluster_id)
    response, remaining_s = await forward_change(context, change)
    await context.metadata.wait_until(lambda image: link_id in image.cluster_links, remaining_s)
    return response


async def alter_cluster_link(
    context: NodeContext, request: requests.AlterClusterLinkRequest
) -> requests.AlterClusterLinkResponse:
    """Change a link's settings after the source has answered with the new ones.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND, INVALID_CONFIG; an error of the source; an error of the leading controller.
    """
    values = {n: v for n, v in _link(context.metadata.image, request.name).values.items() if n not in request.removed}
    source = await _ask_source(context, values | {s.name: s.value for s in request.settings})
    return await forward(context, replace(request, source_cluster_id=source.cluster_id))


async def delete_cluster_link(
    context: NodeContext, request: requests.DeleteClusterLinkRequest
) -> requests.DeleteClusterLinkResponse:
    """Delete a link, and wait until this node's image lacks it.

    Raises:
        TidelogError: An error of the leading controller.
    """
    response, remaining_s = await forward_change(context, request)
    await context.metadata.wait_until(
        lambda image: all(link.name != request.name for link in image.cluster_links.values()), remaining_s
    )
    return response


async def list_cluster_links(
    context: NodeContext, request: requests.ListClusterLinksRequest
) -> requests.ListClusterLinksResponse:
    """Return the links of this node's image, without their secrets."""
    return links_of_image(context.metadata.image, request)


async def create_mirror_topic(
    context: NodeContext, request: requests.CreateMirrorTopicRequest
) -> requests.CreateMirrorTopicResponse:
    """Create a mirror of a topic as the source describes it, and wait until this node's image has it.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND; UNKNOWN_TOPIC_OR_PARTITION: the source has no such topic; another error of the
            source; an error of the leading controller.
    """
    link = _link(context.metadata.image, request.link_name)
    async with _source(context, link.values) as source:
        found = await source.metadata([request.topic])
        _check_cluster(link, found)
        if request.topic not in found.topics:
            raise found.errors.get(request.topic) or error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        settings = await source.topic_settings(request.topic)
    topic = found.topics[request.topic]
    copied = tuple(LinkSetting(n, v) for n, v in sorted(settings.items()) if n in COPIED_SETTINGS)
    change = replace(request, topic_id=topic.topic_id, num_partitions=len(topic.partitions), settings=copied)
    response, remaining_s = await forward_change(context, change)
    await context.metadata.wait_until(lambda image: topic.topic_id in image.mirror_topics, remaining_s)
    return response


async def alter_mirror_topics(
    context: NodeContext, request: requests.AlterMirrorTopicsRequest
) -> requests.AlterMirrorTopicsResponse:
    """Promote, fail over, pause or resume mirror topics. A promotion may still be in progress when this returns.

    Raises:
        TidelogError: INVALID_REQUEST, or another error of the leading controller.
    """
    if request.operation is MirrorOperation.FAIL:
        raise error_for(ErrorCode.INVALID_REQUEST, "only nodes report that a mirror has failed")
    return await forward(context, request)


async def describe_mirror_topics(
    context: NodeContext, request: requests.DescribeMirrorTopicsRequest
) -> requests.DescribeMirrorTopicsResponse:
    """Return the mirror topics, each with its partitions that this node leads.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND: there is no link of that name.
    """
    found = topics_of_image(context.metadata.image, request)
    return requests.DescribeMirrorTopicsResponse(
        tuple(replace(topic, partitions=tuple(_partitions(context, topic))) for topic in found.topics)
    )


def _partitions(
    context: NodeContext, topic: requests.MirrorTopicDescription
) -> list[requests.MirrorPartitionDescription]:
    described = []
    for index in range(topic.num_partitions if topic.state is not MirrorState.STOPPED else 0):
        partition = context.partitions.get(topic.topic, index)
        if partition is None or partition.state.leader is None:
            continue
        mirror = None if context.links is None else context.links.mirror(partition.topic_id, index)
        described.append(
            requests.MirrorPartitionDescription(
                index,
                partition.state.leader_epoch,
                partition.log.log_end_offset,
                partition.high_watermark,
                -1 if mirror is None else mirror.source_high_watermark,
                None if mirror is None else mirror.error,
            )
        )
    return described


async def _ask_source(context: NodeContext, settings: dict[str, str]) -> SourceMetadata:
    """Return the answer of a source to a client with these settings."""
    async with _source(context, settings) as source:
        return await source.metadata(())


@contextlib.asynccontextmanager
async def _source(context: NodeContext, settings: dict[str, str]) -> AsyncIterator[Source]:
    """Open a source while the context lasts.

    A failed connection or login there is INVALID_CONFIG: by its own code, the caller would take it for one of its
    connection to this node, and try again.
    """
    links = _links(context)
    try:
        config = parse_link_settings(settings)
        source = links.open_source(config)
    except ConfigError as error:
        raise error_for(ErrorCode.INVALID_CONFIG, error.message) from error
    try:
        yield source
    except TidelogError as error:
        if error.code.code >= 0 and error.code not in _OF_CONNECTIONS:
            raise
        text = f"the source at {config.bootstrap_servers} cannot be reached with these settings: {error}"
        raise error_for(ErrorCode.INVALID_CONFIG, text) from error
    finally:
        source.close()


def _check_cluster(link: ClusterLink, found: SourceMetadata) -> None:
    if found.cluster_id != link.source_cluster_id:
        text = f"link {link.name!r} is to cluster {link.source_cluster_id}, {found.cluster_id} answers at its addresses"
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)


def _link(image: MetadataImage, name: str) -> ClusterLink:
    for link in image.cluster_links.values():
        if link.name == name:
            return link
    raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"there is no cluster link {name!r}")


def _links(context: NodeContext) -> Links:
    if context.links is None:
        raise TidelogError(ErrorCode.UNSUPPORTED_VERSION, "this node has no cluster links")
    return context.links
