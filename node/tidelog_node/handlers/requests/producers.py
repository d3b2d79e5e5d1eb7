"""Requests about producers: InitProducerId and DescribeProducers."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """A request for a new producer id."""


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    """A new producer id with its first epoch."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest:
    """A request for the producers of partitions."""

    topics: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer's last write to a partition. -1 stands for an unknown or absent value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


@dataclass(frozen=True, slots=True)
class DescribeProducersPartitionResult:
    """The producers of one partition, or an error."""

    index: int
    error: TidelogError | None = None
    active_producers: tuple[ActiveProducer, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeProducersTopicResult:
    """The results for one topic, in the order of the request."""

    name: str
    partitions: tuple[DescribeProducersPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class DescribeProducersResponse:
    """The producers."""

    topics: tuple[DescribeProducersTopicResult, ...]
