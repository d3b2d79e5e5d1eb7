"""The settings of a partition's log, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config import at_least, between, one_of, setting

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a :class:`~tidelog_node.log.log.PartitionLog` needs to know of its topic's configuration."""

    segment_bytes: int = setting(
        1 << 30, doc="The size in bytes at which a segment is closed.", check=between(14, _INT32_MAX), dynamic=True
    )
    index_interval_bytes: int = setting(
        4096, doc="How many bytes of a segment lie between two index entries.", check=at_least(0), dynamic=True
    )
    segment_index_bytes: int = setting(
        10 << 20, doc="The size of an index at which its segment is closed.", check=at_least(24), dynamic=True
    )
    max_message_bytes: int = setting(
        1_048_588, doc="The largest record batch that a producer may write.", check=at_least(0), dynamic=True
    )
    message_timestamp_type: str = setting(
        CREATE_TIME,
        doc="Whether a record keeps its producer's timestamp or gets the time of the append.",
        check=one_of(CREATE_TIME, LOG_APPEND_TIME),
        dynamic=True,
    )
