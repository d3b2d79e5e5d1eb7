"""The settings of a node's process. Keys and defaults are Kafka's where Kafka has them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidelog.config import any_of, at_least, between, each_of, not_empty, one_of, setting
from tidelog.config.endpoints import parse_listener, parse_voters
from tidelog.config.topic import (
    CLEANUP_COMPACT,
    CLEANUP_DELETE,
    COMPRESSION_TYPES,
    CREATE_TIME,
    LOG_APPEND_TIME,
    PRODUCER_COMPRESSION,
    UNLIMITED,
    TopicConfig,
)

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_at_least_one_or_unlimited = any_of(one_of(-1), at_least(1))


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
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        UNLIMITED, check=at_least(1), doc="How fast replicas are moved from one log directory to another."
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
        5_000, check=at_least(0), doc="How long a record may be in memory before it is put on the disk."
    )
    log_flush_interval_messages: int = setting(
        UNLIMITED, check=at_least(1), doc="After how many records of a partition its log is put on the disk."
    )
    log_flush_scheduler_interval_ms: int = setting(
        1_000, check=at_least(1), doc="How often the node looks which logs are to be put on the disk."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        60_000, check=at_least(1), doc="How often the log start offsets are written down."
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
    compression_type: str = setting(
        PRODUCER_COMPRESSION,
        check=one_of(*COMPRESSION_TYPES),
        doc="The codec that batches are stored with; producer keeps them as they came.",
    )
    compression_gzip_level: int = setting(
        -1, check=any_of(one_of(-1), between(1, 9)), doc="The level for gzip; -1 is the codec's default."
    )
    compression_lz4_level: int = setting(9, check=between(1, 17), doc="The level for lz4.")
    compression_zstd_level: int = setting(3, check=between(-131_072, 22), doc="The level for zstd.")
    log_segment_bytes: int = setting(
        1024**3, check=between(14, 2**31 - 1), doc="The size at which a segment is closed, for topics that do not say."
    )
    log_roll_ms: int | None = setting(
        None, check=at_least(1), doc="The age at which a segment is closed; log.roll.hours when not set."
    )
    log_roll_hours: int = setting(168, check=at_least(1), doc="The age at which a segment is closed, in hours.")
    log_roll_jitter_ms: int | None = setting(
        None, check=at_least(0), doc="At most so much earlier, at random; log.roll.jitter.hours when not set."
    )
    log_roll_jitter_hours: int = setting(0, check=at_least(0), doc="At most so much earlier, at random, in hours.")
    log_preallocate: bool = setting(False, doc="Whether a segment's file gets its full size at once.")
    log_index_interval_bytes: int = setting(
        4096, check=at_least(0), doc="The bytes of log between two index entries, for topics that do not say."
    )
    log_index_size_max_bytes: int = setting(
        10 * 1024**2, check=at_least(24), doc="The largest index of a segment, for topics that do not say."
    )
    log_message_timestamp_type: str = setting(
        CREATE_TIME,
        check=one_of(CREATE_TIME, LOG_APPEND_TIME),
        doc="Whose time a record has, for topics that do not say: its producer's or the leader's.",
    )
    log_message_timestamp_before_max_ms: int = setting(
        UNLIMITED, check=at_least(0), doc="How far a record's timestamp may be behind the leader's time."
    )
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000, check=at_least(0), doc="How far a record's timestamp may be ahead of the leader's time."
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        (CLEANUP_DELETE,),
        check=each_of(CLEANUP_DELETE, CLEANUP_COMPACT),
        doc="What is done with old segments, for topics that do not say: delete, compact, or both.",
    )
    log_retention_ms: int | None = setting(
        None,
        check=_at_least_one_or_unlimited,
        doc="The age at which segments go, -1: never; log.retention.minutes when not set.",
    )
    log_retention_minutes: int | None = setting(
        None,
        check=_at_least_one_or_unlimited,
        doc="The age at which segments go, in minutes; log.retention.hours when not set.",
    )
    log_retention_hours: int = setting(
        168, check=_at_least_one_or_unlimited, doc="The age at which segments go, in hours; -1: never."
    )
    log_retention_bytes: int = setting(
        -1, check=at_least(-1), doc="The size of a partition at which its oldest segments go; -1: none."
    )
    log_retention_check_interval_ms: int = setting(
        300_000, check=at_least(1), doc="How often the node looks for segments that are to be deleted."
    )
    log_segment_delete_delay_ms: int = setting(
        60_000, check=at_least(0), doc="How long a deleted file stays before it is removed from the disk."
    )
    log_cleaner_enable: bool = setting(True, doc="Whether topics with cleanup.policy=compact are compacted.")
    log_cleaner_threads: int = setting(1, check=at_least(1), doc="How many logs are compacted at the same time.")
    log_cleaner_dedupe_buffer_size: int = setting(
        128 * 1024**2, check=at_least(1024**2), doc="The memory of all cleaner threads for the keys of a log, in bytes."
    )
    log_cleaner_io_buffer_size: int = setting(
        512 * 1024, check=at_least(1), doc="The memory of all cleaner threads for reading and writing, in bytes."
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9, check=between(0.01, 1), doc="How full the table of keys may become; more keys are left for the next run."
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        math.inf,
        check=between(1, math.inf),
        doc="What all cleaner threads read and write at most, in bytes per second.",
    )
    log_cleaner_backoff_ms: int = setting(
        15_000, check=at_least(0), doc="How long the cleaner rests when nothing is to be compacted."
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5, check=between(0, 1), doc="The share of a log that is not compacted yet at which it is."
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, check=at_least(0), doc="How long compaction keeps a tombstone, in milliseconds."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, check=at_least(0), doc="How long a record stays at least before it can be compacted."
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        UNLIMITED, check=at_least(1), doc="How long a record may wait at most to be compacted."
    )
    num_recovery_threads_per_data_dir: int = setting(
        2, check=at_least(1), doc="How many logs of one directory are opened and checked at the same time."
    )
    producer_id_expiration_ms: int = setting(
        86_400_000, check=at_least(1), doc="How long a partition remembers an idempotent producer that is silent."
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000, check=at_least(1), doc="How often the node looks for producers that are to be forgotten."
    )

    def __post_init__(self) -> None:
        host, port = self.advertised
        if host in ("0.0.0.0", "::"):
            raise ValueError(f"advertised.listeners must name an address that others can reach, not {host}:{port}")
        if self.advertised_listeners is not None and port == 0:
            raise ValueError(f"advertised.listeners {self.advertised_listeners} has port 0")
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads < 1024**2:
            raise ValueError(
                f"log.cleaner.dedupe.buffer.size {self.log_cleaner_dedupe_buffer_size} is below 1 MiB for each of"
                f" {self.log_cleaner_threads} cleaner threads"
            )
        self.topic_defaults()

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

    @property
    def segment_ms(self) -> int:
        """``log.roll.ms``, or ``log.roll.hours`` where that is not set."""
        return self.log_roll_hours * _HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def segment_jitter_ms(self) -> int:
        """``log.roll.jitter.ms``, or ``log.roll.jitter.hours`` where that is not set."""
        return self.log_roll_jitter_hours * _HOUR_MS if self.log_roll_jitter_ms is None else self.log_roll_jitter_ms

    @property
    def retention_ms(self) -> int:
        """The finest of ``log.retention.ms``, ``.minutes`` and ``.hours`` that is set; -1: never."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return max(-1, self.log_retention_minutes * _MINUTE_MS)
        return max(-1, self.log_retention_hours * _HOUR_MS)

    @property
    def flush_check_interval_ms(self) -> int:
        """How often to look for logs to flush: at least as often as ``log.flush.interval.ms`` asks for."""
        return max(1, min(self.log_flush_scheduler_interval_ms, self.log_flush_interval_ms))

    @property
    def deleted_files_check_interval_ms(self) -> int:
        """How often to look for deleted files to remove: their delay, but neither very often nor seldom."""
        return min(self.log_retention_check_interval_ms, max(_SECOND_MS, self.log_segment_delete_delay_ms))

    def topic_defaults(self) -> TopicConfig:
        """Return the settings of topics that do not say."""
        return TopicConfig(
            min_insync_replicas=self.min_insync_replicas,
            cleanup_policy=self.log_cleanup_policy,
            compression_type=self.compression_type,
            compression_gzip_level=self.compression_gzip_level,
            compression_lz4_level=self.compression_lz4_level,
            compression_zstd_level=self.compression_zstd_level,
            delete_retention_ms=self.log_cleaner_delete_retention_ms,
            file_delete_delay_ms=self.log_segment_delete_delay_ms,
            flush_messages=self.log_flush_interval_messages,
            flush_ms=self.log_flush_interval_ms,
            index_interval_bytes=self.log_index_interval_bytes,
            max_compaction_lag_ms=self.log_cleaner_max_compaction_lag_ms,
            max_message_bytes=self.message_max_bytes,
            message_timestamp_after_max_ms=self.log_message_timestamp_after_max_ms,
            message_timestamp_before_max_ms=self.log_message_timestamp_before_max_ms,
            message_timestamp_type=self.log_message_timestamp_type,
            min_cleanable_dirty_ratio=self.log_cleaner_min_cleanable_ratio,
            min_compaction_lag_ms=self.log_cleaner_min_compaction_lag_ms,
            preallocate=self.log_preallocate,
            retention_bytes=self.log_retention_bytes,
            retention_ms=self.retention_ms,
            segment_bytes=self.log_segment_bytes,
            segment_index_bytes=self.log_index_size_max_bytes,
            segment_jitter_ms=self.segment_jitter_ms,
            segment_ms=self.segment_ms,
        )
