"""The client library of a run: Tidelog's own, over gRPC, or another with the same methods.

Workloads call :class:`RunProducer` and :class:`RunConsumer`, with Tidelog's messages, partitions and errors. A separate
module, imported on demand, handles the differences of another library.

An error of a send means that it certainly did not happen, or that this is unknown. As in Jepsen's tests of Kafka,
``fail`` is for errors before or instead of an append. Everything else is ``info``, even an error of the last of several
attempts, because an earlier one may have been stored.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from tidelog.admin import AdminClient
from tidelog.cluster.config import read_settings
from tidelog.consumer import Consumer
from tidelog.consumer import config as consumer_settings
from tidelog.consumer.assigned import AssignedConsumer
from tidelog.message import Message, TopicPartition
from tidelog.producer import Producer
from tidelog.producer import config as producer_settings
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError, ErrorCode, KafkaError, TidelogError

TIDELOG, CONFLUENT = "tidelog", "confluent-kafka"
LIBRARIES = (TIDELOG, CONFLUENT)
"""The names for :func:`load_library`."""

Delivered = Callable[[KafkaError | None, Message], object]
Rebalanced = Callable[[Any, Sequence[TopicPartition]], object]
Committed = Callable[[KafkaError | None, Sequence[TopicPartition]], object]

_SESSION_TIMEOUT_S = 5.0
_SOMEWHERE = {"bootstrap.servers": "localhost:9094"}


class RunProducer(Protocol):
    """A producer with the methods of :class:`tidelog.Producer`."""

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Delivered) -> None:
        """Queue a record; raise TidelogError, or BufferError if the queue is full: the record is then not sent."""

    def poll(self, timeout: float) -> int:
        """Call callbacks for up to ``timeout`` seconds."""

    def flush(self, timeout: float) -> int:
        """Wait for pending records, up to ``timeout`` seconds."""

    def purge(self) -> None:
        """Drop pending records."""

    def close(self, timeout: float) -> object:
        """End, after a flush of up to ``timeout`` seconds."""


class RunTransactions(RunProducer, Protocol):
    """A transactional producer with the methods of :class:`tidelog.Producer`; all calls raise TidelogError.

    A call that times out has a retriable error and is made again.
    """

    def init_transactions(self, timeout: float) -> object:
        """Fence earlier producers with the same id, and wait."""

    def begin_transaction(self) -> object:
        """Begin a transaction."""

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float
    ) -> object:
        """Commit offsets with the transaction, and wait."""

    def commit_transaction(self, timeout: float) -> object:
        """Commit, and wait."""

    def abort_transaction(self, timeout: float) -> object:
        """Abort, and wait."""


class RunConsumer(Protocol):
    """A consumer with the methods of :class:`tidelog.Consumer`, and two more."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def subscribe(self, topics: list[str], on_assign: Rebalanced, on_revoke: Rebalanced, on_lost: Rebalanced) -> None:
        """Subscribe to topics in the group."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Return new messages; raise TidelogError."""

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last consumed record of each partition."""

    def commit(self, *, asynchronous: Literal[False]) -> list[TopicPartition]:
        """Commit the consumed offsets, and wait; raise TidelogError, such as _NO_OFFSET if there are none."""

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return the group's offsets, stable ones with read_committed; raise TidelogError."""

    def seek(self, partition: TopicPartition) -> None:
        """Continue a partition at an offset; raise TidelogError, for example if it is not assigned."""

    def consumer_group_metadata(self) -> Any:
        """Return the member's identity for a producer's transaction."""

    def close(self) -> None:
        """Commit, if that is automatic, and leave the group."""

    def abandon(self) -> None:
        """End without leaving the group or committing, as if the process were killed."""

    @property
    def generation(self) -> int:
        """The generation or the member epoch, -1 if not a member."""


class RunSession(Protocol):
    """A connected client that can tell whether the cluster lets it in, and what it sees."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def topics(self) -> int | None:
        """Return the number of topics that the user may see, or None if the login is refused; raise TidelogError."""


class WithCredentials(Protocol):
    """A client with a name and a password."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with others from now on."""


C = TypeVar("C", bound=WithCredentials)


class Logins:
    """The latest credentials of the clients' user, and the clients that must learn of new ones. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: tuple[str, str] | None = None
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()

    def replace(self, username: str, password: str) -> None:
        """Tell all clients of a new password."""
        with self._lock:
            self._latest = username, password
            clients = list(self._clients)
        for client in clients:
            _tell(client, username, password)

    def opened(self, client: C, config: Mapping[str, Any]) -> C:
        """Remember a new client, and tell it of the latest password if its settings have a user."""
        if "sasl.username" not in config:
            return client
        with self._lock:
            self._clients.add(client)
            latest = self._latest
        if latest is not None:
            _tell(client, *latest)
        return client


def _tell(client: WithCredentials, username: str, password: str) -> None:
    # A client that ends at the same time needs no password any more.
    with contextlib.suppress(TidelogError, RuntimeError, AttributeError):
        client.set_sasl_credentials(username, password)


class Library(ABC):
    """Creates producers and consumers from settings with dotted names; thread-safe."""

    is_kafkas: ClassVar[bool] = False
    """True if the library speaks Kafka's protocol and needs the addresses of the Kafka listeners."""
    producer_defaults: ClassVar[Mapping[str, Any]] = {}
    """Producer settings of a run that differ from those for Tidelog's."""
    reorders_commits: ClassVar[bool] = False
    """True if a consumer may repeat an unanswered commit after a later one."""

    def __init__(self) -> None:
        self._logins = Logins()

    def replace_credentials(self, username: str, password: str) -> None:
        """Tell all clients, and those to come, of a new password of their user."""
        self._logins.replace(username, password)

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the packages other than Tidelog, by name."""
        return {}

    @abstractmethod
    def session(self, config: Mapping[str, Any]) -> RunSession:
        """Return a client that connects as a user."""

    @abstractmethod
    def check_producer(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that a producer refuses; without ``bootstrap.servers``."""

    @abstractmethod
    def check_consumer(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that a consumer refuses; without ``bootstrap.servers``."""

    @abstractmethod
    def producer(self, config: Mapping[str, Any]) -> RunProducer:
        """Return a new producer."""

    @abstractmethod
    def transactional_producer(self, config: Mapping[str, Any]) -> RunTransactions:
        """Return a new producer with a ``transactional.id``."""

    @abstractmethod
    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> RunConsumer:
        """Return a new consumer; without a ``group.id`` it assigns and commits nothing."""

    @abstractmethod
    def outcome(self, code: ErrorCode) -> SendOutcome:
        """Return the outcome of a send whose delivery report has an error."""


class _TidelogConsumer(Consumer):
    @property
    def generation(self) -> int:
        return self.consumer_group_metadata().generation_id

    def abandon(self) -> None:
        AssignedConsumer.close(self)


class _TidelogSession(AdminClient):
    def topics(self) -> int | None:
        try:
            return len(self.list_topics(timeout=_SESSION_TIMEOUT_S).topics)
        except TidelogError as error:
            if error.code is ErrorCode._AUTHENTICATION:
                return None
            raise


class TidelogLibrary(Library):
    """Tidelog's own clients, which speak gRPC and execute commits in the order of the calls."""

    def check_producer(self, config: Mapping[str, Any]) -> None:
        """Parse the settings as the producer does."""
        settings = read_settings(producer_settings.ProducerConfig, {**_SOMEWHERE, **config}, "P")
        parsed = parse_config(producer_settings.ProducerConfig, settings)
        parsed.resolve_idempotence("enable.idempotence" in config)

    def check_consumer(self, config: Mapping[str, Any]) -> None:
        """Parse the settings as the consumer does."""
        given = read_settings(consumer_settings.ConsumerConfig, {**_SOMEWHERE, **config}, "C")
        parse_config(consumer_settings.ConsumerConfig, given).resolve(given)

    def session(self, config: Mapping[str, Any]) -> _TidelogSession:
        """Return an admin client."""
        return _TidelogSession(config)

    def producer(self, config: Mapping[str, Any]) -> Producer:
        """Return a new producer."""
        return self._logins.opened(Producer(config), config)

    def transactional_producer(self, config: Mapping[str, Any]) -> Producer:
        """Return a new producer."""
        return self._logins.opened(Producer(config), config)

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> _TidelogConsumer:
        """Return a new consumer."""
        given = {**config, **({} if on_commit is None else {"on_commit": on_commit})}
        return self._logins.opened(_TidelogConsumer(given), config)

    def outcome(self, code: ErrorCode) -> SendOutcome:
        """Return the outcome; the error of Tidelog's producer tells which records certainly were not stored."""
        return send_outcome(code)


def load_library(name: str) -> Library:
    """Return the library with a name.

    Raises:
        ConfigError: There is none, or it is not installed.
    """
    if name == TIDELOG:
        return TidelogLibrary()
    if name != CONFLUENT:
        raise ConfigError(f'"{name}" is not a client; there are {", ".join(LIBRARIES)}')
    try:
        from tidelog_chaos.workload.confluent import ConfluentLibrary
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise ConfigError(f"the client {name} is not installed: pip install {name}") from None
    return ConfluentLibrary()


SendOutcome = Literal["fail", "info"]

_NEVER_TAKEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode._QUEUE_FULL,
        ErrorCode._INVALID_ARG,
    }
)
"""Errors that each attempt to send a record would get."""
_CERTAIN = _NEVER_TAKEN | {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode._UNKNOWN_PARTITION,
    ErrorCode._UNKNOWN_TOPIC,
}


def send_outcome(code: ErrorCode) -> SendOutcome:
    """Return the outcome of a send that was reported with an error."""
    return "fail" if code in _CERTAIN else "info"


def send_outcome_of_last_attempt(code: ErrorCode) -> SendOutcome:
    """Return the outcome of a send whose producer reports only the error of the last attempt.

    Earlier attempts may have stored the record. librdkafka, for example, reports OUT_OF_ORDER_SEQUENCE_NUMBER for
    records that it calls possibly persisted (``rd_kafka_handle_idempotent_Produce_error``), and an unknown topic for
    records whose first attempt was not answered.
    """
    return "fail" if code in _NEVER_TAKEN else "info"
