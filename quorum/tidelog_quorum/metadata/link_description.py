"""The cluster links and mirror topics of an image, as the APIs describe them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.link_settings import is_secret
from tidelog_foundation.requests.links import (
    ClusterLinkDescription,
    DescribeMirrorTopicsRequest,
    DescribeMirrorTopicsResponse,
    LinkSetting,
    ListClusterLinksRequest,
    ListClusterLinksResponse,
    MirrorState,
    MirrorTopicDescription,
)
from tidelog_quorum.metadata.image import MetadataImage

HIDDEN: Final = "[hidden]"
"""The value of a secret in a description."""


def list_cluster_links(image: MetadataImage, request: ListClusterLinksRequest) -> ListClusterLinksResponse:
    """Return all links, by name, without their secrets."""
    mirrors = Counter(m.link_id for m in image.mirror_topics.values() if m.state is not MirrorState.STOPPED)
    links = sorted(image.cluster_links.values(), key=lambda link: link.name)
    return ListClusterLinksResponse(
        tuple(
            ClusterLinkDescription(
                link.name,
                link.link_id,
                link.source_cluster_id,
                tuple(LinkSetting(s.name, HIDDEN) if is_secret(s.name) else s for s in link.settings),
                mirrors[link.link_id],
            )
            for link in links
        )
    )


def describe_mirror_topics(image: MetadataImage, request: DescribeMirrorTopicsRequest) -> DescribeMirrorTopicsResponse:
    """Return the mirror topics, by name, without the state of their partitions, which only their leaders know.

    Raises:
        TidelogError: RESOURCE_NOT_FOUND: there is no link of that name.
    """
    names = {link.link_id: link.name for link in image.cluster_links.values()}
    if request.link_name and request.link_name not in names.values():
        raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"there is no cluster link {request.link_name!r}")
    found = []
    for topic_id, mirror in image.mirror_topics.items():
        topic = image.topics[image.topic_names[topic_id]]
        link_name = names[mirror.link_id]
        if request.link_name in ("", link_name):
            found.append(MirrorTopicDescription(topic.name, link_name, mirror.state, len(topic.partitions)))
    return DescribeMirrorTopicsResponse(tuple(sorted(found, key=lambda t: t.topic)))
