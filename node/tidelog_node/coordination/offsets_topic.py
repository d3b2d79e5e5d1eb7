"""The topic __consumer_offsets: its name, its creation, and the partition of each group."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.records import CODECS
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.topics import CreatableTopic

OFFSETS_TOPIC = "__consumer_offsets"
_INT32, _SIGN = 2**32, 2**31


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


def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition of a group's records among ``partitions``, as Kafka's GroupCoordinatorService does."""
    number = java_hash(group_id)
    return (0 if number == -_SIGN else abs(number)) % partitions


def java_hash(text: str) -> int:
    """Return Java's String.hashCode over the UTF-16 units, an int32."""
    number = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) % _INT32
    return number - _INT32 if number >= _SIGN else number
