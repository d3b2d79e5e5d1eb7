"""Searches for offsets of partitions, with confluent-kafka's names (KIP-396, KIP-734)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, OffsetAndTimestamp
from tidelog.cluster.offsets import search_offsets
from tidelog.message import TopicPartition
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


class IsolationLevel(enum.Enum):
    """The visible end of a partition: the high watermark, or the first record of an open transaction."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @property
    def is_read_committed(self) -> bool:
        """True if the end is the first record of an open transaction."""
        return self is IsolationLevel.READ_COMMITTED


@dataclass(frozen=True, slots=True, order=True)
class OffsetSpec:
    """Identifies an offset. Create it with the class methods."""

    timestamp_ms: int

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Return the spec of the first offset of the log."""
        return cls(EARLIEST_TIMESTAMP)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """Return the spec of the end of the committed records."""
        return cls(LATEST_TIMESTAMP)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Return the spec of the record with the largest timestamp (KIP-734)."""
        return cls(MAX_TIMESTAMP)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """Return the spec of the first record whose timestamp is at least this one, in ms since the epoch.

        Raises:
            KafkaException: _INVALID_ARG for a negative timestamp.
        """
        if timestamp < 0:
            raise error_for(ErrorCode._INVALID_ARG, f"timestamp {timestamp} is not valid: must be at least 0")
        return cls(timestamp)


@dataclass(frozen=True, slots=True)
class ListOffsetsResultInfo:
    """An offset, -1 if no record has such a timestamp. ``timestamp`` is in ms, -1 for the ends of the log."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class OffsetAdmin(Operations):
    """Operations on the offsets of partitions."""

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Return the first offset of each partition, its last, or one found by timestamp.

        ``request_timeout`` is in seconds (default: request.timeout.ms).

        Raises:
            TypeError: a value is not an OffsetSpec.
        """
        for partition, spec in topic_partition_offsets.items():
            if not isinstance(spec, OffsetSpec):
                raise TypeError(f"the value for {partition!r} must be an OffsetSpec, not {spec!r}")
        wanted = {(p.topic, p.partition): spec.timestamp_ms for p, spec in topic_partition_offsets.items()}

        async def find() -> Outcomes[TopicPartition, ListOffsetsResultInfo]:
            timeout_ms = self._request_ms(request_timeout)
            found = await search_offsets(
                self._cluster, wanted, read_committed=isolation_level.is_read_committed, timeout_ms=timeout_ms
            )
            return {TopicPartition(*key): _info(outcome) for key, outcome in found.items()}

        return self._futures(list(topic_partition_offsets), find())


def _info(outcome: OffsetAndTimestamp | TidelogError) -> ListOffsetsResultInfo | TidelogError:
    if isinstance(outcome, TidelogError):
        return outcome
    epoch = outcome.leader_epoch if outcome.leader_epoch >= 0 else None
    return ListOffsetsResultInfo(outcome.offset, outcome.timestamp_ms, epoch)
