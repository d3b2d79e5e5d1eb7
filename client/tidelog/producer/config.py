"""The producer's settings, with Kafka's and librdkafka's names and defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tidelog.cluster.config import MAX_INT32, TrackingConfig
from tidelog.producer.core.partitioner import PARTITIONERS
from tidelog_foundation.config import at_least, between, one_of, parse_config, setting
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.records.compression import check_level

MAX_IDEMPOTENT_IN_FLIGHT = 5
"""The number of batches of a producer that leaders remember."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(TrackingConfig):
    """The settings for batching, sending and giving up records."""

    acks: str = setting(
        "all",
        "The replicas that must have a record: all (or -1) for the in-sync replicas, 1 for the leader, 0 for none.",
        one_of("all", "-1", "1", "0"),
        aliases=("request.required.acks",),
    )
    enable_idempotence: bool = setting(
        True,
        "Whether each record is stored exactly once and in order, regardless of retries. Requires acks=all, "
        "retries, and at most 5 requests in flight; defaults to false if another setting conflicts with it.",
    )
    max_in_flight_requests_per_connection: int = setting(
        MAX_IDEMPOTENT_IN_FLIGHT,
        "The maximum number of unacknowledged batches of a partition. Without idempotence only one is sent at"
        " a time, which keeps the order.",
        between(1, 1_000_000),
        aliases=("max.in.flight",),
    )
    linger_ms: float = setting(
        5.0,
        "The time for which a batch that is not full waits for more records, in milliseconds.",
        between(0, 900_000),
        aliases=("queue.buffering.max.ms",),
    )
    batch_size: int = setting(
        1_000_000, "The maximum size of a batch before compression, in bytes.", between(1, MAX_INT32)
    )
    batch_num_messages: int = setting(
        10_000,
        "The maximum number of records in a batch; for produce_batch() only batch.size applies.",
        between(1, 1_000_000),
    )
    queue_buffering_max_messages: int = setting(
        100_000, "The maximum number of queued records; beyond it, produce() raises BufferError.", between(1, MAX_INT32)
    )
    queue_buffering_max_kbytes: int = setting(
        1_048_576, "The maximum size of queued keys, values and headers, in KiB.", between(1, MAX_INT32)
    )
    buffer_memory: int | None = setting(
        None,
        "The same limit as queue.buffering.max.kbytes, in bytes, under Kafka's name; set only one of the two.",
        between(1, MAX_INT32 * 1024),
    )
    max_block_ms: int = setting(
        0,
        "The time for which produce() waits for room in the queue, in milliseconds, serving callbacks "
        "meanwhile; 0 raises BufferError immediately, as librdkafka does.",
        between(0, MAX_INT32),
    )
    message_max_bytes: int = setting(
        1_000_000,
        "The maximum size of a record, and of a batch with more than one record, in bytes.",
        between(1_000, 1_000_000_000),
        aliases=("max.request.size",),
    )
    message_timeout_ms: int = setting(
        300_000,
        "The maximum time from produce() to the acknowledgement of a record, including retries, in milliseconds.",
        between(1, MAX_INT32),
        aliases=("delivery.timeout.ms",),
    )
    topic_metadata_propagation_max_ms: int = setting(
        30_000, "The time for which records wait for an unknown topic, in milliseconds.", between(0, 3_600_000)
    )
    allow_auto_create_topics: bool = setting(
        True, "Whether the consumer's topics may be created automatically, if the nodes have auto.create.topics.enable."
    )
    retries: int = setting(
        MAX_INT32,
        "The maximum number of retries of a batch after retriable errors.",
        between(0, MAX_INT32),
        aliases=("message.send.max.retries",),
    )
    transactional_id: str | None = setting(
        None,
        "The name under which the producer writes transactions. A newer producer with the same name fences this one "
        "and ends its open transaction. Requires enable.idempotence.",
    )
    transaction_timeout_ms: int = setting(
        60_000,
        "The time after which the coordinator aborts an open transaction, in milliseconds, at most the nodes' "
        "transaction.max.timeout.ms. message.timeout.ms must not be longer, and is this by default.",
        between(1_000, MAX_INT32),
    )
    transaction_two_phase_commit_enable: bool = setting(
        False,
        "Whether the transactions take part in another system's two-phase commit: they can be prepared, and never "
        "time out. The nodes must permit it, and transaction.timeout.ms must not be set.",
    )
    compression_type: str = setting(
        "none", "The compression codec of batches.", one_of(*CODECS), aliases=("compression.codec",)
    )
    compression_level: int = setting(-1, "The compression level; -1 is the codec's default.", at_least(-1))
    partitioner: str = setting(
        "murmur2_random",
        "The partitioner. By the hash of the key: murmur2 (as in Java), consistent (CRC-32, as in librdkafka)"
        " or fnv1a (as in Sarama); with the suffix _random, records without a key go to one random partition "
        "per batch. random and sticky: all records go to one random partition per batch. roundrobin: the "
        "partitions in turn. In a dict, also a callable (topic, key, partition_count) -> partition.",
        one_of(*PARTITIONERS),
    )
    delivery_report_only_error: bool = setting(
        False, "Whether on_delivery is called only for records that were not delivered."
    )
    statistics_interval_ms: int = setting(
        0, "The interval between calls of stats_cb, in milliseconds; 0 disables statistics.", between(0, 86_400_000)
    )

    def resolve_idempotence(self, is_asked_for: bool) -> ProducerConfig:
        """Return the settings with ``enable_idempotence`` adapted to the others (KIP-679).

        Raises:
            ConfigError: the application set it explicitly (``is_asked_for``), and another setting contradicts it.
        """
        conflict = self._conflict() if self.enable_idempotence else None
        if conflict is None:
            return self
        if is_asked_for:
            raise ConfigError(f'configuration "enable.idempotence" needs {conflict}')
        return replace(self, enable_idempotence=False)

    def _conflict(self) -> str | None:
        if self.acks not in ("all", "-1"):
            return f'"acks" to be all, not {self.acks}'
        if self.retries == 0:
            return '"retries" to be at least 1, not 0'
        in_flight = self.max_in_flight_requests_per_connection
        if in_flight > MAX_IDEMPOTENT_IN_FLIGHT:
            limit = MAX_IDEMPOTENT_IN_FLIGHT
            return f'"max.in.flight.requests.per.connection" to be at most {limit}, not {in_flight}'
        return None

    def resolve_transactions(self, keys: Collection[str]) -> ProducerConfig:
        """Return the settings with those adapted that transactions depend on; ``keys`` are the application's.

        Raises:
            ConfigError: transactions contradict another setting, or need ``transactional.id``.
        """
        if self.transactional_id is None:
            if self.transaction_two_phase_commit_enable:
                raise ConfigError('configuration "transaction.two.phase.commit.enable" needs "transactional.id"')
            return self
        if not self.enable_idempotence:
            reason = replace(self, enable_idempotence=True)._conflict() or '"enable.idempotence" to be true'
            raise ConfigError(f'configuration "transactional.id" needs {reason}')
        if self.transaction_two_phase_commit_enable:
            if "transaction.timeout.ms" in keys:
                text = '"transaction.timeout.ms" has no effect with "transaction.two.phase.commit.enable": remove it'
                raise ConfigError(f"configuration {text}")
            return self
        limit_ms = self.transaction_timeout_ms
        if self.message_timeout_ms <= limit_ms:
            return self
        if {"message.timeout.ms", "delivery.timeout.ms"} & set(keys):
            text = (
                f'"message.timeout.ms" is {self.message_timeout_ms}, which exceeds "transaction.timeout.ms" {limit_ms}'
            )
            raise ConfigError(f"configuration {text}")
        return replace(self, message_timeout_ms=limit_ms)

    @property
    def buffer_bytes(self) -> int:
        """The limit for the bytes of waiting keys, values and headers."""
        return self.queue_buffering_max_kbytes * 1024 if self.buffer_memory is None else self.buffer_memory

    @property
    def level(self) -> int | None:
        """The codec's level, None for its default."""
        return None if self.compression_level == -1 else self.compression_level


def read_config(settings: Mapping[str, object]) -> ProducerConfig:
    """Return a producer's settings, adapted to one another.

    Raises:
        ConfigError: a setting is unknown, missing or out of range, or two settings contradict each other.
    """
    config = parse_config(ProducerConfig, settings)
    if "buffer.memory" in settings and "queue.buffering.max.kbytes" in settings:
        raise ConfigError(
            'configurations "buffer.memory" and "queue.buffering.max.kbytes" are the same setting: set only one of them'
        )
    check_level(config.compression_type, config.level)
    return config.resolve_idempotence("enable.idempotence" in settings).resolve_transactions(settings.keys())
