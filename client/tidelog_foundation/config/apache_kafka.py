"""Keys of Apache Kafka 4.1's brokers that Tidelog lacks, with Kafka's rules for changing them at run time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


FIXED_KEYS = _keys(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds
    authorizer.class.name broker.id client.quota.callback.class
    controlled.shutdown.enable
    controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    controller.socket.timeout.ms
    create.topic.policy.class.name
    delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.max.lifetime.ms
    delegation.token.secret.key
    delete.records.purgatory.purge.interval.requests early.start.listeners fetch.purgatory.purge.interval.requests
    group.consumer.migration.policy group.coordinator.append.linger.ms group.coordinator.rebalance.protocols
    group.coordinator.threads group.share.assignors group.share.delivery.count.limit
    group.share.heartbeat.interval.ms group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms
    group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
    group.share.min.heartbeat.interval.ms group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
    group.share.partition.max.record.locks group.share.record.lock.duration.ms group.share.session.timeout.ms
    group.streams.heartbeat.interval.ms group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
    group.streams.max.size group.streams.max.standby.replicas group.streams.min.heartbeat.interval.ms
    group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
    initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs kafka.metrics.reporters
    log.dir log.dir.failure.timeout.ms log.flush.offset.checkpoint.interval.ms
    max.request.partition.size.limit
    metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes
    metadata.max.retention.ms
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    num.replica.alter.log.dirs.threads offsets.load.buffer.size process.roles
    producer.purgatory.purge.interval.requests queued.max.requests
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
    remote.log.storage.manager.class.name remote.log.storage.manager.class.path
    remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    replica.socket.receive.buffer.bytes replication.quota.window.num replication.quota.window.size.seconds
    request.timeout.ms
    sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
    sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.server.callback.handler.class
    security.providers
    share.coordinator.append.linger.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
    share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
    ssl.allow.dn.changes ssl.allow.san.changes ssl.principal.mapping.rules
    telemetry.max.bytes
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size
    transaction.state.log.min.isr transaction.state.log.num.partitions transaction.state.log.replication.factor
    transaction.state.log.segment.bytes transaction.two.phase.commit.enable
    transactional.id.expiration.ms
    """
)
"""Keys that Kafka reads only from a broker's properties file."""

DYNAMIC_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "background.threads": "INT",
        "log.local.retention.bytes": "LONG",
        "log.local.retention.ms": "LONG",
        "metric.reporters": "LIST",
        "num.io.threads": "INT",
        "num.network.threads": "INT",
        "num.replica.fetchers": "INT",
        "principal.builder.class": "CLASS",
        "remote.fetch.max.wait.ms": "INT",
        "remote.list.offsets.request.timeout.ms": "LONG",
        "remote.log.index.file.cache.total.size.bytes": "LONG",
        "remote.log.manager.copier.thread.pool.size": "INT",
        "remote.log.manager.copy.max.bytes.per.second": "LONG",
        "remote.log.manager.expiration.thread.pool.size": "INT",
        "remote.log.manager.fetch.max.bytes.per.second": "LONG",
        "remote.log.reader.threads": "INT",
        "sasl.jaas.config": "PASSWORD",
        "sasl.kerberos.kinit.cmd": "STRING",
        "sasl.kerberos.min.time.before.relogin": "LONG",
        "sasl.kerberos.principal.to.local.rules": "LIST",
        "sasl.kerberos.service.name": "STRING",
        "sasl.kerberos.ticket.renew.jitter": "DOUBLE",
        "sasl.kerberos.ticket.renew.window.factor": "DOUBLE",
        "transaction.partition.verification.enable": "BOOLEAN",
    }
)
"""Keys that Kafka can change at run time, with Kafka's name for the type of the value."""

SINGLE_BROKER_KEYS = frozenset(k for k in DYNAMIC_KEYS if k.startswith("sasl.") or k == "principal.builder.class")
"""Keys that Kafka changes only on a single broker, never on all of them."""

LISTENER_KEYS = _keys(
    """
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
    ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
    """
)
"""TLS keys, which Kafka changes only per listener: ``listener.name.<listener>.<key>``."""

_NEVER_ASKED = _keys(
    """
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    background.threads
    controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    controller.socket.timeout.ms
    delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
    group.coordinator.append.linger.ms group.coordinator.threads
    group.share.assignors group.share.delivery.count.limit
    group.share.heartbeat.interval.ms group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms
    group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
    group.share.min.heartbeat.interval.ms group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
    group.share.partition.max.record.locks group.share.record.lock.duration.ms group.share.session.timeout.ms
    group.streams.heartbeat.interval.ms group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
    group.streams.max.size group.streams.max.standby.replicas group.streams.min.heartbeat.interval.ms
    group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
    initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs kafka.metrics.reporters
    log.dir.failure.timeout.ms log.flush.offset.checkpoint.interval.ms
    log.local.retention.bytes log.local.retention.ms
    max.request.partition.size.limit
    metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes
    metadata.max.retention.ms
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    num.io.threads num.network.threads num.replica.alter.log.dirs.threads num.replica.fetchers
    offsets.load.buffer.size
    producer.purgatory.purge.interval.requests queued.max.requests
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.reader.max.pending.tasks remote.log.reader.threads
    replica.socket.receive.buffer.bytes replication.quota.window.num replication.quota.window.size.seconds
    request.timeout.ms
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor
    share.coordinator.append.linger.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
    share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
    transaction.state.log.load.buffer.size
    """
)

WITHOUT_MEANING: Mapping[str, str | None] = MappingProxyType(
    {
        **dict.fromkeys(_NEVER_ASKED),
        "controlled.shutdown.enable": "true",
        "remote.log.storage.system.enable": "false",
    }
)
"""Keys of a properties file without meaning in Tidelog: threads, buffers and intervals of Kafka's own parts, and
features that Tidelog lacks. With a value, only this one has no meaning: another one asks for what Tidelog does not do.

Plug-ins and settings of security are not among them.
"""
