"""Consumers of confluent-kafka."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Self

import confluent_kafka

from tidelog.message import Message, TopicPartition
from tidelog_chaos.workload.confluent.calls import GRACE_S, ClientCalls
from tidelog_chaos.workload.confluent.values import (
    our_message,
    our_partitions,
    silence,
    their_partitions,
    translate_error,
    translated,
)
from tidelog_chaos.workload.library import Committed, Rebalanced
from tidelog_foundation.errors import KafkaError

_NO_GROUP: Final = {"group.id": "tidelog-chaos-no-group", "enable.auto.commit": False}
_METADATA: Final = b"CGMDv2:"
"""The first bytes of a member's metadata, before the generation (rd_kafka_consumer_group_metadata_write)."""
_GENERATION: Final = struct.Struct("=i")


class ConfluentConsumer:
    """A consumer, used by one thread; after a fatal error only :meth:`abandon` is left."""

    def __init__(self, config: Mapping[str, Any], on_commit: Committed | None) -> None:
        given = _consumer_config(config)
        if on_commit is not None:
            given["on_commit"] = self._reporting(on_commit)
        self._calls = ClientCalls()
        with translated():
            self._consumer = confluent_kafka.Consumer(given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def generation(self) -> int:
        """The generation or the member epoch, -1 if not a member, or no more after a call that does not end."""
        if self._calls.is_left_behind:
            return -1
        metadata = bytes(self.consumer_group_metadata())
        assert metadata.startswith(_METADATA), metadata
        return int(_GENERATION.unpack_from(metadata, len(_METADATA))[0])

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with others from now on. Thread-safe."""
        self._consumer.set_sasl_credentials(username, password)

    def subscribe(self, topics: list[str], on_assign: Rebalanced, on_revoke: Rebalanced, on_lost: Rebalanced) -> None:
        """Subscribe to topics in the group."""
        consumer = self._consumer
        assigned, revoked, lost = self._calling(on_assign), self._calling(on_revoke), self._calling(on_lost)
        self._calls.run(
            "subscribe", lambda: consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)
        )

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        consumer, theirs = self._consumer, their_partitions(partitions)
        self._calls.run("assign partitions", lambda: consumer.incremental_assign(theirs))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        consumer, theirs = self._consumer, their_partitions(partitions)
        self._calls.run("unassign partitions", lambda: consumer.incremental_unassign(theirs))

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Return new messages; _TIMED_OUT, fatal, if a callback's commit does not end."""
        consumer = self._consumer
        found = self._calls.run("consume", lambda: consumer.consume(num_messages, timeout=timeout))
        return [our_message(message) for message in found]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last consumed record of each partition."""
        consumer, theirs = self._consumer, their_partitions(partitions)
        return our_partitions(self._calls.run("return its position", lambda: consumer.position(theirs)))

    def commit(self, *, asynchronous: Literal[False]) -> list[TopicPartition]:
        """Commit the consumed offsets, and wait; _TIMED_OUT, fatal, if that does not end."""
        consumer = self._consumer
        return _committed(None, self._calls.run("commit", lambda: consumer.commit(asynchronous=asynchronous)))

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return the group's offsets, stable ones with read_committed."""
        consumer, theirs, what = self._consumer, their_partitions(partitions), "return committed offsets"
        return our_partitions(
            self._calls.run(what, lambda: consumer.committed(theirs, timeout=timeout), timeout + GRACE_S)
        )

    def seek(self, partition: TopicPartition) -> None:
        """Continue a partition at an offset."""
        consumer, [theirs] = self._consumer, their_partitions([partition])
        self._calls.run("seek", lambda: consumer.seek(theirs))

    def consumer_group_metadata(self) -> Any:
        """Return the member's identity for a producer's transaction."""
        return self._calls.run("return its group metadata", self._consumer.consumer_group_metadata)

    def close(self) -> None:
        """Commit, if that is automatic, and leave the group; abandon the consumer if that does not end."""
        self._calls.end("close", self._consumer.close)

    def abandon(self) -> None:
        """End like a consumer that nothing refers to any more (RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE)."""
        owners = [self._consumer]
        del self._consumer
        self._calls.end("end", owners.clear)

    def _calling(self, callback: Rebalanced) -> Callable[[Any, list[confluent_kafka.TopicPartition]], None]:
        def rebalanced(_: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
            if not self._calls.is_left_behind:
                callback(self, our_partitions(partitions))

        return rebalanced

    def _reporting(
        self, on_commit: Committed
    ) -> Callable[[confluent_kafka.KafkaError | None, list[confluent_kafka.TopicPartition]], None]:
        def reported(
            error: confluent_kafka.KafkaError | None, partitions: list[confluent_kafka.TopicPartition]
        ) -> None:
            if not self._calls.is_left_behind:
                found = translate_error(error)
                on_commit(found, _committed(found, partitions))

        return reported


def _consumer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    given = {**silence(config), **({} if "group.id" in config else _NO_GROUP), **config}
    if "request.timeout.ms" in given:
        given.setdefault("socket.timeout.ms", given.pop("request.timeout.ms"))
    return given


def _committed(error: KafkaError | None, partitions: Sequence[confluent_kafka.TopicPartition]) -> list[TopicPartition]:
    """Return the committed offsets; librdkafka's list also has partitions without one, and may lack an error."""
    found = [at for at in our_partitions(partitions) if at.offset >= 0]
    for at in found:
        at.error = at.error or error
    return found
