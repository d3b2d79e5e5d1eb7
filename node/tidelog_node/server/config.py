"""The settings of a node's process. Keys and defaults are Kafka's where Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config import at_least, between, not_empty, one_of, setting
from tidelog.config.endpoints import parse_listener, parse_voters
from tidelog_quorum.metadata import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What ``tidelog-node`` reads from its properties file.

    Raises:
        ValueError: values that do not fit each other; :func:`~tidelog.config.parse_config` makes it a ConfigError.
    """

    node_id: int = setting(check=at_least(0), aliases=("broker.id",), doc="This node's id among the nodes.")
    cluster_id: str = setting(check=not_empty, doc="The cluster's id; whoever has another one is refused.")
    listeners: str = setting(check=parse_listener, doc="Where to listen: GRPC://host:port.")
    advertised_listeners: str | None = setting(
        None, check=parse_listener, doc="How clients and other nodes reach this node; listeners by default."
    )
    controller_quorum_voters: str = setting(check=parse_voters, doc="The controllers: id@host:port,id@host:port,...")
    log_dirs: tuple[str, ...] = setting(
        check=not_empty, aliases=("log.dir",), doc="The folders of the partitions; a new one goes where fewest are."
    )
    broker_rack: str | None = setting(None, doc="The rack: replicas are spread over racks.")
    broker_heartbeat_interval_ms: int = setting(
        2_000, check=at_least(1), doc="How often the node shows the controller that it lives."
    )
    controlled_shutdown_timeout_ms: int = setting(
        30_000, check=at_least(0), doc="How long a stop waits for leaderships to move away."
    )
    replica_lag_time_max_ms: int = setting(
        30_000, check=at_least(1), doc="A follower that has not caught up for longer leaves the ISR."
    )
    replica_fetch_wait_max_ms: int = setting(500, check=at_least(1), doc="How long a follower's fetch waits for data.")
    replica_fetch_min_bytes: int = setting(1, check=at_least(0), doc="The bytes a follower's fetch waits for.")
    replica_fetch_max_bytes: int = setting(
        1024**2, check=at_least(0), doc="The bytes that a follower asks for from one partition."
    )
    replica_fetch_response_max_bytes: int = setting(
        10 * 1024**2, check=at_least(0), doc="The bytes that a follower asks for in one fetch."
    )
    replica_fetch_backoff_ms: int = setting(
        1_000, check=at_least(0), doc="The longest pause of a follower after errors in a row."
    )
    replica_socket_timeout_ms: int = setting(
        30_000, check=at_least(1), doc="How long a follower waits for an answer, beside the wait that it asks for."
    )
    fetch_max_bytes: int = setting(
        50 * 1024**2, check=between(1024, 100 * 1024**2), doc="The most records of one fetch response, in bytes."
    )
    queued_max_request_bytes: int = setting(
        128 * 1024**2, check=at_least(1), doc="The bytes of produce requests under way at which no more are read."
    )
    log_flush_interval_ms: int = setting(
        5_000, check=at_least(1), doc="How long a record may be in memory before it is put on the disk."
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000, check=at_least(1), doc="How often high watermarks and recovery points are written down."
    )
    min_insync_replicas: int = setting(
        1, check=at_least(1), doc="The in-sync replicas that acks=all needs, for topics that do not say."
    )
    message_max_bytes: int = setting(
        1_048_588, check=at_least(0), doc="The largest record batch accepted, for topics that do not say."
    )
    log_segment_bytes: int = setting(
        1024**3, check=between(14, 2**31 - 1), doc="The size at which a segment is closed, for topics that do not say."
    )
    log_index_interval_bytes: int = setting(
        4096, check=at_least(0), doc="The bytes of log between two index entries, for topics that do not say."
    )
    log_index_size_max_bytes: int = setting(
        10 * 1024**2, check=at_least(24), doc="The largest index of a segment, for topics that do not say."
    )
    log_message_timestamp_type: str = setting(
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        doc="Whose time a record has, for topics that do not say: its producer's or the leader's.",
    )

    def __post_init__(self) -> None:
        host, port = self.advertised
        if host in ("0.0.0.0", "::"):
            raise ValueError(f"advertised.listeners must name an address that others can reach, not {host}:{port}")
        if self.advertised_listeners is not None and port == 0:
            raise ValueError(f"advertised.listeners {self.advertised_listeners} has port 0")

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The (host, port) of each controller by id."""
        return parse_voters(self.controller_quorum_voters)

    @property
    def listener(self) -> tuple[str, int]:
        """The (host, port) to listen on; port 0 lets the system choose."""
        return parse_listener(self.listeners)

    @property
    def advertised(self) -> tuple[str, int]:
        """The (host, port) by which others reach this node."""
        return parse_listener(self.advertised_listeners or self.listeners)

    def topic_defaults(self) -> TopicConfig:
        """Return the settings of topics that do not say."""
        return TopicConfig(
            min_insync_replicas=self.min_insync_replicas,
            max_message_bytes=self.message_max_bytes,
            segment_bytes=self.log_segment_bytes,
            index_interval_bytes=self.log_index_interval_bytes,
            segment_index_bytes=self.log_index_size_max_bytes,
            message_timestamp_type=self.log_message_timestamp_type,
        )
