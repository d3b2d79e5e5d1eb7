"""The parts of a node that handlers use, the form of errors in responses, and requests to the leading controller.

A handler is a function of a request and this context. It does not depend on the listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeVar

from tidelog_foundation.authorization import AclStore
from tidelog_foundation.config import DynamicBrokerConfig
from tidelog_foundation.config.endpoints import GRPC
from tidelog_foundation.config.settings import SettingInfo
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.requests.request import Request
from tidelog_node.coordination import GroupCoordinator, TransactionCoordinator
from tidelog_node.event_loop import Clock, DecodingThread
from tidelog_node.fetching import CurrentLeader
from tidelog_node.handlers.cold_reads import ColdReads
from tidelog_node.handlers.fetch_sessions import FetchSessions
from tidelog_node.handlers.link_sources import Links
from tidelog_node.handlers.produce_admission import Turns
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.partitions import MetadataCache, Partition, PartitionRegistry, ReplicationThrottles
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.replication import ReplicaSelector
from tidelog_node.telemetry.client_telemetry import ClientTelemetry
from tidelog_node.transactions.verification import Answer, Question

DEFAULT_TIMEOUT_MS = 30_000
R = TypeVar("R")


class AdminController(Protocol):
    """Requests of administrators to the leading controller. Each raises TidelogError if the call as a whole failed."""

    async def ask(self, request: Request[R], timeout_s: float) -> R:
        """Return the answer to a request."""

    async def change_quorum(self, request: Request[R], timeout_s: float) -> R:
        """Return the answer to a request to change the voters, which is sent once."""


class NodeSettings(Protocol):
    """The node's configuration: the settings of its file under their own names, and the current settings."""

    @property
    def file(self) -> Mapping[str, str]:
        """The settings of the properties file."""

    @property
    def infos(self) -> Sequence[SettingInfo]:
        """All settings."""

    @property
    def current(self) -> DynamicBrokerConfig:
        """The current settings. The class also has fixed settings."""


class TopicCreator(Protocol):
    """The creation of topics for clients; None if ``auto.create.topics.enable`` is false."""

    def want(self, names: Iterable[str], client: QuotaClient | None = None) -> None:
        """Request the creation of topics in the background. The quota of ``client`` counts their partitions."""


class ProducerIds(Protocol):
    """A source of producer ids."""

    async def next_id(self) -> int:
        """Return a unique id.

        Raises:
            TidelogError: No id is available.
        """


class Verifier(Protocol):
    """The questions of partition leaders to transaction coordinators."""

    async def ask(self, question: Question) -> Answer:
        """Return the errors of a question's partitions; a partition without one belongs to the transaction."""


@dataclass(frozen=True, slots=True)
class VerificationSettings:
    """The settings of the verification of transactions.

    A question is repeated for a time while the last transaction of a producer is being completed. Without ``enable``,
    partitions are added to transactions but not verified to be in them.
    """

    enable: bool = True
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 100


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The parts of a node that its handlers use.

    ``fetch_max_bytes`` limits the records of a fetch response. ``voters`` tracks the quorum.
    """

    broker_id: BrokerId
    cluster_id: str
    rack: str
    partitions: PartitionRegistry
    metadata: MetadataCache
    controller: AdminController
    voters: Mapping[int, tuple[str, int]]
    clock: Clock
    fetch_max_bytes: int
    throttles: ReplicationThrottles
    settings: NodeSettings
    producer_ids: ProducerIds
    topic_creator: TopicCreator | None = None
    replica_selector: ReplicaSelector = field(default_factory=ReplicaSelector)
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    response_budget: ResponseBudget = field(default_factory=ResponseBudget)
    cold_reads: ColdReads = field(default_factory=ColdReads)
    produce_turns: Turns[Partition] = field(default_factory=Turns)
    transaction_turns: Turns[str] = field(default_factory=Turns)
    """The produce requests that wait for the verification of a transaction, by transactional id."""
    verifier: Verifier | None = None
    """The questions to transaction coordinators; None for a node that cannot ask, such as a simulated one."""
    verification: Callable[[], VerificationSettings] = VerificationSettings
    """Returns the current settings."""
    decoding: DecodingThread = field(default_factory=DecodingThread)
    groups: GroupCoordinator | None = None
    """The coordinator of groups, to which markers of their offsets go; None for a node that coordinates none."""
    transactions: TransactionCoordinator | None = None
    """The coordinator of transactions; None for a node that coordinates none, such as a simulated one."""
    controller_listener: str = GRPC
    """The name of the controllers' listener, which Kafka's clients see."""
    grpc_listener: str | None = None
    """The gRPC listener over which the clients of these handlers reach nodes; None if nodes have only one."""
    token_key: str | None = field(default=None, repr=False)
    """The secret key of delegation tokens; None in a cluster without them."""
    quotas: ClientQuotas = field(default_factory=lambda: ClientQuotas(lambda: 0, lambda: 0))
    """The quotas of the node's clients; the default has no limits."""
    has_authorizer: bool = False
    """True if an authorizer decides about requests, so that ACLs have an effect."""
    telemetry: ClientTelemetry | None = None
    """The receiver of client metrics; None for a node without one, such as a simulated one."""
    links: Links | None = None
    """The cluster links; None for a node without them, such as a simulated one."""
    acl_store: AclStore | None = None
    """The ACLs of an authorizer that keeps its own; None if they are in the metadata log."""

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition that this node hosts.

        Raises:
            TidelogError: NOT_LEADER_OR_FOLLOWER if other nodes host it, UNKNOWN_TOPIC_OR_PARTITION if it does not
                exist, KAFKA_STORAGE_ERROR if its log directory is offline.
        """
        partition = self.partitions.get(topic, index)
        if partition is not None:
            return partition
        self.partitions.check_online(topic, index)
        if self.metadata.image.partition(topic, index) is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        text = f"node {self.broker_id} does not hold {topic}-{index}"
        raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def current_leader(self, topic: str, index: int) -> CurrentLeader | None:
        """Return the leader of a partition as far as this node knows (KIP-951).

        A local replica knows it before the whole image is published (KafkaApis.getCurrentLeader).
        """
        partition = self.partitions.get(topic, index)
        if partition is not None:
            return CurrentLeader(partition.state.leader_id, partition.state.leader_epoch)
        registration = self.metadata.image.partition(topic, index)
        if registration is None:
            return None
        return CurrentLeader(registration.leader, registration.leader_epoch)


_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def check_topic_id(partition: Partition, topic: str, topic_id: bytes) -> None:
    """Raise INCONSISTENT_TOPIC_ID if the partition's topic does not have the requested id; an empty id fits all."""
    if topic_id and topic_id != partition.topic_id:
        text = f"topic {topic} has id {partition.topic_id.hex()}, {topic_id.hex()} was asked for"
        raise error_for(ErrorCode.INCONSISTENT_TOPIC_ID, text)


def leader_hint(context: NodeContext, error: TidelogError, topic: str, index: int) -> CurrentLeader | None:
    """Return the leader to name with ``error``, or None if it does not help."""
    return context.current_leader(topic, index) if error.code in _WITH_LEADER else None


def timeout_ms(requested_ms: int) -> int:
    """Return a request's timeout in milliseconds, or the default if it has none."""
    return requested_ms if requested_ms > 0 else DEFAULT_TIMEOUT_MS


async def forward(context: NodeContext, request: Request[R]) -> R:
    """Return the leading controller's answer, within the request's ``timeout_ms`` if it has one.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.ask(request, _timeout_s(request))


async def forward_change(context: NodeContext, request: Request[R]) -> tuple[R, float]:
    """Return the leading controller's answer to a change, and the rest of the request's timeout in seconds.

    In the rest, the caller may wait until this node has the change.

    Raises:
        TidelogError: See :func:`forward`.
    """
    deadline_ms = context.clock.monotonic_ms() + timeout_ms(getattr(request, "timeout_ms", 0))
    response = await forward(context, request)
    return response, (deadline_ms - context.clock.monotonic_ms()) / 1000


async def change_quorum(context: NodeContext, request: Request[R]) -> R:
    """Change the voters of the quorum, and return when the change is committed.

    Raises:
        TidelogError: The controllers did not answer in time, or refused. After NOT_CONTROLLER and REQUEST_TIMED_OUT the
            change may have been made.
    """
    return await context.controller.change_quorum(request, _timeout_s(request))


def _timeout_s(request: Request[R]) -> float:
    return timeout_ms(getattr(request, "timeout_ms", 0)) / 1000
