"""confluent-kafka's clients (librdkafka) as those of a run: over Kafka's protocol, at the nodes' Kafka listeners.

Only this module knows how they differ from Tidelog's:

- their errors, messages and partitions are other classes: errors are translated by number;
- an error on their own side without a number in Tidelog is _FAIL with its name in the text;
- a consumer cannot assign without a ``group.id``: one without a group gets one that nobody joins;
- ``request.timeout.ms`` of a consumer is ``socket.timeout.ms``;
- a consumer that is dropped without ``close()`` neither leaves its group nor commits; :meth:`abandon` uses that;
- the generation is in the bytes that a transactional producer gets;
- a commit, and every call that waits for it, may never end once brokers have been gone from the metadata (librdkafka's
  issues 3740 and 5511): after a timeout the caller gets a fatal error, and the consumer is abandoned;
- a commit is repeated after later ones, so the committed offset may go back for a moment;
- when records time out it raises its producer epoch, and sends records again in the new one that may be stored in the
  old one (librdkafka's issue 4953);
- a consumer that is assigned partitions anew while it waits for unstable offsets forgets that it waits, and begins as
  ``auto.offset.reset`` says (``rd_kafka_assignment_apply_offsets``, up to 2.16; it does so beside Apache Kafka too):
  with ``error``, it says so;
- a delivery report has the error of the last attempt, whatever the outcome of earlier ones.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

import confluent_kafka

from tidelog.message import Message, TopicPartition
from tidelog_chaos.workload.library import (
    Committed,
    Delivered,
    Library,
    Rebalanced,
    SendOutcome,
    send_outcome_of_last_attempt,
)
from tidelog_chaos.workload.own_thread import OwnThread
from tidelog_foundation.errors import ConfigError, ErrorCode, KafkaError, TidelogError, error_for

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NO_GROUP: Final = {"group.id": "tidelog-chaos-no-group", "enable.auto.commit": False}
_NOWHERE: Final = logging.getLogger(f"{__name__}.librdkafka")
_NOWHERE.addHandler(logging.NullHandler())
_NOWHERE.propagate = False
_METADATA: Final = b"CGMDv2:"
"""The first bytes of a member's metadata, before the generation (rd_kafka_consumer_group_metadata_write)."""
_GENERATION: Final = struct.Struct("=i")
_HANGS_S: Final = 60.0
"""A call that takes longer never ends: all attempts of its requests together take less."""


class ConfluentProducer:
    """A producer, used by one thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        with _translated():
            self._producer = confluent_kafka.Producer({**_silence(config), **config})

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Delivered) -> None:
        """Queue a record."""

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            on_delivery(translate_error(error), _message(message))

        with _translated():
            self._producer.produce(topic, value, partition=partition, on_delivery=delivered)

    def poll(self, timeout: float) -> int:
        """Call callbacks."""
        return self._producer.poll(timeout)

    def flush(self, timeout: float) -> int:
        """Wait for pending records."""
        return self._producer.flush(timeout)

    def purge(self) -> None:
        """Drop pending records."""
        self._producer.purge()

    def close(self, timeout: float) -> None:
        """Flush; a producer ends when nothing refers to it any more."""
        try:
            self._producer.flush(timeout)
        finally:
            del self._producer


class ConfluentTransactions(ConfluentProducer):
    """A transactional producer, used by one thread. A call that times out continues; the same call waits for it."""

    def init_transactions(self, timeout: float) -> None:
        """Fence earlier producers with the same id, and wait."""
        with _translated():
            self._producer.init_transactions(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        with _translated():
            self._producer.begin_transaction()

    def send_offsets_to_transaction(self, positions: list[TopicPartition], group_metadata: Any, timeout: float) -> None:
        """Commit offsets with the transaction, and wait."""
        with _translated():
            self._producer.send_offsets_to_transaction(_theirs(positions), group_metadata, timeout)

    def commit_transaction(self, timeout: float) -> None:
        """Commit, and wait."""
        with _translated():
            self._producer.commit_transaction(timeout)

    def abort_transaction(self, timeout: float) -> None:
        """Abort, and wait."""
        with _translated():
            self._producer.abort_transaction(timeout)

    def close(self, timeout: float) -> None:
        """Flush; a fenced producer has nothing to flush, and says so with an exception."""
        with contextlib.suppress(confluent_kafka.KafkaException):
            super().close(timeout)


class ConfluentConsumer:
    """A consumer, used by one thread; after a fatal error only :meth:`abandon` is left."""

    def __init__(self, config: Mapping[str, Any], on_commit: Committed | None) -> None:
        given = _consumer_config(config)
        if on_commit is not None:
            given["on_commit"] = self._reporting(on_commit)
        self._is_left_behind = False
        self._thread = OwnThread("librdkafka", _HANGS_S)
        with _translated():
            self._consumer = confluent_kafka.Consumer(given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def generation(self) -> int:
        """The generation or the member epoch, -1 if not a member."""
        metadata = bytes(self._consumer.consumer_group_metadata())
        assert metadata.startswith(_METADATA), metadata
        return int(_GENERATION.unpack_from(metadata, len(_METADATA))[0])

    def subscribe(self, topics: list[str], on_assign: Rebalanced, on_revoke: Rebalanced, on_lost: Rebalanced) -> None:
        """Subscribe to topics in the group."""
        with _translated():
            self._consumer.subscribe(
                topics,
                on_assign=self._calling(on_assign),
                on_revoke=self._calling(on_revoke),
                on_lost=self._calling(on_lost),
            )

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        with _translated():
            self._consumer.incremental_assign(_theirs(partitions))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        with _translated():
            self._consumer.incremental_unassign(_theirs(partitions))

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Return new messages; _TIMED_OUT, fatal, if a callback's commit does not end."""
        consumer = self._consumer
        with _translated():
            return [_message(m) for m in self._done("consume", lambda: consumer.consume(num_messages, timeout=timeout))]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last consumed record of each partition."""
        with _translated():
            return _ours(self._consumer.position(_theirs(partitions)))

    def commit(self, *, asynchronous: Literal[False]) -> list[TopicPartition]:
        """Commit the consumed offsets, and wait; _TIMED_OUT, fatal, if that does not end."""
        consumer = self._consumer
        with _translated():
            return _committed(None, self._done("commit", lambda: consumer.commit(asynchronous=asynchronous)))

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return the group's offsets, stable ones with read_committed."""
        with _translated():
            return _ours(self._consumer.committed(_theirs(partitions), timeout=timeout))

    def seek(self, partition: TopicPartition) -> None:
        """Continue a partition at an offset."""
        with _translated():
            self._consumer.seek(_theirs([partition])[0])

    def consumer_group_metadata(self) -> Any:
        """Return the member's identity for a producer's transaction."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Commit, if that is automatic, and leave the group; abandon the consumer if that does not end."""
        if self._is_left_behind:
            return
        with _translated(), _logging_timeouts():
            self._done("close", self._consumer.close)
            self._thread.end()

    def abandon(self) -> None:
        """End like a consumer that nothing refers to any more (RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE)."""
        owners = [self._consumer]
        del self._consumer
        if not self._is_left_behind:
            with _logging_timeouts():
                self._done("end", owners.clear)
                self._thread.end()

    def _done(self, what: str, call: Callable[[], T]) -> T:
        """Return the result of a call that may not end; raise _TIMED_OUT, fatal, if it does not."""
        try:
            return self._thread.run(call)
        except TimeoutError:
            self._is_left_behind = True
            text = f"librdkafka was asked to {what} and has not done it in {_HANGS_S:.0f} s"
            raise TidelogError(KafkaError(ErrorCode._TIMED_OUT, text, fatal=True)) from None

    def _calling(self, callback: Rebalanced) -> Callable[[Any, list[confluent_kafka.TopicPartition]], None]:
        def rebalanced(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
            if not self._is_left_behind:
                callback(self, _ours(partitions))

        return rebalanced

    def _reporting(
        self, on_commit: Committed
    ) -> Callable[[confluent_kafka.KafkaError | None, list[confluent_kafka.TopicPartition]], None]:
        def reported(
            error: confluent_kafka.KafkaError | None, partitions: list[confluent_kafka.TopicPartition]
        ) -> None:
            if not self._is_left_behind:
                found = translate_error(error)
                on_commit(found, _committed(found, partitions))

        return reported


class ConfluentLibrary(Library):
    """confluent-kafka's clients. A commit that a loading or missing coordinator refused is repeated, maybe after a
    later one.
    """

    is_kafkas = True
    # Records wait longer than a fault lasts; see the module about those that time out.
    producer_defaults: ClassVar[Mapping[str, Any]] = {"message.timeout.ms": 120_000}
    reorders_commits = True

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the package and of its library."""
        return {"confluent-kafka": version("confluent-kafka"), "librdkafka": confluent_kafka.libversion()[0]}

    def check_producer(self, config: Mapping[str, Any]) -> None:
        """Create a producer without a server."""
        with _refused():
            ConfluentProducer(config).close(0)

    def check_consumer(self, config: Mapping[str, Any]) -> None:
        """Create a consumer without a server."""
        with _refused():
            ConfluentConsumer(config, None).abandon()

    def producer(self, config: Mapping[str, Any]) -> ConfluentProducer:
        """Return a new producer."""
        return ConfluentProducer(config)

    def transactional_producer(self, config: Mapping[str, Any]) -> ConfluentTransactions:
        """Return a new producer."""
        return ConfluentTransactions(config)

    def consumer(self, config: Mapping[str, Any], on_commit: Committed | None = None) -> ConfluentConsumer:
        """Return a new consumer."""
        return ConfluentConsumer(config, on_commit)

    def outcome(self, code: ErrorCode) -> SendOutcome:
        """Return the outcome; librdkafka may report any error for a record that is possibly persisted."""
        return send_outcome_of_last_attempt(code)


@contextlib.contextmanager
def _logging_timeouts() -> Iterator[None]:
    try:
        yield
    except TidelogError as error:
        if error.code is not ErrorCode._TIMED_OUT:
            raise
        logger.warning("A consumer is left behind: %s", error.message)


def _silence(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that keep librdkafka from logging to the standard error, unless ``debug`` asks for that.

    It would log a line for each broken connection, and faults break many; errors are reported as well.
    """
    return {} if "debug" in config else {"log_level": 0, "logger": _NOWHERE}


def _consumer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    given = {**_silence(config), **({} if "group.id" in config else _NO_GROUP), **config}
    if "request.timeout.ms" in given:
        given.setdefault("socket.timeout.ms", given.pop("request.timeout.ms"))
    return given


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise TidelogError for confluent-kafka's exceptions."""
    try:
        yield
    except confluent_kafka.KafkaException as error:
        found = translate_error(error.args[0])
        assert found is not None
        raise _exception(found) from error


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Raise ConfigError for settings that librdkafka refuses."""
    try:
        yield
    except (TidelogError, TypeError, ValueError) as error:
        text = error.message if isinstance(error, TidelogError) else str(error)
        raise ConfigError(f"confluent-kafka: {text}") from error


def _exception(error: KafkaError) -> TidelogError:
    found = error_for(error.error_code(), error.str())
    return type(found)(error)


def translate_error(error: confluent_kafka.KafkaError | None) -> KafkaError | None:
    """Return Tidelog's form of an error of confluent-kafka; None stays None."""
    if error is None:
        return None
    code, text = error.code(), error.str()
    row = ErrorCode.of(code)
    if row.code != code:
        row = ErrorCode._FAIL if code < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        text = f"{error.name()}: {text}"
    is_fatal = error.fatal() or row is ErrorCode._FATAL
    return KafkaError(row, text, is_fatal, error.retriable(), error.txn_requires_abort())


def _message(message: confluent_kafka.Message) -> Message:
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        error=translate_error(message.error()),
    )


def _theirs(partitions: Sequence[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(at.topic, at.partition, at.offset) for at in partitions]


def _ours(partitions: Sequence[confluent_kafka.TopicPartition]) -> list[TopicPartition]:
    found = []
    for at in partitions:
        ours = TopicPartition(at.topic, at.partition, at.offset)
        ours.error = translate_error(at.error)
        found.append(ours)
    return found


def _committed(error: KafkaError | None, partitions: Sequence[confluent_kafka.TopicPartition]) -> list[TopicPartition]:
    """Return the committed offsets; librdkafka's list also has partitions without one, and may lack an error."""
    found = [at for at in _ours(partitions) if at.offset >= 0]
    for at in found:
        at.error = at.error or error
    return found
