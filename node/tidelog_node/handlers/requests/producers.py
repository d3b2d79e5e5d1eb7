"""Requests about producers: InitProducerId and DescribeProducers."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """A request for a new producer id, or for the producer of a transactional id.

    ``producer_id`` and ``producer_epoch`` are those that the client has, or None (KIP-360). The other
    fields are Kafka's ``enable2Pc`` and ``keepPreparedTxn`` (KIP-939).
    """

    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    producer_id: int | None = None
    producer_epoch: int | None = None
    enable_two_phase_commit: bool = False
    keep_prepared_txn: bool = False


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    """The producer that the client must use, and that of the transaction that was kept, or None."""

    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int | None = None
    ongoing_txn_producer_epoch: int | None = None
    transaction_version: int = 0
    """The finalized level of the feature ``transaction.version``."""


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
