"""Whose producers and consumers a run uses: Tidelog's own, over gRPC, or others that have the same methods.

What workloads call is :class:`RunProducer` and :class:`RunConsumer`, with Tidelog's messages, partitions and errors.
What another library does differently is in a module of its own, which is loaded when a run asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from tidelog.cluster.config import read_settings
from tidelog.consumer import Consumer
from tidelog.consumer import config as consumer_settings
from tidelog.consumer.assigned import AssignedConsumer
from tidelog.message import Message, TopicPartition
from tidelog.producer import Producer
from tidelog.producer import config as producer_settings
from tidelog_chaos.workload.outcomes import SendOutcome, send_outcome
from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError, ErrorCode, KafkaError

TIDELOG, CONFLUENT = "tidelog", "confluent-kafka"
LIBRARIES = (TIDELOG, CONFLUENT)
"""The names by which :func:`load_library` knows them."""

Delivered = Callable[[KafkaError | None, Message], object]
Rebalanced = Callable[[Any, Sequence[TopicPartition]], object]
Committed = Callable[[KafkaError | None, Sequence[TopicPartition]], object]

_SOMEWHERE = {"bootstrap.servers": "localhost:9094"}


class RunProducer(Protocol):
    """A producer, whose methods are :class:`tidelog.Producer`'s."""

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Delivered) -> None:
        """Take a record; raises TidelogError, or BufferError when the queue is full: it is not sent then."""

    def poll(self, timeout: float) -> int:
        """Call callbacks for up to ``timeout`` seconds."""

    def flush(self, timeout: float) -> int:
        """Wait for what is under way, up to ``timeout`` seconds."""

    def purge(self) -> None:
        """Give up what is under way."""

    def close(self, timeout: float) -> object:
        """End, after a flush of up to ``timeout`` seconds."""


class RunConsumer(Protocol):
    """A consumer, whose methods are :class:`tidelog.Consumer`'s but for the last two."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def subscribe(self, topics: list[str], on_assign: Rebalanced, on_revoke: Rebalanced, on_lost: Rebalanced) -> None:
        """Share these topics with the group."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions too."""

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions no longer."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Return what came; raises TidelogError."""

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset behind what was consumed last of each."""

    def commit(self, *, asynchronous: Literal[False]) -> list[TopicPartition]:
        """Commit what was consumed, and wait; raises TidelogError, as with _NO_OFFSET for nothing."""

    def close(self) -> None:
        """Commit, where it does so by itself, and leave the group."""

    def abandon(self) -> None:
        """End without leaving the group or committing anything: what a killed process leaves behind."""

    @property
    def generation(self) -> int:
        """The generation or the member epoch that it is in, -1 as no member."""


class Library(Protocol):
    """Makes producers and consumers by settings with dotted names; it has no state, and any thread may call."""

    @property
    def is_kafkas(self) -> bool:
        """Whether it speaks Kafka's protocol, so that it wants the addresses of the listeners for it."""

    @property
    def producer_defaults(self) -> Mapping[str, Any]:
        """Settings of its producers that a run has other than for Tidelog's."""

    @property
    def reorders_commits(self) -> bool:
        """Whether a consumer may send a commit again that was not answered, behind a later one."""

    def versions(self) -> Mapping[str, str]:
        """Return the versions of what is used beside Tidelog, by name."""

    def check_producer(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that a producer does not take; without ``bootstrap.servers``."""

    def check_consumer(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that a consumer does not take; without ``bootstrap.servers``."""

    def producer(self, config: Mapping[str, Any]) -> RunProducer:
        """Return a new producer."""

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> RunConsumer:
        """Return a new consumer; without a ``group.id`` it assigns and commits nothing."""

    def outcome(self, code: ErrorCode) -> SendOutcome:
        """Return how a send ends whose delivery was reported with an error."""


class _TidelogConsumer(Consumer):
    @property
    def generation(self) -> int:
        return self.consumer_group_metadata().generation_id

    def abandon(self) -> None:
        AssignedConsumer.close(self)


class TidelogLibrary:
    """Tidelog's own clients."""

    @property
    def is_kafkas(self) -> bool:
        """They speak gRPC."""
        return False

    @property
    def producer_defaults(self) -> Mapping[str, Any]:
        """Return none."""
        return {}

    @property
    def reorders_commits(self) -> bool:
        """Commits are carried out in the order of the calls."""
        return False

    def versions(self) -> Mapping[str, str]:
        """Return none."""
        return {}

    def check_producer(self, config: Mapping[str, Any]) -> None:
        """Parse it as the producer does."""
        settings = read_settings(producer_settings.ProducerConfig, {**_SOMEWHERE, **config}, "P")
        parsed = parse_config(producer_settings.ProducerConfig, settings)
        parsed.resolve_idempotence("enable.idempotence" in config)

    def check_consumer(self, config: Mapping[str, Any]) -> None:
        """Parse it as the consumer does."""
        given = read_settings(consumer_settings.ConsumerConfig, {**_SOMEWHERE, **config}, "C")
        parse_config(consumer_settings.ConsumerConfig, given).resolve(given)

    def producer(self, config: Mapping[str, Any]) -> Producer:
        """Return a new producer."""
        return Producer(config)

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> _TidelogConsumer:
        """Return a new consumer."""
        return _TidelogConsumer({**config, **({} if on_commit is None else {"on_commit": on_commit})})

    def outcome(self, code: ErrorCode) -> SendOutcome:
        """Tidelog's producer tells what certainly was not stored by its error."""
        return send_outcome(code)


def load_library(name: str) -> Library:
    """Return the library of a name.

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
