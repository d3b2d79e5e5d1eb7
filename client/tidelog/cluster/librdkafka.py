"""librdkafka's configuration properties, and what each one does in Tidelog's clients.

Programs written for confluent-kafka bring these properties along. A property either works, or has no effect, or is
refused. A property has no effect when it tunes a mechanism that Tidelog does not have and nothing that a program can
observe depends on it; the client says so once. A property is refused when a program that relies on it would lose
something, such as encryption or ordering. :data:`PROPERTIES` is the only place that decides this; a test holds it to
the list that librdkafka itself prints, and ``docs/librdkafka.md`` is generated from it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidelog_foundation.errors import ConfigError

Scope = Literal["*", "P", "C"]
"""The clients that read a property in librdkafka: all, producers, or consumers."""


class Effect(enum.Enum):
    """The effect of a property."""

    WORKS = "works"
    NONE = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Property:
    """One property. ``reason`` explains every effect but WORKS, where it is mostly empty.

    ``accepted`` are values, in lower case, that describe what Tidelog does anyway: they pass without a word.
    ``is_security``: beside ``security.protocol=plaintext`` the property has no effect, and is not refused.
    """

    name: str
    scope: Scope
    effect: Effect
    reason: str = ""
    accepted: tuple[str, ...] = ()
    is_security: bool = False


def select_settings(
    given: Mapping[str, Any], own: Collection[str], scope: Literal["P", "C", "A"]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that a client reads, and why each of the others has no effect.

    ``own`` are the keys that the client reads; ``scope`` is its kind: producer, consumer or admin client. A key that
    neither the client nor librdkafka knows is returned as it is, for the client to refuse. As in confluent-kafka, a
    setting of ``None`` counts as not given, and ``default.topic.config`` holds further settings.

    Raises:
        ConfigError: a property is refused.
    """
    settings = _with_topic_settings(given)
    is_plaintext = str(settings.get("security.protocol", "")).lower() == "plaintext"
    selected: dict[str, Any] = {}
    ignored: dict[str, str] = {}
    for key, value in settings.items():
        known = PROPERTIES.get(key)
        other = _YIELDS.get(key)
        if other is not None and other in settings and key in own:
            ignored[key] = f'"{other}" is given too, and counts'
        elif known is not None and known.is_security and is_plaintext and value is not None:
            ignored[key] = "security.protocol is plaintext"
        elif known is None or key in own:
            if value is not None or (known is None and key not in own):
                selected[key] = value
        elif value is not None and str(value).lower() not in known.accepted:
            ignored[key] = _ineffective(known, value, scope)
    return selected, ignored


def _with_topic_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(given)
    topic_settings = settings.pop("default.topic.config", None)
    if topic_settings is not None and not isinstance(topic_settings, Mapping):
        text = f"must be a dict of settings, not {type(topic_settings).__name__}"
        raise ConfigError(f'invalid value for configuration "default.topic.config": {text}')
    return {**(topic_settings or {}), **settings}


def _ineffective(known: Property, value: object, scope: str) -> str:
    if known.scope not in ("*", scope):
        return "it is a producer's property" if known.scope == "P" else "it is a consumer's property"
    if known.effect is Effect.WORKS:
        return "this kind of client does not need it"
    if known.effect is Effect.NONE:
        return known.reason
    what = f'configuration "{known.name}"'
    if known.accepted:
        what = f'value {value!r} of configuration "{known.name}"'
    raise ConfigError(f"{what} is not supported: {known.reason}")


_YIELDS = {"socket.timeout.ms": "request.timeout.ms", "metadata.max.age.ms": "topic.metadata.refresh.interval.ms"}
"""Two properties that are one setting in Tidelog: the first counts only where the second is not given."""

_ONE_GRANT = "tokens of an endpoint are requested with a client id and secret alone; set oauth_cb for other grants"
_GRPC_SOCKETS = "gRPC configures its sockets itself"
_GRPC_VERSIONS = "gRPC needs no version negotiation"
_C_ONLY = "it applies to C programs only"
_LOGGING = 'Python\'s logging applies: logging.getLogger("tidelog").setLevel(...)'
_METADATA_RETRY = "retry.backoff.ms and retry.backoff.max.ms determine how soon metadata is requested again"
_ERROR_RETRY = "retry.backoff.ms and retry.backoff.max.ms determine the wait after any error"
_SHARE_GROUPS = "share consumers are not supported"


def _works(scope: Scope, *names: str, reason: str = "") -> Iterator[Property]:
    for name in names:
        yield Property(name, scope, Effect.WORKS, reason)


def _no_effect(scope: Scope, name: str, reason: str, *accepted: str) -> Property:
    return Property(name, scope, Effect.NONE, reason, accepted)


def _refused(scope: Scope, name: str, reason: str, *accepted: str) -> Property:
    return Property(name, scope, Effect.REFUSED, reason, accepted)


def _secured(name: str, reason: str, *accepted: str) -> Property:
    return Property(name, "*", Effect.REFUSED, reason, accepted, is_security=True)


def _general() -> Iterator[Property]:
    yield from _works("*", "client.id", "bootstrap.servers", "metadata.broker.list", "message.max.bytes")
    yield from _works("*", "max.in.flight.requests.per.connection", "max.in.flight")
    yield from _works("*", "topic.metadata.refresh.interval.ms", "metadata.max.age.ms")
    yield from _works("*", "topic.metadata.propagation.max.ms", "topic.blacklist", "allow.auto.create.topics")
    yield from _works("*", "socket.timeout.ms", "socket.connection.setup.timeout.ms")
    yield from _works("*", "reconnect.backoff.ms", "reconnect.backoff.max.ms")
    yield from _works("*", "retry.backoff.ms", "retry.backoff.max.ms", "client.rack", "interceptors")
    yield from _works("*", "statistics.interval.ms", "stats_cb", "error_cb")
    yield from _works("*", "enable.metrics.push", reason="false is the default of admin clients, as in Java")
    yield from _works("*", "throttle_cb", reason="called for produce requests and fetches, never by an admin client")
    yield _no_effect("*", "builtin.features", "it describes librdkafka")
    yield _no_effect("*", "message.copy.max.bytes", "it tunes librdkafka's buffers")
    yield _no_effect("*", "receive.message.max.bytes", "fetch.max.bytes and a limit of 128 MiB bound responses")
    yield _no_effect(
        "*",
        "metadata.recovery.strategy",
        "a client that cannot reach any node returns to bootstrap.servers",
        "rebootstrap",
    )
    yield _no_effect("*", "metadata.recovery.rebootstrap.trigger.ms", "clients return to bootstrap.servers at once")
    yield _no_effect("*", "topic.metadata.refresh.fast.interval.ms", _METADATA_RETRY)
    yield _no_effect("*", "topic.metadata.refresh.fast.cnt", _METADATA_RETRY)
    yield _no_effect("*", "topic.metadata.refresh.sparse", "clients request only the topics that they use", "true")
    yield _no_effect("*", "broker.address.ttl", "gRPC resolves a name again for each connection")
    yield _no_effect("*", "broker.address.family", "gRPC tries the addresses of both families", "any")
    yield _no_effect("*", "client.dns.lookup", "gRPC tries all addresses of a name", "use_all_dns_ips")
    yield _no_effect("*", "connections.max.idle.ms", "idle connections stay open", "0")
    yield _no_effect("*", "reconnect.backoff.jitter.ms", "reconnect.backoff.ms includes a jitter")
    for name in ("socket.blocking.max.ms", "socket.send.buffer.bytes", "socket.receive.buffer.bytes"):
        yield _no_effect("*", name, _GRPC_SOCKETS)
    yield _no_effect("*", "socket.keepalive.enable", "gRPC sends its own keepalives", "true")
    yield _no_effect("*", "socket.nagle.disable", _GRPC_SOCKETS, "true")
    yield _no_effect("*", "socket.max.fails", "failed requests do not close their connection")
    yield _no_effect("*", "debug", _LOGGING)
    for name in ("log_level", "log.queue", "log.thread.name", "log.connection.close"):
        yield _no_effect("*", name, _LOGGING)
    yield _no_effect("*", "enabled_events", _C_ONLY)
    yield _no_effect("*", "enable.random.seed", _C_ONLY)
    yield _no_effect("*", "internal.termination.signal", "clients stop their threads without signals")
    yield _no_effect("*", "api.version.request", _GRPC_VERSIONS, "true")
    yield _no_effect("*", "api.version.request.timeout.ms", _GRPC_VERSIONS)
    yield _no_effect("*", "api.version.fallback.ms", _GRPC_VERSIONS)
    yield _no_effect("*", "broker.version.fallback", _GRPC_VERSIONS)
    yield _refused("*", "log_cb", "set logger to a logging.Logger")
    yield _refused("*", "background_event_cb", "poll(), flush(), consume() and close() call the callbacks")
    for name in ("socket_cb", "connect_cb", "closesocket_cb", "open_cb", "resolve_cb", "opaque"):
        yield _refused("*", name, _C_ONLY)
    yield _refused("*", "default_topic_conf", "set default.topic.config to a dict, or set the properties directly")
    yield _refused("*", "plugin.library.paths", "set interceptors of a producer to a list of objects")


def _secure() -> Iterator[Property]:
    yield from _works("*", "security.protocol", reason="plaintext, ssl, sasl_plaintext or sasl_ssl")
    for name in ("ca.location", "ca.pem", "certificate.location", "certificate.pem", "key.location", "key.pem"):
        yield Property(f"ssl.{name}", "*", Effect.WORKS, is_security=True)
    for name in ("key.password", "keystore.location", "keystore.password"):
        yield Property(f"ssl.{name}", "*", Effect.WORKS, is_security=True)
    always = {"enable.ssl.certificate.verification": "true", "ssl.endpoint.identification.algorithm": "https"}
    for name, accepted in always.items():
        yield _secured(name, "gRPC always verifies the server's certificate and its host", accepted)
    for name in ("ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list"):
        yield _secured(name, "gRPC chooses the algorithms itself")
    for name in ("ssl_key", "ssl_certificate", "ssl_ca", "ssl_engine_callback_data"):
        yield _secured(name, _C_ONLY)
    for name in ("ssl.ca.certificate.stores", "ssl.crl.location", "ssl.certificate.verify_cb"):
        yield _secured(name, "gRPC has no such check; set ssl.ca.location")
    for name in ("ssl.providers", "ssl.engine.location", "ssl.engine.id"):
        yield _secured(name, "gRPC uses its own TLS library")
    for name in ("sasl.mechanisms", "sasl.mechanism", "sasl.username", "sasl.password", "sasl.oauthbearer.config"):
        yield Property(name, "*", Effect.WORKS, is_security=True)
    yield from _works("*", "oauth_cb")
    for name in ("method", "client.id", "client.secret", "scope", "extensions", "token.endpoint.url"):
        yield Property(f"sasl.oauthbearer.{name}", "*", Effect.WORKS, is_security=True)
    for name in ("client.credentials.client.id", "client.credentials.client.secret"):
        yield Property(f"sasl.oauthbearer.{name}", "*", Effect.WORKS, is_security=True)
    yield Property("https.ca.location", "*", Effect.WORKS, is_security=True)
    yield _secured("https.ca.pem", "set https.ca.location")
    yield _secured(
        "enable.sasl.oauthbearer.unsecure.jwt",
        "clients make no tokens; set oauth_cb to return an unsecured one",
        "false",
    )
    yield _secured("oauthbearer_token_refresh_cb", "set oauth_cb")
    for name in ("service.name", "principal", "keytab"):
        yield Property(f"sasl.kerberos.{name}", "*", Effect.WORKS, is_security=True)
    for name in ("kinit.cmd", "min.time.before.relogin"):
        yield _no_effect("*", f"sasl.kerberos.{name}", "tickets are requested with the key table, without kinit")
    sub_claim = "the nodes determine the principal, by their own sasl.oauthbearer.sub.claim.name"
    yield _secured("sasl.oauthbearer.sub.claim.name", sub_claim, "sub")
    yield _secured("sasl.oauthbearer.grant.type", _ONE_GRANT, "client_credentials")
    yield _secured("sasl.oauthbearer.metadata.authentication.type", _ONE_GRANT, "none")
    for name in ("algorithm", "private.key.file", "private.key.passphrase", "private.key.pem", "file", "claim.aud"):
        yield _secured(f"sasl.oauthbearer.assertion.{name}", _ONE_GRANT)
    for name in ("claim.exp.seconds", "claim.iss", "claim.jti.include", "claim.nbf.seconds", "claim.sub"):
        yield _secured(f"sasl.oauthbearer.assertion.{name}", _ONE_GRANT)
    yield _secured("sasl.oauthbearer.assertion.jwt.template.file", _ONE_GRANT)


def _consumers() -> Iterator[Property]:
    yield from _works("C", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor")
    yield from _works("C", "partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
    yield from _works("C", "max.poll.interval.ms", "enable.auto.commit", "auto.commit.interval.ms", "on_commit")
    yield from _works("C", "enable.auto.offset.store", "auto.offset.reset", "isolation.level", "enable.partition.eof")
    yield from _works("C", "queued.min.messages", "queued.max.messages.kbytes", "fetch.wait.max.ms", "fetch.min.bytes")
    yield from _works("C", "fetch.message.max.bytes", "max.partition.fetch.bytes", "fetch.max.bytes")
    yield _no_effect("C", "fetch.queue.backoff.ms", "fetching continues as soon as there is room")
    yield _no_effect("C", "fetch.error.backoff.ms", _ERROR_RETRY)
    yield _no_effect("C", "coordinator.query.interval.ms", "clients look up the coordinator when it does not respond")
    yield _no_effect("C", "check.crcs", "the CRC of every batch is checked", "true")
    yield _no_effect("C", "consume.callback.max.messages", _C_ONLY)
    yield _no_effect("C", "max.poll.records", _SHARE_GROUPS)
    yield _no_effect("C", "share.acknowledgement.mode", _SHARE_GROUPS)
    offsets = "offsets are committed to the group's coordinator"
    yield _no_effect("C", "offset.store.path", offsets)
    yield _no_effect("C", "offset.store.sync.interval.ms", offsets)
    yield _refused("C", "offset.store.method", offsets, "broker")
    yield _refused("C", "group.protocol.type", 'it is always "consumer"', "consumer")
    yield _refused("C", "auto.commit.enable", "set enable.auto.commit")
    yield _refused("C", "consume_cb", _C_ONLY)
    yield _refused("C", "rebalance_cb", "pass on_assign, on_revoke and on_lost to subscribe()")
    yield _refused("C", "offset_commit_cb", "set on_commit")
    for name in ("key.deserializer", "value.deserializer"):
        yield _refused("C", name, "use DeserializingConsumer")


def _producers() -> Iterator[Property]:
    yield from _works("P", "enable.idempotence", "queue.buffering.max.messages", "queue.buffering.max.kbytes")
    yield from _works("P", "queue.buffering.max.ms", "linger.ms", "message.send.max.retries", "retries")
    yield from _works("P", "compression.codec", "compression.type", "compression.level", "batch.num.messages")
    yield from _works("P", "batch.size", "delivery.report.only.error", "request.required.acks", "acks")
    yield from _works("P", "request.timeout.ms", "message.timeout.ms", "delivery.timeout.ms", "partitioner")
    yield from _works("P", "on_delivery", "transactional.id", "transaction.timeout.ms")
    yield _no_effect("P", "queue.buffering.backpressure.threshold", "batches wait only for linger.ms and for room")
    yield _no_effect(
        "P", "sticky.partitioning.linger.ms", "records without a key change their partition with each batch"
    )
    yield _no_effect("P", "produce.offset.report", "offsets are always reported", "true")
    yield _refused("P", "enable.gapless.guarantee", "a failed record does not stop the producer", "false")
    yield _refused("P", "queuing.strategy", "records of a partition are sent in the order of produce()", "fifo")
    yield _refused("P", "dr_cb", "give on_delivery")
    yield _refused("P", "dr_msg_cb", "give on_delivery")
    yield _refused("P", "partitioner_cb", "give partitioner: a name, or a callable (topic, key, count) -> partition")
    yield _refused("P", "partitioner.class", "give partitioner: a name, or a callable (topic, key, count) -> partition")
    yield _refused("P", "interceptor.classes", "give interceptors: a list of objects")
    yield _refused("P", "msg_order_cmp", _C_ONLY)
    for name in ("key.serializer", "value.serializer"):
        yield _refused("P", name, "use SerializingProducer")


PROPERTIES: Mapping[str, Property] = {
    each.name: each for part in (_general(), _secure(), _consumers(), _producers()) for each in part
}
"""Every property of librdkafka 2.16 by name, with those that confluent-kafka and Kafka's Java client add to them."""
