"""The topic __consumer_offsets: its name and its creation."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.records import CODECS
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.topics import CreatableTopic

OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class OffsetsTopicSettings:
    """The settings for the creation of __consumer_offsets (``offsets.topic.*``) and the codec of its records."""

    num_partitions: int
    replication_factor: int
    segment_bytes: int
    compression_codec: int

    @property
    def compression(self) -> str:
        """The codec's name."""
        return CODECS[self.compression_codec]

    def creatable(self) -> CreatableTopic:
        """Return the creation request to the controller (GroupCoordinatorService.groupMetadataTopicConfigs)."""
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }
        return CreatableTopic(
            name=OFFSETS_TOPIC,
            num_partitions=self.num_partitions,
            replication_factor=self.replication_factor,
            configs=tuple(ConfigEntry(name, value) for name, value in configs.items()),
        )
