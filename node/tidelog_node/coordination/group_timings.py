"""The timings set on single groups, updated from metadata images."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_node.groups.settings import OwnTimings, own_timings
from tidelog_quorum.metadata import ConfigResource, ConfigResourceType, MetadataImage


class GroupTimings:
    """One per node. ``current`` is immutable and replaced on every change."""

    def __init__(self) -> None:
        self.current: Mapping[str, OwnTimings] = {}
        self._seen: Mapping[ConfigResource, Mapping[str, str]] = {}

    def follow(self, image: MetadataImage) -> None:
        """Apply an image."""
        if image.configs is self._seen:
            return
        self._seen = image.configs
        found = {
            resource.name: own_timings(settings)
            for resource, settings in image.configs.items()
            if resource.type is ConfigResourceType.GROUP
        }
        if found != self.current:
            self.current = found
