"""Settings of a worker, with the names and defaults of Kafka Connect's distributed workers where it has them."""

from __future__ import annotations

import socket
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tidelog.cluster.security import SecurityConfig
from tidelog_connect.connectors.step_settings import HEADER_CONVERTER, STRING_CONVERTER, check_worker_converters
from tidelog_connect.rest.settings import (
    ADMIN_TLS,
    LISTENERS_TLS,
    Address,
    RestSettings,
    is_tls_key,
    parse_addresses,
    tls_settings,
)
from tidelog_foundation.config import at_least, between, config_keys, not_empty, parse_config, setting
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.security.listener_settings import ListenerSecurity, listener_security
from tidelog_foundation.security.ssl_settings import SSL_KEYS, SslSettings, is_listener_key

_SPARK = "spark."
_OF_CONVERTERS = ("key.converter.", "value.converter.")
_NOT_BUILT: Final[Mapping[str, str]] = {
    "config.storage.replication.factor": "storage.replication.factor is for all topics of the group",
    "offset.storage.replication.factor": "storage.replication.factor is for all topics of the group",
    "status.storage.replication.factor": "storage.replication.factor is for all topics of the group",
    "offset.flush.interval.ms": "offsets are committed with each batch",
    "offset.flush.timeout.ms": "offsets are committed with each batch",
    "exactly.once.source.support": "sources always commit records and offsets together",
    "plugin.path": "connectors are Python packages with the entry point tidelog.connectors",
    "plugin.discovery": "connectors are Python packages with the entry point tidelog.connectors",
    "connector.client.config.override.policy": "connectors have the worker's clients",
    "rebalance.timeout.ms": "one worker runs all connectors; session.timeout.ms bounds a takeover",
    "scheduled.rebalance.max.delay.ms": "one worker runs all connectors; session.timeout.ms bounds a takeover",
    "heartbeat.interval.ms": "it is a third of session.timeout.ms",
    "task.shutdown.graceful.timeout.ms": "a connector stops at the end of its batch",
    "topic.creation.enable": "a source's topic.creation settings create topics",
    "topic.tracking.enable": "topics of connectors are always tracked",
    "topic.tracking.allow.reset": "topics of connectors can always be reset",
    "metric.reporters": "metrics.listeners serves metrics to Prometheus",
    "rest.host.name": "set listeners",
    "rest.port": "set listeners",
}
"""Settings of Kafka Connect's workers that are refused, and why."""
_NOT_BUILT_PREFIXES: Final[Mapping[str, str]] = {
    "inter.worker.": "the key between workers is new with each leader, and the algorithm is HmacSHA256",
    "producer.": "connectors have the worker's clients",
    "consumer.": "connectors have the worker's clients",
    "admin.": "connectors have the worker's clients",
    "metrics.": "metrics.listeners serves metrics to Prometheus",
    "internal.key.converter": "the format of the group's topics is fixed",
    "internal.value.converter": "the format of the group's topics is fixed",
    "config.storage.": "the topic of configurations is compacted and has one partition",
    "offset.storage.": "the topic of offsets is compacted",
    "status.storage.": "the topic of statuses is compacted",
}


def _advertised_url(value: str) -> None:
    [address] = parse_addresses((value,))
    if not address.host:
        raise ValueError("must name a host")


@dataclass(frozen=True, slots=True)
class WorkerConfig(RestSettings, MonitoringSettings):
    """The settings of a worker itself."""

    bootstrap_servers: str = setting("localhost:9094", "Addresses of nodes, separated by commas.", not_empty)
    group_id: str = setting("connect-cluster", "The group of workers, of which one leads.", not_empty)
    config_storage_topic: str = setting("connect-configs", "The topic of connectors' configurations.", not_empty)
    offset_storage_topic: str = setting("connect-offsets", "The topic of sources' offsets.", not_empty)
    status_storage_topic: str = setting("connect-status", "The topic of statuses.", not_empty)
    offset_storage_partitions: int = setting(
        5, "The partitions of the topic of offsets, when it is created.", between(1, 1000)
    )
    status_storage_partitions: int = setting(
        5, "The partitions of the topic of statuses, when it is created.", between(1, 1000)
    )
    storage_replication_factor: int = setting(
        3, "The replicas of these topics, when they are created; at most one on each node.", between(1, 100)
    )
    rest_advertised_url: str | None = setting(
        None,
        "The URL at which other workers reach this one; by default, that of the listener with "
        "rest.advertised.listener, rest.advertised.host.name and rest.advertised.port.",
        _advertised_url,
    )
    max_connectors: int = setting(200, "The maximum number of connectors in the group.", between(1, 10_000))
    session_timeout_ms: int = setting(
        10_000,
        "The time without a heartbeat after which another worker takes over, in milliseconds.",
        between(1, 3_600_000),
    )
    checkpoint_location: str = setting(
        "connect-checkpoints",
        "The folder of the sinks' checkpoints, as a path or a URI of Hadoop; all workers must see the same folder.",
        not_empty,
    )
    source_poll_interval_ms: int = setting(
        500, "The time after which a source without news is asked again, in milliseconds.", at_least(1)
    )
    sink_trigger_interval_ms: int = setting(
        0, "The time from the begin of a sink's batch to that of the next, in milliseconds; 0 is none.", at_least(0)
    )
    sink_max_offsets_per_trigger: int = setting(
        500_000, "The maximum number of offsets in a sink's batch, which bounds the memory of a batch.", at_least(1)
    )

    key_converter: str = setting(
        STRING_CONVERTER, "The class of the converter of keys for connectors that name none.", not_empty
    )
    value_converter: str = setting(
        STRING_CONVERTER, "The class of the converter of values for connectors that name none.", not_empty
    )
    header_converter: str = setting(
        HEADER_CONVERTER, "The class of the converter of headers for connectors that name none.", not_empty
    )

    @property
    def url(self) -> str:
        """The URL of this worker."""
        if self.rest_advertised_url is not None:
            return self.rest_advertised_url.rstrip("/")
        own = self.advertised
        return f"{own.scheme}://{format_address(own.host or socket.getfqdn(), own.port)}"

    @property
    def worker_id(self) -> str:
        """Host and port of this worker."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """All settings of a worker: its own, those of its clients' security, of Spark, and of converters."""

    worker: WorkerConfig
    security: Mapping[str, str]
    spark: Mapping[str, str]
    converters: Mapping[str, str]
    """The settings of the converters, with those that they have themselves."""
    tls: SslSettings | None
    """The TLS of ``listeners``, and of requests to other workers: ``listeners.https.ssl.KEY``."""
    admin_tls: SslSettings | None
    """The TLS of ``admin.listeners``: ``admin.listeners.https.ssl.KEY``, or that of ``listeners``."""
    admin_addresses: tuple[Address, ...] | None
    """The addresses of ``admin.listeners``: none if it is empty, None if it is not set."""
    monitoring: Mapping[str, ListenerSecurity]
    """The security of the monitoring port's listeners, by name."""

    @property
    def client(self) -> dict[str, str]:
        """The settings of each client."""
        return {"bootstrap.servers": self.worker.bootstrap_servers, **self.security}


def worker_settings(raw: Mapping[str, str]) -> WorkerSettings:
    """Return the settings of a properties file. Those that begin with ``spark.`` are Spark's.

    Raises:
        ConfigError: a key is unknown, or a value is not valid.
    """
    of_security = config_keys(SecurityConfig)
    spark = {key: value for key, value in raw.items() if key.startswith(_SPARK)}
    security = {key: value for key, value in raw.items() if key in of_security}
    of_converters = {key: value for key, value in raw.items() if key.startswith(_OF_CONVERTERS)}
    _check_kafkas_tls(raw, of_security)
    _check_built(raw)
    of_listeners = {key for key in raw if is_tls_key(key) or is_listener_key(key)}
    others = {*spark, *security, *of_converters, *of_listeners}
    parse_config(SecurityConfig, security)
    worker = parse_config(WorkerConfig, {key: value for key, value in raw.items() if key not in others})
    converters = {
        "key.converter": worker.key_converter,
        "value.converter": worker.value_converter,
        "header.converter": worker.header_converter,
        **of_converters,
    }
    check_worker_converters(converters)
    tls, admin_tls = tls_settings(raw, LISTENERS_TLS), tls_settings(raw, ADMIN_TLS)
    worker.check_tls(tls, admin_tls)
    own = {key: value for key, value in raw.items() if is_listener_key(key)}
    monitoring = listener_security(own, worker.monitoring_listeners)
    has_no_admin = not raw.get("admin.listeners", "not set").strip()
    admin_addresses = () if has_no_admin else worker.admin_addresses
    return WorkerSettings(worker, security, spark, converters, tls, admin_tls or tls, admin_addresses, monitoring)


def _check_built(raw: Mapping[str, str]) -> None:
    """Refuse settings of Kafka Connect that a worker does not have, with the reason."""
    own = config_keys(WorkerConfig)
    for key in raw:
        if key in own or is_tls_key(key):
            continue
        prefix = next((each for each in _NOT_BUILT_PREFIXES if key.startswith(each)), "")
        reason = _NOT_BUILT.get(key) or _NOT_BUILT_PREFIXES.get(prefix)
        if reason is not None:
            raise ConfigError(f'configuration "{key}" of Kafka Connect is not supported: {reason}')


def _check_kafkas_tls(raw: Mapping[str, str], of_security: Container[str]) -> None:
    """Refuse Kafka Connect's names of TLS without a prefix, which would be for clients and listeners alike."""
    for key in raw:
        if key in SSL_KEYS and key not in of_security:
            raise ConfigError(
                f'configuration "{key}": set "{LISTENERS_TLS}{key}" for the REST API, and for the connections with the '
                "cluster the security settings of clients, such as ssl.ca.location and ssl.certificate.location"
            )
