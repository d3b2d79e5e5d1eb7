"""The settings that a storage node can change at run time, and the topic settings for which they are defaults.

This is the only declaration: the controller validates a change against it before it writes the metadata, and the node's
configuration inherits it. A node takes a setting from the first of three layers that has it (KIP-226): the resource of
its own id, the resource ``""`` of all nodes, and its properties file.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tidelog_foundation.config.settings import config_key, dynamic_int_setting, dynamic_setting, setting_of
from tidelog_foundation.config.topic import (
    UNLIMITED,
    TopicConfig,
)
from tidelog_foundation.config.validators import address_limits, all_or_none, any_of, at_least, between, one_of
from tidelog_foundation.dataclass import dataclass

_INT32_MAX = 2**31 - 1
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class BrokerSynonym:
    """A node setting that is the default of a topic setting. Its unit is ``unit`` units of the topic setting."""

    key: str
    unit: int = 1


CORDONED_LOG_DIRS = "cordoned.log.dirs"
"""The setting of a node that gets no new replicas."""


def _one(key: str) -> tuple[BrokerSynonym, ...]:
    return (BrokerSynonym(key),)


BROKER_SYNONYMS: Mapping[str, tuple[BrokerSynonym, ...]] = MappingProxyType(
    {
        "min.insync.replicas": _one("min.insync.replicas"),
        "cleanup.policy": _one("log.cleanup.policy"),
        "compression.type": _one("compression.type"),
        "compression.gzip.level": _one("compression.gzip.level"),
        "compression.lz4.level": _one("compression.lz4.level"),
        "compression.zstd.level": _one("compression.zstd.level"),
        "delete.retention.ms": _one("log.cleaner.delete.retention.ms"),
        "file.delete.delay.ms": _one("log.segment.delete.delay.ms"),
        "flush.messages": _one("log.flush.interval.messages"),
        "flush.ms": _one("log.flush.interval.ms"),
        "index.interval.bytes": _one("log.index.interval.bytes"),
        "max.compaction.lag.ms": _one("log.cleaner.max.compaction.lag.ms"),
        "max.message.bytes": _one("message.max.bytes"),
        "message.timestamp.after.max.ms": _one("log.message.timestamp.after.max.ms"),
        "message.timestamp.before.max.ms": _one("log.message.timestamp.before.max.ms"),
        "message.timestamp.type": _one("log.message.timestamp.type"),
        "min.cleanable.dirty.ratio": _one("log.cleaner.min.cleanable.ratio"),
        "min.compaction.lag.ms": _one("log.cleaner.min.compaction.lag.ms"),
        "preallocate": _one("log.preallocate"),
        "retention.bytes": _one("log.retention.bytes"),
        "retention.ms": (
            BrokerSynonym("log.retention.ms"),
            BrokerSynonym("log.retention.minutes", _MINUTE_MS),
            BrokerSynonym("log.retention.hours", _HOUR_MS),
        ),
        "segment.bytes": _one("log.segment.bytes"),
        "segment.index.bytes": _one("log.index.size.max.bytes"),
        "segment.jitter.ms": (
            BrokerSynonym("log.roll.jitter.ms"),
            BrokerSynonym("log.roll.jitter.hours", _HOUR_MS),
        ),
        "segment.ms": (BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", _HOUR_MS)),
        "unclean.leader.election.enable": _one("unclean.leader.election.enable"),
    }
)
"""The node settings behind each topic setting, in order of precedence. Other topic settings have none.

They are Kafka's ServerTopicConfigSynonyms.
"""

_SAME_MEANING = {s.key: tuple(o.key for o in group) for group in BROKER_SYNONYMS.values() for s in group}


def _topic_default(name: str) -> Any:
    """Declare the default of a topic setting, with the topic's value, limits and text."""
    return setting_of(TopicConfig, name, " Topics can override it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBrokerConfig:
    """The settings that change at run time, on one node (resource ``"7"``) or on all nodes (resource ``""``).

    Raises:
        ValueError: the values are inconsistent; ``parse_config`` turns it into a ConfigError.
    """

    min_insync_replicas: int = _topic_default("min_insync_replicas")
    unclean_leader_election_enable: bool = _topic_default("unclean_leader_election_enable")
    message_max_bytes: int = _topic_default("max_message_bytes")
    compression_type: str = _topic_default("compression_type")
    compression_gzip_level: int = _topic_default("compression_gzip_level")
    compression_lz4_level: int = _topic_default("compression_lz4_level")
    compression_zstd_level: int = _topic_default("compression_zstd_level")
    log_flush_interval_ms: int | None = dynamic_setting(
        None, "The time after which a record is synced to disk, in milliseconds; 5000 if not set.", at_least(0)
    )
    log_flush_interval_messages: int = _topic_default("flush_messages")
    log_segment_bytes: int = _topic_default("segment_bytes")
    log_roll_ms: int | None = dynamic_setting(
        None, "The age at which a segment is closed, in milliseconds; log.roll.hours if not set.", at_least(1)
    )
    log_roll_jitter_ms: int | None = dynamic_setting(
        None,
        "The maximum random time by which a segment is closed early, in milliseconds; log.roll.jitter.hours "
        "if not set.",
        at_least(0),
    )
    log_preallocate: bool = _topic_default("preallocate")
    log_index_interval_bytes: int = _topic_default("index_interval_bytes")
    log_index_size_max_bytes: int = _topic_default("segment_index_bytes")
    log_message_timestamp_type: str = _topic_default("message_timestamp_type")
    log_message_timestamp_before_max_ms: int = _topic_default("message_timestamp_before_max_ms")
    log_message_timestamp_after_max_ms: int = _topic_default("message_timestamp_after_max_ms")
    log_cleanup_policy: tuple[str, ...] = _topic_default("cleanup_policy")
    log_retention_ms: int | None = dynamic_setting(
        None,
        "The age at which segments are deleted, in milliseconds; -1 is no limit; log.retention.minutes if not set.",
        any_of(one_of(-1), at_least(1)),
    )
    log_retention_bytes: int = _topic_default("retention_bytes")
    log_segment_delete_delay_ms: int = _topic_default("file_delete_delay_ms")
    transaction_partition_verification_enable: bool = dynamic_setting(
        True,
        "Whether the first batch of a transaction in a partition is accepted only after the transaction coordinator "
        "has confirmed that the partition was added. From transaction.version 2 on, it always is.",
    )
    log_cleaner_threads: int = dynamic_int_setting(
        1, "The number of logs that are compacted at the same time.", at_least(1)
    )
    log_cleaner_dedupe_buffer_size: int = dynamic_setting(
        128 * 1024**2, "The memory of all cleaner threads for keys, in bytes.", at_least(1024**2)
    )
    log_cleaner_io_buffer_size: int = dynamic_int_setting(
        512 * 1024, "The memory of all cleaner threads for reading and writing, in bytes.", at_least(1)
    )
    log_cleaner_io_buffer_load_factor: float = dynamic_setting(
        0.9, "The maximum load factor of the table of keys; further keys are left for the next run.", between(0.01, 1)
    )
    log_cleaner_io_max_bytes_per_second: float = dynamic_setting(
        sys.float_info.max,
        "The maximum rate at which all cleaner threads together read and write, in bytes per second.",
        between(1, math.inf),
    )
    log_cleaner_backoff_ms: int = dynamic_setting(
        15_000, "The time for which the cleaner sleeps when no log needs compaction, in milliseconds.", at_least(0)
    )
    log_cleaner_min_cleanable_ratio: float = _topic_default("min_cleanable_dirty_ratio")
    log_cleaner_delete_retention_ms: int = _topic_default("delete_retention_ms")
    log_cleaner_min_compaction_lag_ms: int = _topic_default("min_compaction_lag_ms")
    log_cleaner_max_compaction_lag_ms: int = _topic_default("max_compaction_lag_ms")
    leader_replication_throttled_rate: int = dynamic_setting(
        UNLIMITED,
        "The maximum rate at which a node sends to followers of throttled replicas that it leads, in bytes per second.",
        at_least(0),
    )
    follower_replication_throttled_rate: int = dynamic_setting(
        UNLIMITED,
        "The maximum rate at which a node fetches for its throttled followers, in bytes per second.",
        at_least(0),
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = dynamic_setting(
        UNLIMITED,
        "The maximum rate at which replicas move from one log directory to another, in bytes per second.",
        at_least(1),
    )

    cordoned_log_dirs: tuple[str, ...] = dynamic_setting(
        (),
        "The log directories that get no new replicas (KIP-1066): * for all of the node, or none. Set at run time, on "
        "one node; single directories cannot be cordoned. Replicas that are there stay.",
        all_or_none,
    )
    max_connections: int = dynamic_int_setting(
        _INT32_MAX,
        "The maximum number of connections of all Kafka listeners; further ones are closed immediately. "
        "Each gRPC listener has the limit in the node's file, for itself; with a smaller one set at run time, calls of "
        "further connections are refused. If "
        "the inter-broker listener is one of several, connections of nodes are accepted nevertheless, in "
        "place of the connection of another listener that has been idle for longest. Of the process's file "
        "descriptors, 256, but at most an eighth, are reserved for logs.",
        between(1, _INT32_MAX),
    )
    max_connections_per_ip: int = dynamic_int_setting(
        _INT32_MAX,
        "The maximum number of connections from one address; further ones are closed immediately. Connections of "
        "gRPC are counted by themselves while they have calls; calls of further ones are refused.",
        between(0, _INT32_MAX),
    )
    max_connections_per_ip_overrides: str = dynamic_setting(
        "",
        "The maximum number of connections from single addresses, in place of max.connections.per.ip: "
        "address:number,address:number,... An IPv6 address is in brackets.",
        address_limits,
    )
    max_connection_creation_rate: int = dynamic_int_setting(
        _INT32_MAX,
        "The maximum rate of new connections of all Kafka listeners except the inter-broker listener, per second. "
        "Further ones wait to be accepted. Logins over gRPC count as connections. The quota connection_creation_rate "
        "limits the rate of an address.",
        between(1, _INT32_MAX),
    )

    def __post_init__(self) -> None:
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads < 1024**2:
            raise ValueError(
                f"log.cleaner.dedupe.buffer.size {self.log_cleaner_dedupe_buffer_size} is below 1 MiB for each of"
                f" {self.log_cleaner_threads} cleaner threads"
            )
        self.topic_defaults()

    def topic_defaults(self) -> TopicConfig:
        """Return the defaults of topic settings."""
        values: dict[str, object] = {}
        for field in dataclasses.fields(TopicConfig):
            for synonym in BROKER_SYNONYMS.get(config_key(field), ()):
                value = getattr(self, synonym.key.replace(".", "_"), None)
                if value is not None:
                    # -1 hours mean "never", like -1 milliseconds.
                    values[field.name] = value if synonym.unit == 1 else max(-1, value * synonym.unit)
                    break
        return TopicConfig(**values)  # type: ignore[arg-type]


DYNAMIC_BROKER_KEYS = frozenset(map(config_key, dataclasses.fields(DynamicBrokerConfig)))
"""The node keys that IncrementalAlterConfigs accepts."""

_READ_ONLY_KEYS = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    advertised.listeners allow.everyone.if.no.acl.found authorizer.class.name
    auto.create.topics.enable auto.leader.rebalance.enable bootstrap.listeners
    broker.heartbeat.interval.ms broker.rack broker.session.timeout.ms
    cluster.id connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
    controlled.shutdown.timeout.ms controller.listener.names
    controller.quota.window.num controller.quota.window.size.seconds
    controller.quorum.append.max.bytes controller.quorum.append.max.inflight
    controller.quorum.append.max.inflight.bytes controller.quorum.bootstrap.servers
    controller.quorum.election.timeout.ms controller.quorum.engine controller.quorum.heartbeat.interval.ms
    controller.quorum.observers.max controller.quorum.pysyncobj.voters controller.quorum.snapshot.chunk.bytes
    controller.quorum.snapshot.trailing.bytes controller.quorum.snapshot.trailing.entries controller.quorum.voters
    default.replication.factor delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
    delegation.token.max.lifetime.ms delegation.token.secret.key delete.topic.enable fetch.max.bytes
    health.listener sasl.mechanism.controller.protocol
    group.consumer.assignors group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.migration.policy
    group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
    group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms group.initial.rebalance.delay.ms
    group.max.session.timeout.ms group.max.size group.min.session.timeout.ms
    inter.broker.listener.name leader.imbalance.check.interval.seconds leader.imbalance.per.broker.percentage
    listener.security.protocol.map listeners
    log.cleaner.enable log.dirs log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.retention.check.interval.ms log.retention.hours log.retention.minutes log.roll.hours log.roll.jitter.hours
    max.incremental.fetch.session.cache.slots
    logging.format logging.level logging.slow.request.ms
    metrics.client.instances.max metrics.client.series.max
    metrics.debug.enable metrics.group.offsets.max metrics.listeners metrics.topics.max
    metadata.log.dir metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
    node.id num.partitions num.recovery.threads.per.data.dir offset.metadata.max.bytes
    offsets.commit.timeout.ms offsets.retention.check.interval.ms offsets.retention.minutes
    offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.replication.factor
    offsets.topic.segment.bytes
    producer.id.expiration.check.interval.ms producer.id.expiration.ms queued.max.request.bytes
    queued.max.response.bytes quota.window.num quota.window.size.seconds
    replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
    replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms
    replica.selector.class replica.socket.timeout.ms
    sasl.enabled.mechanisms sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism.inter.broker.protocol sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.server.max.receive.size
    security.inter.broker.protocol
    socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.password
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.principal.mapping.rules ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type super.users
    telemetry.max.bytes
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.min.isr
    transaction.state.log.num.partitions transaction.state.log.replication.factor
    transaction.state.log.segment.bytes transaction.two.phase.commit.enable transactional.id.expiration.ms
"""
READ_ONLY_BROKER_KEYS = frozenset(_READ_ONLY_KEYS.split())
"""The other keys of nodes and controllers, which are read from the properties file at startup and cannot change."""


def same_meaning(key: str) -> tuple[str, ...]:
    """Return the keys with the same meaning as a node's key in any unit, itself included, the finest first."""
    return _SAME_MEANING.get(key, (key,))


def override_broker_settings(settings: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return ``settings`` updated with ``changes``; a change replaces all keys with the same meaning in other units.

    A ``log.retention.ms`` set at run time thus replaces the file's ``log.retention.hours``, and the file's
    ``log.retention.ms`` does not override a change either (DynamicBrokerConfig.overrideProps).
    """
    outdone = {other for key in changes for other in same_meaning(key)}
    return {key: value for key, value in settings.items() if key not in outdone} | dict(changes)
