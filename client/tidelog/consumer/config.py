"""The consumer's settings, with Kafka's and librdkafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidelog.cluster.config import MAX_INT32, TrackingConfig
from tidelog.config import at_least, between, one_of, setting

_NO_GROUPS = "there are no consumer groups yet; assign() names what is read, and nothing is committed"
_GROUP_SETTINGS = (
    *("group.id", "group.instance.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
    *("enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store", "partition.assignment.strategy"),
)
MISSING = dict.fromkeys(_GROUP_SETTINGS, _NO_GROUPS)
"""Settings that users of confluent-kafka know, and why they are refused."""
_RESETS = {
    "earliest": EARLIEST_TIMESTAMP,
    "smallest": EARLIEST_TIMESTAMP,
    "beginning": EARLIEST_TIMESTAMP,
    "latest": LATEST_TIMESTAMP,
    "largest": LATEST_TIMESTAMP,
    "end": LATEST_TIMESTAMP,
    "error": None,
}


def _must_be_true(value: bool) -> None:
    if not value:
        raise ValueError("must be true: the CRC of every batch is checked")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(TrackingConfig):
    """Where reading starts, how much is fetched at a time and how much is kept ready."""

    auto_offset_reset: str = setting(
        "latest",
        doc="Where to read from without a valid offset: earliest (smallest, beginning), latest (largest, end), or "
        "error: report _AUTO_OFFSET_RESET.",
        check=one_of(*_RESETS),
    )
    enable_partition_eof: bool = setting(False, doc="Whether poll() reports _PARTITION_EOF at the end of a partition.")
    fetch_min_bytes: int = setting(
        1, doc="A node answers at once when it has so many bytes.", check=between(1, 100_000_000)
    )
    fetch_wait_max_ms: int = setting(
        500,
        doc="How long a node may wait for fetch.min.bytes.",
        check=between(0, 300_000),
        aliases=("fetch.max.wait.ms",),
    )
    fetch_max_bytes: int = setting(
        52_428_800, doc="About the most bytes of one answer; one batch is always returned.", check=at_least(1)
    )
    max_partition_fetch_bytes: int = setting(
        1_048_576,
        doc="About the most bytes of one partition in an answer; one batch is always returned.",
        check=between(1, MAX_INT32),
        aliases=("fetch.message.max.bytes",),
    )
    queued_max_messages_kbytes: int = setting(
        65_536, doc="Nothing more is fetched while so many KiB wait for poll().", check=between(1, 2_097_151)
    )
    client_rack: str = setting(
        "",
        doc="Where the consumer is, as broker.rack says it of a node: it may be told to read from a replica near by in "
        "place of the leader (replica.selector.class of the nodes).",
    )
    allow_auto_create_topics: bool = setting(
        False, doc="Whether a topic that is not there may be created, if the nodes have auto.create.topics.enable."
    )
    check_crcs: bool = setting(
        True, doc="The CRC of every batch is checked; cannot be turned off.", check=_must_be_true
    )

    @property
    def reset_timestamp_ms(self) -> int | None:
        """What to look up without a valid offset; None reports an error."""
        return _RESETS[self.auto_offset_reset]
