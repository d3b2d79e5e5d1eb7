"""The metadata of a cluster: the records of its log, their codec, and the image they add up to."""

from tidelog.config import TopicConfig
from tidelog_quorum.metadata.codec import decode_batch, encode_batch, from_message, to_message
from tidelog_quorum.metadata.delta import MetadataDelta, PartitionChange, delta_between
from tidelog_quorum.metadata.image import ConfigResource, MetadataImage, TopicImage
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    ConfigResourceType,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration
from tidelog_quorum.metadata.topic_config import override_topic_config, topic_config

__all__ = [
    "BrokerRegistration",
    "BrokerRegistrationChangeRecord",
    "ConfigRecord",
    "ConfigResource",
    "ConfigResourceType",
    "Endpoint",
    "FeatureLevelRecord",
    "FeatureRange",
    "MetadataDelta",
    "MetadataImage",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChange",
    "PartitionChangeRecord",
    "PartitionRecord",
    "PartitionRegistration",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RemoveTopicRecord",
    "TopicConfig",
    "TopicImage",
    "TopicRecord",
    "UnregisterBrokerRecord",
    "decode_batch",
    "delta_between",
    "encode_batch",
    "from_message",
    "override_topic_config",
    "to_message",
    "topic_config",
]
