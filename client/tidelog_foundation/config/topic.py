"""The settings of a topic and of its partitions' logs, with Kafka's names, defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.config.settings import setting
from tidelog_foundation.config.validators import any_of, at_least, between, each_of, one_of, throttled_replicas

CLEANUP_DELETE = "delete"
CLEANUP_COMPACT = "compact"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
PRODUCER_COMPRESSION = "producer"
UNLIMITED = 2**63 - 1
"""Kafka's number for "never" in milliseconds and "all" in messages."""

COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", PRODUCER_COMPRESSION)
"""The values of a topic's ``compression.type``."""
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The behavior of a topic's partitions, and the retention and format of their logs.

    Raises:
        ValueError: the values are inconsistent; ``parse_config`` turns it into a ConfigError.
    """

    min_insync_replicas: int = setting(
        1,
        check=at_least(1),
        doc="The minimum size of the ISR for a produce request with acks=all.",
        dynamic=True,
        config_type="INT",
    )
    cleanup_policy: tuple[str, ...] = setting(
        (CLEANUP_DELETE,),
        check=each_of(CLEANUP_DELETE, CLEANUP_COMPACT),
        doc="How old segments are handled: delete, compact, or both (compact,delete).",
        dynamic=True,
    )
    compression_type: str = setting(
        PRODUCER_COMPRESSION,
        check=one_of(*COMPRESSION_TYPES),
        doc="The codec of stored batches; producer keeps the producer's codec.",
        dynamic=True,
    )
    compression_gzip_level: int = setting(
        -1,
        check=any_of(one_of(-1), between(1, 9)),
        doc="The compression level for gzip; -1 is the codec's default.",
        dynamic=True,
        config_type="INT",
    )
    compression_lz4_level: int = setting(
        9, check=between(1, 17), doc="The compression level for lz4.", dynamic=True, config_type="INT"
    )
    compression_zstd_level: int = setting(
        3, check=between(-131_072, 22), doc="The compression level for zstd.", dynamic=True, config_type="INT"
    )
    delete_retention_ms: int = setting(
        86_400_000, check=at_least(0), doc="How long compaction keeps a tombstone, in milliseconds.", dynamic=True
    )
    file_delete_delay_ms: int = setting(
        60_000,
        check=at_least(0),
        doc="The delay before a deleted file is removed from disk, in milliseconds.",
        dynamic=True,
    )
    flush_messages: int = setting(
        UNLIMITED, check=at_least(1), doc="The number of records after which the log is synced to disk.", dynamic=True
    )
    flush_ms: int = setting(
        5_000, check=at_least(0), doc="The time after which a record is synced to disk, in milliseconds.", dynamic=True
    )
    index_interval_bytes: int = setting(
        4096,
        check=at_least(0),
        doc="The number of bytes of the log between two index entries.",
        dynamic=True,
        config_type="INT",
    )
    max_compaction_lag_ms: int = setting(
        UNLIMITED,
        check=at_least(1),
        doc="The maximum time for which a record is not eligible for compaction, in milliseconds.",
        dynamic=True,
    )
    max_message_bytes: int = setting(
        1_048_588,
        check=at_least(0),
        doc="The largest record batch that is accepted, in bytes.",
        dynamic=True,
        config_type="INT",
    )
    message_timestamp_after_max_ms: int = setting(
        3_600_000,
        check=at_least(0),
        doc="The maximum time by which a record's timestamp may be ahead of the leader's clock, in milliseconds.",
        dynamic=True,
    )
    message_timestamp_before_max_ms: int = setting(
        UNLIMITED,
        check=at_least(0),
        doc="The maximum time by which a record's timestamp may be behind the leader's clock, in milliseconds.",
        dynamic=True,
    )
    message_timestamp_type: str = setting(
        CREATE_TIME,
        check=one_of(CREATE_TIME, LOG_APPEND_TIME),
        doc="The source of a record's timestamp: CreateTime (the producer) or LogAppendTime (the leader).",
        dynamic=True,
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        check=between(0, 1),
        doc="The minimum ratio of uncompacted log to total log at which a log is compacted.",
        dynamic=True,
    )
    min_compaction_lag_ms: int = setting(
        0,
        check=at_least(0),
        doc="The minimum time for which a record remains uncompacted, in milliseconds.",
        dynamic=True,
    )
    preallocate: bool = setting(False, doc="Whether a segment's file is created with its full size.", dynamic=True)
    retention_bytes: int = setting(
        -1,
        check=at_least(-1),
        doc="The maximum size of a partition, in bytes, before old segments are deleted; -1 is no limit.",
        dynamic=True,
    )
    retention_ms: int = setting(
        604_800_000,
        check=at_least(-1),
        doc="The age at which segments are deleted, in milliseconds; -1 is no limit.",
        dynamic=True,
    )
    segment_bytes: int = setting(
        1024**3,
        check=between(14, _INT32_MAX),
        doc="The maximum size of a log segment, in bytes.",
        dynamic=True,
        config_type="INT",
    )
    segment_index_bytes: int = setting(
        10 * 1024**2,
        check=at_least(24),
        doc="The maximum size of a segment's index, in bytes.",
        dynamic=True,
        config_type="INT",
    )
    segment_jitter_ms: int = setting(
        0,
        check=at_least(0),
        doc="The maximum random time by which a segment is closed before segment.ms, in milliseconds.",
        dynamic=True,
    )
    segment_ms: int = setting(
        604_800_000,
        check=at_least(1),
        doc="The age at which a segment is closed even if it is not full, in milliseconds.",
        dynamic=True,
    )
    unclean_leader_election_enable: bool = setting(
        False,
        doc="Whether a replica outside the ISR may be elected leader if no other can, which loses committed records.",
        dynamic=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        (),
        check=throttled_replicas,
        doc="The replicas to which leader.replication.throttled.rate applies on their leaders: "
        "partition:broker,... or * for all.",
        dynamic=True,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        (),
        check=throttled_replicas,
        doc="The replicas to which follower.replication.throttled.rate applies: partition:broker,... or * for all.",
        dynamic=True,
    )

    def __post_init__(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ValueError(
                f"min.compaction.lag.ms {self.min_compaction_lag_ms} is above max.compaction.lag.ms"
                f" {self.max_compaction_lag_ms}"
            )

    @property
    def compression_level(self) -> int | None:
        """The level for ``compression.type``; None for a codec without levels or its default."""
        levels = {
            "gzip": None if self.compression_gzip_level == -1 else self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def is_compacted(self) -> bool:
        """True if the cleaner keeps the last record of each key."""
        return CLEANUP_COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """True if retention deletes old segments."""
        return CLEANUP_DELETE in self.cleanup_policy
