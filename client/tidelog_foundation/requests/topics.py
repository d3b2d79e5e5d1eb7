"""Creation, deletion, extension and description of topics."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.requests.request import Request

NO_TOPIC_ID = TopicId(b"")


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of one partition. The first is the preferred leader."""

    partition_index: int = 0
    broker_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    """A topic to create. The numbers are -1 for the cluster's defaults, and with ``assignments``."""

    name: str
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: tuple[ReplicaAssignment, ...] = ()
    configs: tuple[ConfigEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatableTopicResult:
    """The outcome for one topic to create."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    error: TidelogError | None = None
    num_partitions: int = 0
    replication_factor: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    """The outcome for each topic, and the delay of the client by its quota."""

    topics: tuple[CreatableTopicResult, ...] = ()
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """A request to create topics. With ``validate_only``, it creates none.

    ``request_id`` has 8 random bytes, the same in every retry. The ids of the topics begin with them, so that a topic
    created by an earlier attempt counts as created. Without an id, retries are not recognized.
    """

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: int = 0
    validate_only: bool = False
    request_id: bytes = b""
    quota_client: QuotaClient | None = None


@dataclass(frozen=True, slots=True)
class DeletableTopicResult:
    """The outcome for one topic. ``name`` is empty if the request named an unknown or duplicate id."""

    name: str = ""
    topic_id: TopicId = NO_TOPIC_ID
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    """The outcome for each topic, and the delay of the client by its quota."""

    topics: tuple[DeletableTopicResult, ...] = ()
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """A request to delete topics, by name or by id (KIP-516)."""

    topic_names: tuple[str, ...] = ()
    timeout_ms: int = 0
    topic_ids: tuple[TopicId, ...] = ()
    quota_client: QuotaClient | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic's new number of partitions, and the replicas of each added one in order.

    Without ``assignments`` the controller chooses. Their partition indexes are not used.
    """

    name: str
    count: int
    assignments: tuple[ReplicaAssignment, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePartitionsResult:
    """The outcome for one topic."""

    name: str
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse:
    """The outcome for each topic, and the delay of the client by its quota."""

    topics: tuple[CreatePartitionsResult, ...] = ()
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """A request to add partitions to topics (KIP-195)."""

    topics: tuple[NewPartitions, ...] = ()
    timeout_ms: int = 0
    validate_only: bool = False
    quota_client: QuotaClient | None = None


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic without its partitions."""

    name: str
    topic_id: TopicId
    is_internal: bool


@dataclass(frozen=True, slots=True)
class ListTopicsResponse:
    """The topics, ordered by name."""

    topics: tuple[TopicListing, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTopicsRequest(Request[ListTopicsResponse]):
    """A request for all topics."""

    include_internal: bool = False


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition with its leader, NO_BROKER and LEADER_NOT_AVAILABLE without one, and its replicas.

    The eligible leader replicas and the last known ones are outside of the ISR (KIP-966).
    """

    index: int
    error: TidelogError | None = None
    leader_id: BrokerId = NO_BROKER
    leader_epoch: LeaderEpoch = NO_EPOCH
    replica_nodes: tuple[BrokerId, ...] = ()
    isr_nodes: tuple[BrokerId, ...] = ()
    offline_replicas: tuple[BrokerId, ...] = ()
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic with its partitions, ordered by index."""

    name: str
    error: TidelogError | None = None
    topic_id: TopicId = NO_TOPIC_ID
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its own settings, without defaults."""

    topic: TopicMetadata
    configs: tuple[ConfigEntry, ...] = ()
    authorized_operations: int | None = None
    """The permitted operations, one bit each, if an authorizer has been asked for them."""


@dataclass(frozen=True, slots=True)
class DescribeTopicsResponse:
    """The topics, each once."""

    topics: tuple[TopicDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeTopicsRequest(Request[DescribeTopicsResponse]):
    """A request for topics with their settings."""

    topic_names: tuple[str, ...] = ()
    include_authorized_operations: bool = False
