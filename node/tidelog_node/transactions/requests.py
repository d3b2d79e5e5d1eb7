"""The requests that one shard of the transaction coordinator answers, and their responses.

A request for several transactional ids arrives split by shard, ListTransactions at each shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.shards.connections import UNORDERED
from tidelog_node.shards.name_regex import NameRegex
from tidelog_node.transactions.states import (
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Producer,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """A request for the producer of a transactional id. Times are in ms."""

    transactional_id: str
    timeout_ms: int
    producer: Producer = NO_PRODUCER
    """The producer that the client has (KIP-360)."""
    is_two_phase: bool = False
    """The transactions take part in an external two-phase commit (KIP-939)."""
    keep_prepared: bool = False
    """An open transaction is kept for the client to end it (KIP-939)."""

    @property
    def effective_timeout_ms(self) -> int:
        """The timeout that is recorded."""
        return NO_TIMEOUT_MS if self.is_two_phase else self.timeout_ms


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    """The producer that the client must use, and that of the transaction that was kept."""

    producer: Producer = NO_PRODUCER
    ongoing: Producer = NO_PRODUCER
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class AddPartitionsRequest:
    """A request to add partitions to the open transaction, or to verify that it has them (AddPartitionsToTxn)."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    version: int = 0
    """The ``transaction.version`` of the client."""
    connection_us: int = UNORDERED
    """The time at which the request's connection was opened, on the monotonic clock."""


PartitionErrors: TypeAlias = Mapping[TopicPartition, TidelogError]


@dataclass(frozen=True, slots=True)
class AddPartitionsResponse:
    """The error of the request, or those of single partitions; an absent partition has none."""

    error: TidelogError | None = None
    errors: PartitionErrors | None = None


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """A request to commit or abort the open transaction."""

    transactional_id: str
    producer: Producer
    committed: bool
    version: int = 0
    """The ``transaction.version`` of the client."""
    connection_us: int = UNORDERED
    """The time at which the request's connection was opened, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """The producer of the next transaction."""

    producer: Producer = NO_PRODUCER
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest:
    """A request for the states of transactional ids."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id, or the error."""

    transactional_id: str
    metadata: TransactionMetadata | None = None
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    """The descriptions in the order of the request."""

    transactions: Sequence[TransactionDescription] = ()
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """A request for the transactional ids that match all filters. An empty filter matches all."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_longer_than_ms: int = -1
    """Only open transactions that began so long ago (KIP-994). Negative values match all."""
    pattern: NameRegex | None = None
    """The pattern of whole transactional ids (KIP-1152). None matches all."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One line of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    """The matching transactional ids, in no particular order."""

    transactions: Sequence[TransactionListing] = ()
    error: TidelogError | None = None


TransactionRequest: TypeAlias = (
    InitProducerIdRequest | AddPartitionsRequest | EndTxnRequest | DescribeTransactionsRequest | ListTransactionsRequest
)
TransactionResponse: TypeAlias = (
    InitProducerIdResponse
    | AddPartitionsResponse
    | EndTxnResponse
    | DescribeTransactionsResponse
    | ListTransactionsResponse
)


def refuse(request: TransactionRequest, error: TidelogError) -> TransactionResponse:
    """Return the response that refuses a request."""
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error=error)
        case AddPartitionsRequest():
            return AddPartitionsResponse(error)
        case EndTxnRequest():
            return EndTxnResponse(error=error)
        case DescribeTransactionsRequest():
            return DescribeTransactionsResponse(error=error)
        case ListTransactionsRequest():
            return ListTransactionsResponse(error=error)
