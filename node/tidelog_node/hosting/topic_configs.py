"""Topic settings on a node: those in the metadata, with the node's own settings as defaults."""

from __future__ import annotations

from tidelog_foundation.config import TopicConfig
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.topic_config import topic_config


class TopicConfigs:
    """The settings of one image at a time. All partitions of a topic share an object."""

    def __init__(self, defaults: TopicConfig) -> None:
        self._defaults = defaults
        self._has_other_defaults = False
        self._image = MetadataImage()
        self._configs: dict[str, TopicConfig] = {}

    def change_defaults(self, defaults: TopicConfig) -> None:
        """Change the defaults. They apply from the next :meth:`follow` on."""
        self._defaults = defaults
        self._has_other_defaults = True

    def follow(self, image: MetadataImage) -> bool:
        """Change to an image. Return True if it may concern all topics because the node's own settings changed."""
        self._image = image
        self._configs.clear()
        concerns_all, self._has_other_defaults = self._has_other_defaults, False
        return concerns_all

    def of(self, topic: str) -> TopicConfig:
        """Return a topic's settings."""
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = topic_config(self._image, topic, self._defaults)
        return config
