"""The image as the APIs describe it: topics with their partitions, and brokers."""

from __future__ import annotations

from collections import Counter

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_BROKER, BrokerId
from tidelog_foundation.requests.acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog_foundation.requests.cluster import ClusterBroker
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tidelog_foundation.requests.scram import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialInfo,
    UserScramCredentialsDescription,
)
from tidelog_foundation.requests.topics import (
    ListTopicsRequest,
    ListTopicsResponse,
    PartitionMetadata,
    TopicDescription,
    TopicListing,
    TopicMetadata,
)
from tidelog_foundation.sasl.scram_credentials import MECHANISMS, CredentialKey
from tidelog_foundation.topic_names import validate_topic_name
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.quota_filter import QuotaFilter, describe_entity
from tidelog_quorum.metadata.registrations import PartitionRegistration

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The name of the controllers' log; no topic has that name."""


def topic_metadata(image: MetadataImage, topic: TopicImage) -> TopicMetadata:
    """Return a topic with its partitions ordered by index."""
    return TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_partition_metadata(image, i, p) for i, p in sorted(topic.partitions.items())),
    )


def unknown_topic(name: str) -> TopicMetadata:
    """Return the answer for a topic that does not exist or has an invalid name."""
    try:
        validate_topic_name(name)
    except TidelogError as invalid:
        return TopicMetadata(name, invalid.detached())
    return TopicMetadata(name, error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"))


def describe_topic(image: MetadataImage, name: str) -> TopicDescription:
    """Return a topic with its own settings."""
    topic = image.topics.get(name)
    if topic is None:
        return TopicDescription(unknown_topic(name))
    configs = tuple(ConfigEntry(n, v) for n, v in sorted(image.config_of_topic(name).items()))
    return TopicDescription(topic_metadata(image, topic), configs)


def listed_topic(topic: TopicImage) -> TopicListing:
    """Return a topic without its partitions."""
    return TopicListing(topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS)


def list_topics(image: MetadataImage, request: ListTopicsRequest) -> ListTopicsResponse:
    """List the topics by name."""
    listings = (listed_topic(topic) for _, topic in sorted(image.topics.items()))
    return ListTopicsResponse(tuple(t for t in listings if request.include_internal or not t.is_internal))


def cluster_brokers(image: MetadataImage) -> tuple[ClusterBroker, ...]:
    """Return every registered broker, ordered by id."""
    return tuple(
        ClusterBroker(
            broker_id=b.broker_id,
            host=b.endpoint.host,
            port=b.endpoint.port,
            rack=b.rack,
            is_fenced=b.fenced,
            listeners=b.listeners,
        )
        for _, b in sorted(image.brokers.items())
    )


def describe_acls(image: MetadataImage, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the ACLs that match the request's filter."""
    return DescribeAclsResponse(tuple(filter(request.filter.matches, image.acl_ids)))


def describe_user_scram_credentials(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return the credentials of the request's users, or of all, without secrets (KIP-554)."""
    counts = Counter(request.users) or Counter({key.user for key in image.scram_credentials})
    found = (scram_credentials_of(image, user, count) for user, count in sorted(counts.items()))
    return DescribeUserScramCredentialsResponse(tuple(found))


def scram_credentials_of(image: MetadataImage, user: str, count: int) -> UserScramCredentialsDescription:
    """Return the credentials of a user that a request names ``count`` times; more than once is an error."""
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return UserScramCredentialsDescription(user, error_for(ErrorCode.DUPLICATE_RESOURCE, text))
    found = ((m, image.scram_credentials.get(CredentialKey(user, m))) for m in MECHANISMS.values())
    infos = tuple(ScramCredentialInfo(m, credential.iterations) for m, credential in found if credential is not None)
    if infos:
        return UserScramCredentialsDescription(user, None, infos)
    text = f"Attempt to describe a user credential that does not exist: {user}"
    return UserScramCredentialsDescription(user, error_for(ErrorCode.RESOURCE_NOT_FOUND, text))


def describe_client_quotas(image: MetadataImage, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Return the client quotas that match the request's filter.

    Raises:
        TidelogError: INVALID_REQUEST or UNSUPPORTED_VERSION: The filter is invalid.
    """
    wanted = QuotaFilter(request.components, strict=request.strict)
    found = [describe_entity(each, limits) for each, limits in image.client_quotas.items() if wanted.matches(each)]
    return DescribeClientQuotasResponse(tuple(found))


def _is_offline(image: MetadataImage, partition: PartitionRegistration, replica: BrokerId) -> bool:
    broker = image.brokers.get(replica)
    return broker is None or broker.fenced or not broker.has_online(partition.directory_of(replica))


def _partition_metadata(image: MetadataImage, index: int, partition: PartitionRegistration) -> PartitionMetadata:
    error = None
    if partition.leader == NO_BROKER:
        isr = ", ".join(map(str, partition.isr))
        error = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"no broker of the ISR ({isr}) is alive")
    offline = tuple(b for b in partition.replicas if _is_offline(image, partition, b))
    return PartitionMetadata(
        index=index,
        error=error,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=offline,
    )
