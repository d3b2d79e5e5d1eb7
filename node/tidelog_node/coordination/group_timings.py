"""What is set on single groups, taken from one metadata image after the other."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_node.groups.settings import OwnTimings, own_timings
from tidelog_quorum.metadata import ConfigResource, ConfigResourceType, MetadataImage


class GroupTimings:
    """One per node. ``current`` is replaced when anything in it changes, never changed."""

    def __init__(self) -> None:
        self.current: Mapping[str, OwnTimings] = {}
        self._seen: Mapping[ConfigResource, Mapping[str, str]] = {}

    def follow(self, image: MetadataImage) -> None:
        """Take over an image."""
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
