"""The types that DescribeConfigs gives for a node's settings are those of Apache Kafka 4.1."""

from __future__ import annotations

import sys

import pytest

from tidelog_foundation.config.settings import describe, format_value
from tidelog_node.server.config import NodeConfig

KAFKA_TYPES = {
    "BOOLEAN": """
        auto.create.topics.enable log.cleaner.enable log.preallocate transaction.partition.verification.enable
        transaction.two.phase.commit.enable unclean.leader.election.enable
    """,
    "DOUBLE": """
        log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second log.cleaner.min.cleanable.ratio
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    """,
    "INT": """
        add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
        broker.heartbeat.interval.ms connection.failed.authentication.delay.ms
        compression.gzip.level compression.lz4.level compression.zstd.level default.replication.factor
        fetch.max.bytes group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
        group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.min.heartbeat.interval.ms
        group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms
        group.consumer.session.timeout.ms group.initial.rebalance.delay.ms group.max.session.timeout.ms
        group.max.size group.min.session.timeout.ms log.cleaner.io.buffer.size log.cleaner.threads
        log.flush.start.offset.checkpoint.interval.ms log.index.interval.bytes log.index.size.max.bytes
        log.retention.hours log.retention.minutes log.roll.hours log.roll.jitter.hours log.segment.bytes
        max.connection.creation.rate max.connections max.connections.per.ip
        max.incremental.fetch.session.cache.slots message.max.bytes
        min.insync.replicas node.id num.partitions num.recovery.threads.per.data.dir offset.metadata.max.bytes
        offsets.commit.timeout.ms offsets.retention.minutes offsets.topic.compression.codec
        offsets.topic.num.partitions offsets.topic.segment.bytes producer.id.expiration.check.interval.ms
        producer.id.expiration.ms quota.window.num quota.window.size.seconds
        replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
        replica.fetch.response.max.bytes replica.fetch.wait.max.ms replica.socket.timeout.ms
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.oauthbearer.clock.skew.seconds
        sasl.server.max.receive.size
        socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes
        transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
        transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.min.isr
        transaction.state.log.num.partitions transaction.state.log.segment.bytes transactional.id.expiration.ms
        telemetry.max.bytes
    """,
    "LIST": """
        controller.listener.names controller.quorum.bootstrap.servers controller.quorum.voters cordoned.log.dirs
        group.consumer.assignors log.cleanup.policy
        sasl.enabled.mechanisms sasl.kerberos.principal.to.local.rules sasl.oauthbearer.expected.audience
        ssl.cipher.suites ssl.enabled.protocols
    """,
    "LONG": """
        connections.max.idle.ms connections.max.reauth.ms log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
        log.cleaner.delete.retention.ms log.cleaner.max.compaction.lag.ms log.cleaner.min.compaction.lag.ms
        log.flush.interval.messages log.flush.interval.ms log.flush.scheduler.interval.ms
        log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.retention.bytes
        log.retention.check.interval.ms log.retention.ms log.roll.jitter.ms log.roll.ms
        log.segment.delete.delay.ms offsets.retention.check.interval.ms queued.max.request.bytes
        replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms sasl.login.retry.backoff.max.ms
        sasl.login.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    """,
    "SHORT": """
        offsets.topic.replication.factor sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
        transaction.state.log.replication.factor
    """,
    "STRING": """
        advertised.listeners authorizer.class.name broker.rack compression.type group.consumer.migration.policy
        inter.broker.listener.name listener.security.protocol.map listeners log.dirs log.message.timestamp.type
        max.connections.per.ip.overrides
        replica.selector.class sasl.kerberos.service.name sasl.mechanism.controller.protocol
        sasl.mechanism.inter.broker.protocol
        sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.inter.broker.protocol
        ssl.client.auth ssl.endpoint.identification.algorithm ssl.keystore.location
        ssl.keystore.type ssl.principal.mapping.rules ssl.truststore.location ssl.truststore.type
    """,
    "PASSWORD": """
        delegation.token.secret.key sasl.oauthbearer.client.credentials.client.secret
        ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.password
        ssl.truststore.certificates ssl.truststore.password
    """,
}
"""Settings that Kafka's brokers have too, by the types that they are declared with there."""
OWN = {
    # In Kafka, keys of the authorizer.
    "allow.everyone.if.no.acl.found": "BOOLEAN",
    "super.users": "STRING",
    "leader.replication.throttled.rate": "LONG",
    "follower.replication.throttled.rate": "LONG",
    "replica.alter.log.dirs.io.max.bytes.per.second": "LONG",
    "bootstrap.listeners": "STRING",
    "cluster.id": "STRING",
    "controlled.shutdown.timeout.ms": "LONG",
    "health.listener": "STRING",
    "logging.format": "STRING",
    "logging.level": "LIST",
    "logging.slow.request.ms": "INT",
    "metrics.client.instances.max": "INT",
    "metrics.client.series.max": "INT",
    "metrics.debug.enable": "BOOLEAN",
    "metrics.group.offsets.max": "INT",
    "metrics.listeners": "LIST",
    "metrics.topics.max": "INT",
    "queued.max.response.bytes": "LONG",
}
"""Settings of nodes alone, and the rates of throttles, which Kafka's brokers declare elsewhere."""


def test_settings_of_a_node_have_the_types_of_kafka() -> None:
    kafka = {key: config_type for config_type, keys in KAFKA_TYPES.items() for key in keys.split()}
    assert {info.key: info.config_type for info in describe(NodeConfig)} == kafka | OWN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (sys.float_info.max, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (12_345_678.0, "1.2345678E7"),
        (1e7, "1.0E7"),
        (-0.00025, "-2.5E-4"),
        (0.9, "0.9"),
        (1.0, "1.0"),
        (0.0, "0.0"),
    ],
)
def test_numbers_with_a_fraction_are_written_as_kafka_writes_them(value: float, text: str) -> None:
    assert format_value(value) == text
    assert float(text) == value


def test_rate_of_the_cleaner_is_without_a_limit_as_kafka_says_it() -> None:
    texts = {info.key: info.default_text for info in describe(NodeConfig)}
    assert texts["log.cleaner.io.max.bytes.per.second"] == "1.7976931348623157E308"
