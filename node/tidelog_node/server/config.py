"""The settings of a node's process. Keys and defaults are Kafka's if Kafka has them."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Mapping

from tidelog_foundation.authorization.settings import AuthorizerSettings
from tidelog_foundation.config import (
    any_of,
    at_least,
    between,
    describe,
    endpoints,
    int_setting,
    not_empty,
    one_of,
    setting,
)
from tidelog_foundation.config.health import HealthSettings
from tidelog_foundation.config.kafka_file import node_settings
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.logs.settings import LoggingSettings
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.sasl.settings import SaslSettings
from tidelog_foundation.sasl.token_settings import TokenKey
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_node.handlers.context import VerificationSettings
from tidelog_node.replication.replica_selector import LEADER_SELECTOR, SELECTORS
from tidelog_node.server.kafka_config import KafkaListenerConfig
from tidelog_node.telemetry.client_telemetry import TelemetryLimits

logger = logging.getLogger(__name__)

_SECOND_MS = 1_000
_at_least_one_or_unlimited = any_of(one_of(-1), at_least(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(
    KafkaListenerConfig,
    HealthSettings,
    LoggingSettings,
    MonitoringSettings,
    SslSettings,
    SaslSettings,
    TokenKey,
    AuthorizerSettings,
):
    """The settings in the properties file of ``tidelog-node``, including those that can change at run time.

    Raises:
        ValueError: Values contradict each other. ``parse_config`` turns it into a ConfigError.
    """

    node_id: int = int_setting(doc="This node's id, unique among the nodes.", check=at_least(0), aliases=("broker.id",))
    cluster_id: str = setting(doc="The cluster's id; processes with another id are refused.", check=not_empty)
    listeners: str = setting(
        doc="The addresses to listen on: NAME://host:port,NAME://host:port,... listener.security.protocol.map has"
        " the protocol of each name. At least one listener speaks gRPC, and any number speak Kafka's protocol,"
        " for example GRPC://host:9094,PLAINTEXT://host:9092. Without a host, NAME://:port listens on all "
        "addresses and advertises the machine's canonical name.",
        check=endpoints.parse_listeners,
    )
    listener_security_protocol_map: str = setting(
        endpoints.DEFAULT_PROTOCOL_MAP,
        "The protocol of each listener: NAME:PROTOCOL,NAME:PROTOCOL,... For gRPC it is GRPC, GRPC_SSL with TLS, or "
        "GRPC_SASL_PLAINTEXT and GRPC_SASL_SSL with SASL; for Kafka's protocol PLAINTEXT, SSL with TLS, or "
        "SASL_PLAINTEXT and SASL_SSL with SASL.",
        endpoints.parse_protocol_map,
    )
    advertised_listeners: str | None = setting(
        None,
        "The addresses under which clients and other nodes reach this node's listeners, by name; a listener "
        "without one is not advertised. Defaults to listeners.",
        endpoints.parse_advertised_listeners,
    )
    bootstrap_listeners: str | None = setting(
        None,
        "Further addresses at which listeners accept connections, by name: NAME://host:port,... Other processes of the "
        "same user may have them too, so that one address leads clients to all nodes of a machine, of which metadata "
        "then name the addresses. tidelog-node --processes sets it.",
        endpoints.parse_listeners,
    )
    inter_broker_listener_name: str | None = setting(
        None,
        "The listener over which nodes fetch from each other. Defaults to PLAINTEXT, else the first that "
        "speaks Kafka's protocol, else the one that speaks gRPC. A node cannot fetch from a node without this"
        " listener: to change the name, first add the listener to all nodes while they still have the old "
        "name here.",
        not_empty,
    )
    security_inter_broker_protocol: str | None = setting(
        None,
        "The security protocol between nodes, in place of inter.broker.listener.name: the listener with this name is "
        "used.",
        one_of(*endpoints.PROTOCOLS),
    )
    controller_listener_names: str = setting(
        endpoints.GRPC,
        "The names of the controllers' listeners. The node uses the first, whose protocol in "
        "listener.security.protocol.map is GRPC, or another one of gRPC to connect with TLS or SASL, for which "
        "listener.name.<name>. has the settings.",
        not_empty,
        config_type="LIST",
    )
    controller_quorum_voters: str | None = setting(
        None, "The controllers, as id@host:port,id@host:port,...", endpoints.parse_voters, config_type="LIST"
    )
    controller_quorum_bootstrap_servers: str | None = setting(
        None,
        "Addresses of controllers, as host:port,host:port,..., from which the node learns the others. Set "
        "this or controller.quorum.voters.",
        endpoints.parse_addresses,
        config_type="LIST",
    )
    log_dirs: tuple[str, ...] = setting(
        doc="The directories of the partitions; a new replica goes to the one with the fewest.",
        check=not_empty,
        config_type="STRING",
        aliases=("log.dir",),
    )
    broker_rack: str | None = setting(None, "The node's rack. The replicas of a partition are spread over racks.")
    auto_create_topics_enable: bool = setting(
        True, "Whether a missing topic is created when a client requests it and permits that."
    )
    num_partitions: int | None = int_setting(
        None,
        "The number of partitions of topics that this node creates automatically. By default, and for -1 in a request "
        "to create a topic, num.partitions of the controllers applies.",
        at_least(1),
    )
    default_replication_factor: int | None = int_setting(
        None,
        "The number of replicas of topics that this node creates automatically. By default, and for -1 in a request "
        "to create a topic, default.replication.factor of the controllers applies.",
        at_least(1),
    )
    broker_heartbeat_interval_ms: int = int_setting(
        2_000, "The interval between heartbeats to the controller, in milliseconds.", at_least(1)
    )
    controlled_shutdown_timeout_ms: int = setting(
        30_000,
        "The maximum time for which a stopping node waits for its leaderships to move, in milliseconds. In the first "
        "70 % of it, it waits for replicas that catch up and without which partitions would fall below "
        "min.insync.replicas.",
        at_least(0),
    )
    replica_lag_time_max_ms: int = setting(
        30_000, "The time for which a follower may lag before it leaves the ISR, in milliseconds.", at_least(1)
    )
    replica_fetch_wait_max_ms: int = int_setting(
        500, "The maximum time for which a follower's fetch waits for data, in milliseconds.", at_least(1)
    )
    replica_fetch_min_bytes: int = int_setting(
        1, "The number of bytes at which a follower's fetch is answered immediately.", at_least(0)
    )
    replica_fetch_max_bytes: int = int_setting(
        1024**2, "The number of bytes that a follower requests of one partition.", at_least(0)
    )
    replica_fetch_response_max_bytes: int = int_setting(
        10 * 1024**2, "The number of bytes that a follower requests in one fetch.", at_least(0)
    )
    replica_fetch_backoff_ms: int = int_setting(
        1_000, "The maximum pause of a follower after consecutive errors, in milliseconds.", at_least(0)
    )
    replica_socket_timeout_ms: int = int_setting(
        30_000,
        "The time for which a follower waits for a response, in addition to the fetch's own wait, in milliseconds.",
        at_least(1),
    )
    fetch_max_bytes: int = int_setting(
        50 * 1024**2, "The maximum size of the records in a fetch response, in bytes.", between(1024, 100 * 1024**2)
    )
    queued_max_request_bytes: int = setting(
        128 * 1024**2,
        "The bytes of produce requests under way, those that wait for acks included, at which no more are read. "
        "A quarter as much may wait; further requests are refused with THROTTLING_QUOTA_EXCEEDED, which producers send "
        "again. What a connection's next request takes, about 2 MiB, is on top. A Kafka client's request is received "
        "when there is room for it, and never refused; those larger than 64 KiB that are not produced have a quarter "
        "as much of their own. gRPC requests take their bytes from the same budgets before they are parsed; one "
        "that is larger than the whole budget is refused with RESOURCE_EXHAUSTED.",
        at_least(1),
    )
    queued_max_response_bytes: int = setting(
        256 * 1024**2,
        "The memory of unsent fetch responses, in bytes, including those that wait for slow clients. A "
        "response counts twice its size. Consumers get at most three quarters.",
        at_least(1024**2),
    )
    max_incremental_fetch_session_cache_slots: int = int_setting(
        1_000, "The maximum number of fetch sessions of followers and consumers.", at_least(0)
    )
    replica_selector_class: str = setting(
        LEADER_SELECTOR,
        "Selects the replica that consumers read from: the leader, or with RackAwareReplicaSelector a replica"
        " in their rack (client.rack). Kafka's package name is optional.",
        one_of(*SELECTORS),
    )
    log_flush_scheduler_interval_ms: int = setting(
        1_000, "The interval between checks for logs to sync, in milliseconds.", at_least(1)
    )
    log_flush_start_offset_checkpoint_interval_ms: int = int_setting(
        60_000, "The interval between checkpoints of log start offsets, in milliseconds.", at_least(1)
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000, "The interval between checkpoints of high watermarks and recovery points, in milliseconds.", at_least(1)
    )
    log_roll_hours: int = int_setting(168, "The age at which a segment is closed, in hours.", at_least(1))
    log_roll_jitter_hours: int = int_setting(
        0, "The maximum random time by which a segment is closed early, in hours.", at_least(0)
    )
    log_retention_minutes: int | None = int_setting(
        None,
        "The age at which segments are deleted, in minutes; log.retention.hours if not set.",
        _at_least_one_or_unlimited,
    )
    log_retention_hours: int = int_setting(
        168, "The age at which segments are deleted, in hours; -1 is no limit.", _at_least_one_or_unlimited
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "The interval between checks for segments to delete, in milliseconds.", at_least(1)
    )
    log_cleaner_enable: bool = setting(True, "Whether topics with cleanup.policy=compact are compacted.")
    num_recovery_threads_per_data_dir: int = int_setting(
        2, "The number of logs of one directory that are opened and checked at the same time.", at_least(1)
    )
    add_partitions_to_txn_retry_backoff_ms: int = int_setting(
        20,
        "The interval at which a partition leader repeats its request to add a partition to a transaction while the "
        "producer's last transaction is being completed, in milliseconds.",
        at_least(1),
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = int_setting(
        100, "The maximum time for which it does so, in milliseconds.", at_least(0)
    )
    producer_id_expiration_ms: int = int_setting(
        86_400_000,
        "The time for which a partition remembers an inactive idempotent producer, in milliseconds.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = int_setting(
        600_000, "The interval between checks for producers to forget, in milliseconds.", at_least(1)
    )

    telemetry_max_bytes: int = int_setting(
        1024 * 1024, "The maximum size of the metrics that a client pushes (KIP-714), compressed or not.", at_least(1)
    )
    metrics_client_instances_max: int = int_setting(
        100, "The number of client instances whose pushed metrics (KIP-714) the node exports.", at_least(0)
    )
    metrics_client_series_max: int = int_setting(
        5_000, "The number of series of the metrics that clients have pushed to the node.", at_least(0)
    )
    metrics_group_offsets_max: int = int_setting(
        1_000,
        "The number of committed offsets of groups with metrics: a partition of a group each.",
        at_least(0),
    )
    metrics_topics_max: int = int_setting(
        1_000,
        "The number of topics with metrics of their own. All others share the label (other).",
        at_least(0),
    )

    def __post_init__(self) -> None:
        if not self.controller_quorum_voters and not self.bootstrap:
            raise ValueError("controller.quorum.voters or controller.quorum.bootstrap.servers must be set")
        if self.inter_broker_listener_name and self.security_inter_broker_protocol:
            raise ValueError("only one of inter.broker.listener.name and security.inter.broker.protocol can be set")
        delay_ms = self.connection_failed_authentication_delay_ms
        if delay_ms >= self.connections_max_idle_ms:
            raise ValueError(
                f"connection.failed.authentication.delay.ms {delay_ms} must be less than connections.max.idle.ms "
                f"{self.connections_max_idle_ms}"
            )
        taken = {x.name for x in self._listeners().bound} & {x.name for x in self.monitoring_listeners}
        if taken:
            raise ValueError(f"listeners and metrics.listeners both have a listener with the name {min(taken)}")
        self.controller_listener  # noqa: B018  # it raises
        self.shared_listeners  # noqa: B018  # it raises
        self.group_settings()
        # Not super(): the class with slots differs from the one that the compiler refers to.
        KafkaListenerConfig.__post_init__(self)

    def telemetry_limits(self) -> TelemetryLimits:
        """Return the limits of the metrics that clients push."""
        return TelemetryLimits(
            self.telemetry_max_bytes, self.metrics_client_instances_max, self.metrics_client_series_max
        )

    def verification_settings(self) -> VerificationSettings:
        """Return the settings of the verification of transactions."""
        return VerificationSettings(
            self.transaction_partition_verification_enable,
            self.add_partitions_to_txn_retry_backoff_ms,
            self.add_partitions_to_txn_retry_backoff_max_ms,
        )

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The (host, port) of each controller by id, empty if only bootstrap servers are configured."""
        return endpoints.parse_voters(self.controller_quorum_voters) if self.controller_quorum_voters else {}

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The (host, port) of each bootstrap controller."""
        return endpoints.parse_addresses(self.controller_quorum_bootstrap_servers or "")

    @property
    def all_listeners(self) -> tuple[endpoints.NamedListener, ...]:
        """The listeners of all protocols. Port 0 lets the system choose."""
        return self._listeners().bound

    @property
    def controller_listener(self) -> endpoints.NamedListener:
        """The name and protocol of the controllers' listener, without an address."""
        return endpoints.parse_controller_listener(self.controller_listener_names, self.listener_security_protocol_map)

    @property
    def grpc_listener(self) -> endpoints.NamedListener:
        """The first gRPC listener. Port 0 lets the system choose."""
        return self.grpc_listeners[0]

    @property
    def grpc_listeners(self) -> tuple[endpoints.NamedListener, ...]:
        """The gRPC listeners, at least one. A client reaches all nodes over the listener of the same name."""
        return self._listeners().grpc

    @property
    def kafka_listeners(self) -> tuple[endpoints.NamedListener, ...]:
        """The Kafka listeners. Port 0 lets the system choose."""
        return self._listeners().kafka

    @property
    def shared_listeners(self) -> tuple[endpoints.NamedListener, ...]:
        """The listeners' further addresses, which processes share."""
        return endpoints.parse_bootstrap_listeners(self.bootstrap_listeners, self._listeners().bound)

    @property
    def inter_broker_listener(self) -> endpoints.NamedListener:
        """The listener for fetches between nodes, with its advertised address."""
        return self._listeners().inter_broker

    def advertised_endpoints(self, ports: Mapping[str, int]) -> tuple[endpoints.NamedListener, ...]:
        """Return the advertised listeners of this node, given the bound ports by listener name."""
        return tuple(
            dataclasses.replace(x, host=x.host or socket.getfqdn(), port=x.port or ports.get(x.name, 0))
            for x in self._listeners().advertised
        )

    def _listeners(self) -> endpoints.BrokerListeners:
        return endpoints.parse_broker_listeners(
            self.listeners,
            self.listener_security_protocol_map,
            self.advertised_listeners,
            self.inter_broker_listener_name or self.security_inter_broker_protocol,
        )

    @property
    def flush_check_interval_ms(self) -> int:
        """The interval of checks for logs to flush, at most ``log.flush.interval.ms``."""
        return max(1, min(self.log_flush_scheduler_interval_ms, self.topic_defaults().flush_ms))

    @property
    def deleted_files_check_interval_ms(self) -> int:
        """The interval of checks for deleted files to remove: their delay, within limits."""
        return min(self.log_retention_check_interval_ms, max(_SECOND_MS, self.log_segment_delete_delay_ms))


def read_node_properties(file: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a node in a properties file, and log a warning of those without meaning.

    Raises:
        ConfigError: The file is that of a process without a node.
    """
    found = node_settings(file, {info.key for info in describe(NodeConfig)})
    if found.warning is not None:
        logger.warning("%s", found.warning)
    return found.properties
