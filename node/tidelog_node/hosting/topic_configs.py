"""The settings of topics on a node: what the metadata says of each, and where it does not, the node's own."""

from __future__ import annotations

from tidelog_quorum.metadata import MetadataImage, TopicConfig, topic_config


class TopicConfigs:
    """Of one image at a time; all partitions of a topic share an object."""

    def __init__(self, defaults: TopicConfig) -> None:
        self._defaults = defaults
        self._has_other_defaults = False
        self._image = MetadataImage()
        self._configs: dict[str, TopicConfig] = {}

    def change_defaults(self, defaults: TopicConfig) -> None:
        """Take over the node's own settings; they hold from the next :meth:`follow` on."""
        self._defaults = defaults
        self._has_other_defaults = True

    def follow(self, image: MetadataImage) -> bool:
        """Take over an image; returns whether all topics are concerned, since the node's own settings have changed."""
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
