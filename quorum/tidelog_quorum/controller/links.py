"""Creation, change and deletion of cluster links.

A controller connects to no other cluster. A node has asked the source for its cluster id before it forwards a request.

The creation of a link moves the cluster's producer ids into another range: both clusters count from 0, and a producer
with the id of one whose batches are in a mirror topic could lose records as duplicates once the topic is writable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelog_foundation.config.changes import check_value_size
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_BROKER, BrokerEpoch
from tidelog_foundation.link_settings import MAX_LINKS, MAX_NAME_LENGTH, parse_link_settings
from tidelog_foundation.requests.links import (
    AlterClusterLinkRequest,
    AlterClusterLinkResponse,
    ClusterLink,
    CreateClusterLinkRequest,
    CreateClusterLinkResponse,
    DeleteClusterLinkRequest,
    DeleteClusterLinkResponse,
    LinkSetting,
    MirrorState,
)
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.features import CLUSTER_LINKS_VERSION, METADATA_VERSION
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import ClusterLinkRecord, ProducerIdsRecord, RemoveClusterLinkRecord

_ID_SIZE: Final = 16
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_RANGE_BITS: Final = 40
"""A range has 2^40 producer ids."""
_LAST_RANGE: Final = 2 ** (63 - _RANGE_BITS) - 1
_DRAWN_RANGES: Final = 2 ** (62 - _RANGE_BITS)
"""The ranges from which a link's id selects one; above them there is room for ranges that follow one another."""


def create_cluster_link(
    state: ControllerState, request: CreateClusterLinkRequest, now_ms: int
) -> Result[CreateClusterLinkResponse]:
    """Create a link and move the producer ids of this cluster into another range. A repeated request changes nothing.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, INVALID_REQUEST, INVALID_CONFIG; POLICY_VIOLATION: there are too many links;
            DUPLICATE_RESOURCE: the name is in use.
    """
    image = state.latest
    _check_supported(image)
    if len(request.link_id) != _ID_SIZE or not request.source_cluster_id:
        raise error_for(ErrorCode.INVALID_REQUEST, "a link is created by a node, which asks the source for its id")
    response = CreateClusterLinkResponse(request.link_id)
    if request.link_id in image.cluster_links:
        return Result([], response)
    if not _LEGAL_NAME.fullmatch(request.name) or len(request.name) > MAX_NAME_LENGTH:
        text = f"the name of a link has 1 to {MAX_NAME_LENGTH} ASCII alphanumerics, '.', '_' and '-'"
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text}, not {request.name[:MAX_NAME_LENGTH]!r}")
    if any(link.name == request.name for link in image.cluster_links.values()):
        raise error_for(ErrorCode.DUPLICATE_RESOURCE, f"the cluster link {request.name!r} exists")
    if len(image.cluster_links) >= MAX_LINKS:
        text = f"the cluster has {len(image.cluster_links)} links, {MAX_LINKS} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    _check_other_cluster(state, request.source_cluster_id)
    settings = _checked({s.name: s.value for s in request.settings}, len(request.settings))
    link = ClusterLink(request.link_id, request.name, request.source_cluster_id, settings)
    producer_ids = ProducerIdsRecord(NO_BROKER, BrokerEpoch(-1), first_producer_id(image, request.link_id))
    return Result([ClusterLinkRecord(link), producer_ids], response)


def alter_cluster_link(
    state: ControllerState, request: AlterClusterLinkRequest, now_ms: int
) -> Result[AlterClusterLinkResponse]:
    """Change the settings of a link, which must lead to the same cluster as before.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND, INVALID_CONFIG; INVALID_REQUEST: it is another cluster.
    """
    link = find_link(state.latest, request.name)
    if request.source_cluster_id != link.source_cluster_id:
        text = f"the link {link.name!r} is to cluster {link.source_cluster_id}, not to {request.source_cluster_id!r}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    values = {name: value for name, value in link.values.items() if name not in request.removed}
    values |= {s.name: s.value for s in request.settings}
    changed = ClusterLink(link.link_id, link.name, link.source_cluster_id, _checked(values, len(values)))
    return Result([] if changed == link else [ClusterLinkRecord(changed)], AlterClusterLinkResponse())


def delete_cluster_link(
    state: ControllerState, request: DeleteClusterLinkRequest, now_ms: int
) -> Result[DeleteClusterLinkResponse]:
    """Delete a link without mirror topics, apart from stopped ones, which are ordinary topics.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND; INVALID_REQUEST: the link has mirror topics.
    """
    image = state.latest
    link = find_link(image, request.name)
    ids = (i for i, m in image.mirror_topics.items() if m.link_id == link.link_id and m.state != MirrorState.STOPPED)
    mirrors = sorted(image.topic_names[topic_id] for topic_id in ids)
    if mirrors:
        text = f"the link {link.name!r} has {len(mirrors)} mirror topics, such as {mirrors[0]!r}: promote, fail over or"
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text} delete them first")
    return Result([RemoveClusterLinkRecord(link.link_id)], DeleteClusterLinkResponse())


def find_link(image: MetadataImage, name: str) -> ClusterLink:
    """Return the link of a name.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND.
    """
    for link in image.cluster_links.values():
        if link.name == name:
            return link
    raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"there is no cluster link {name[:MAX_NAME_LENGTH]!r}")


def first_producer_id(image: MetadataImage, link_id: bytes) -> int:
    """Return the first producer id of an unused range, which the link's random id selects if it can.

    Raises:
        TidelogError: POLICY_VIOLATION: all ranges are used up.
    """
    used = image.next_producer_id >> _RANGE_BITS
    drawn = int.from_bytes(link_id[:4]) % _DRAWN_RANGES
    selected = drawn if drawn > used else used + 1
    if selected > _LAST_RANGE:
        raise error_for(ErrorCode.POLICY_VIOLATION, f"all producer ids up to {image.next_producer_id} are used up")
    return selected << _RANGE_BITS


def _check_supported(image: MetadataImage) -> None:
    if image.feature_levels.get(METADATA_VERSION, 0) < CLUSTER_LINKS_VERSION:
        text = f"cluster links need metadata.version {CLUSTER_LINKS_VERSION}: upgrade the feature first"
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)


def _check_other_cluster(state: ControllerState, source_cluster_id: str) -> None:
    if source_cluster_id == state.config.cluster_id:
        raise error_for(ErrorCode.INVALID_REQUEST, f"the source is this cluster itself, {source_cluster_id}")


def _checked(settings: Mapping[str, str], count: int) -> tuple[LinkSetting, ...]:
    if len(settings) != count:
        raise error_for(ErrorCode.INVALID_CONFIG, "a setting of the link is named twice")
    try:
        for name, value in settings.items():
            check_value_size(name, value)
        parse_link_settings(settings)
    except ConfigError as error:
        raise _invalid(error) from error
    return tuple(LinkSetting(name, settings[name]) for name in sorted(settings))


def _invalid(error: ConfigError) -> TidelogError:
    return error_for(ErrorCode.INVALID_CONFIG, error.message)
