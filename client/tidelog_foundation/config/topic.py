"""The settings of a topic and of its partitions' logs, with Kafka's names, defaults and limits."""

from __future__ import annotations

from tidelog_foundation.config.settings import dynamic_int_setting, dynamic_setting
from tidelog_foundation.config.validators import any_of, at_least, between, each_of, one_of, throttled_replicas
from tidelog_foundation.dataclass import dataclass

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

    min_insync_replicas: int = dynamic_int_setting(
        1, "The minimum size of the ISR for a produce request with acks=all.", at_least(1)
    )
    cleanup_policy: tuple[str, ...] = dynamic_setting(
        (CLEANUP_DELETE,),
        "How old segments are handled: delete, compact, or both (compact,delete).",
        each_of(CLEANUP_DELETE, CLEANUP_COMPACT),
    )
    compression_type: str = dynamic_setting(
        PRODUCER_COMPRESSION,
        "The codec of stored batches; producer keeps the producer's codec.",
        one_of(*COMPRESSION_TYPES),
    )
    compression_gzip_level: int = dynamic_int_setting(
        -1, "The compression level for gzip; -1 is the codec's default.", any_of(one_of(-1), between(1, 9))
    )
    compression_lz4_level: int = dynamic_int_setting(9, "The compression level for lz4.", between(1, 17))
    compression_zstd_level: int = dynamic_int_setting(3, "The compression level for zstd.", between(-131_072, 22))
    delete_retention_ms: int = dynamic_setting(
        86_400_000, "How long compaction keeps a tombstone, in milliseconds.", at_least(0)
    )
    file_delete_delay_ms: int = dynamic_setting(
        60_000, "The delay before a deleted file is removed from disk, in milliseconds.", at_least(0)
    )
    flush_messages: int = dynamic_setting(
        UNLIMITED, "The number of records after which the log is synced to disk.", at_least(1)
    )
    flush_ms: int = dynamic_setting(
        5_000, "The time after which a record is synced to disk, in milliseconds.", at_least(0)
    )
    index_interval_bytes: int = dynamic_int_setting(
        4096, "The number of bytes of the log between two index entries.", at_least(0)
    )
    max_compaction_lag_ms: int = dynamic_setting(
        UNLIMITED, "The maximum time for which a record is not eligible for compaction, in milliseconds.", at_least(1)
    )
    max_message_bytes: int = dynamic_int_setting(
        1_048_588, "The largest record batch that is accepted, in bytes.", at_least(0)
    )
    message_timestamp_after_max_ms: int = dynamic_setting(
        3_600_000,
        "The maximum time by which a record's timestamp may be ahead of the leader's clock, in milliseconds.",
        at_least(0),
    )
    message_timestamp_before_max_ms: int = dynamic_setting(
        UNLIMITED,
        "The maximum time by which a record's timestamp may be behind the leader's clock, in milliseconds.",
        at_least(0),
    )
    message_timestamp_type: str = dynamic_setting(
        CREATE_TIME,
        "The source of a record's timestamp: CreateTime (the producer) or LogAppendTime (the leader).",
        one_of(CREATE_TIME, LOG_APPEND_TIME),
    )
    min_cleanable_dirty_ratio: float = dynamic_setting(
        0.5, "The minimum ratio of uncompacted log to total log at which a log is compacted.", between(0, 1)
    )
    min_compaction_lag_ms: int = dynamic_setting(
        0, "The minimum time for which a record remains uncompacted, in milliseconds.", at_least(0)
    )
    preallocate: bool = dynamic_setting(False, "Whether a segment's file is created with its full size.")
    retention_bytes: int = dynamic_setting(
        -1, "The maximum size of a partition, in bytes, before old segments are deleted; -1 is no limit.", at_least(-1)
    )
    retention_ms: int = dynamic_setting(
        604_800_000, "The age at which segments are deleted, in milliseconds; -1 is no limit.", at_least(-1)
    )
    segment_bytes: int = dynamic_int_setting(
        1024**3, "The maximum size of a log segment, in bytes.", between(14, _INT32_MAX)
    )
    segment_index_bytes: int = dynamic_int_setting(
        10 * 1024**2, "The maximum size of a segment's index, in bytes.", at_least(24)
    )
    segment_jitter_ms: int = dynamic_setting(
        0, "The maximum random time by which a segment is closed before segment.ms, in milliseconds.", at_least(0)
    )
    segment_ms: int = dynamic_setting(
        604_800_000, "The age at which a segment is closed even if it is not full, in milliseconds.", at_least(1)
    )
    unclean_leader_election_enable: bool = dynamic_setting(
        False, "Whether a replica outside the ISR may be elected leader if no other can, which loses committed records."
    )
    leader_replication_throttled_replicas: tuple[str, ...] = dynamic_setting(
        (),
        "The replicas to which leader.replication.throttled.rate applies on their leaders: "
        "partition:broker,... or * for all.",
        throttled_replicas,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = dynamic_setting(
        (),
        "The replicas to which follower.replication.throttled.rate applies: partition:broker,... or * for all.",
        throttled_replicas,
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
