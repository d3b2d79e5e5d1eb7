"""The metadata of a cluster: the records of its log, their codec, and the image that they build."""

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_quorum.metadata.batches import cut_batch, encode_batches, frame_batches, image_from_batches, read_frames
from tidelog_quorum.metadata.codec import decode_batch, encode_batch, from_message, to_message
from tidelog_quorum.metadata.delta import MetadataDelta, PartitionChange, delta_between
from tidelog_quorum.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    uses_elr,
)
from tidelog_quorum.metadata.image import ConfigResource, MetadataImage, MetadataImageBuilder, TopicImage
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
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
from tidelog_quorum.metadata.topic_config import (
    broker_settings,
    cluster_topic_defaults,
    effective_topic_config,
    min_insync_replicas,
    override_topic_config,
    topic_config,
    topic_config_from,
    unclean_leader_election_enable,
)
