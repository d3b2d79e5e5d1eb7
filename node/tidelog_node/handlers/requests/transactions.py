"""Requests about transactions. The transaction coordinator answers them, except WriteTxnMarkers.

In a request, ``transaction_version`` is the client's version; in a response, it is the finalized one (KIP-890).
"""

from __future__ import annotations

from dataclasses import field

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.transport.message_codec import NOT_IN_MESSAGE
from tidelog_node.shards.connections import UNORDERED

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnTransaction:
    """Partitions to add to the open transaction of a producer, or with ``verify_only`` to find in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool = False
    topics: tuple[TopicPartitions, ...] = ()
    transaction_version: int = 0
    connection_us: int = field(default=UNORDERED, metadata=NOT_IN_MESSAGE)
    """The time at which the request's connection was opened, for the order of a producer's requests."""


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest:
    """A request of a client for one transaction, or of a partition leader for several."""

    transactions: tuple[AddPartitionsToTxnTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnPartitionResult:
    """The outcome for one partition."""

    index: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnTopicResult:
    """The outcomes for partitions of a topic."""

    name: str
    partitions: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResult:
    """The outcome for one transaction: its error, or the outcome for each partition."""

    transactional_id: str
    error: TidelogError | None = None
    topics: tuple[AddPartitionsToTxnTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    """The outcomes in the order of the request."""

    transactions: tuple[AddPartitionsToTxnResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequest:
    """A request to add a group's partition of __consumer_offsets to the open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    connection_us: int = field(default=UNORDERED, metadata=NOT_IN_MESSAGE)
    """The time at which the request's connection was opened."""


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnResponse:
    """The outcome."""

    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """A request to commit or abort the open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int = 0
    connection_us: int = field(default=UNORDERED, metadata=NOT_IN_MESSAGE)
    """The time at which the request's connection was opened."""


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """The producer of the next transaction, or the error."""

    error: TidelogError | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest:
    """A request for the states of transactional ids."""

    transactional_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id, by its name in Kafka's clients, or the error.

    ``transaction_start_time_ms`` is that of the latest transaction, -1 if there was none; ``topics`` are the partitions
    of the open one.
    """

    transactional_id: str
    error: TidelogError | None = None
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    topics: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    """The descriptions in the order of the request."""

    transactions: tuple[TransactionDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """A request for the transactional ids that match all filters. An empty filter matches all.

    ``duration_filter_ms`` selects transactions that have been open for longer (KIP-994), and
    ``transactional_id_pattern``, in the syntax of RE2/J, whole ids (KIP-1152).
    """

    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter_ms: int | None = None
    transactional_id_pattern: str = ""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One line of ListTransactions."""

    transactional_id: str
    producer_id: int
    transaction_state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    """The transactional ids of this node, and the filters that name no state."""

    error: TidelogError | None = None
    transactions: tuple[TransactionListing, ...] = ()
    unknown_state_filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WritableTxnMarker:
    """The end of one transaction, for partitions that the node leads."""

    producer_id: int
    producer_epoch: int
    committed: bool
    topics: tuple[TopicPartitions, ...]
    coordinator_epoch: int
    transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersRequest:
    """A request to append markers to partitions."""

    markers: tuple[WritableTxnMarker, ...] = ()


@dataclass(frozen=True, slots=True)
class WritableTxnMarkerPartitionResult:
    """The outcome for one partition."""

    index: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class WritableTxnMarkerTopicResult:
    """The outcomes for partitions of a topic."""

    name: str
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class WritableTxnMarkerResult:
    """The outcome of one marker."""

    producer_id: int
    topics: tuple[WritableTxnMarkerTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersResponse:
    """The outcomes in the order of the request."""

    markers: tuple[WritableTxnMarkerResult, ...] = ()
