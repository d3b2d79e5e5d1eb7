"""Transactional ids in a shard's memory, and the requests, writes and listings that are in progress there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TransactionListing,
    TransactionResponse,
)
from tidelog_node.transactions.states import TransactionMetadata

ActingRequest: TypeAlias = InitProducerIdRequest | AddPartitionsRequest | EndTxnRequest
"""The requests of one transactional id, which wait for each other."""


@dataclass(slots=True)
class Entry:
    """A transactional id in memory."""

    metadata: TransactionMetadata | None = None
    """The state after the last record in the log; None if there is none."""
    open_writes: deque[int] = field(default_factory=deque)
    """The writes in the log that are not committed, in order."""
    is_appending: bool = False
    """A record is on its way to the log; ``metadata`` does not have it yet."""
    waiting: deque[Waiting] = field(default_factory=deque)
    """The requests that wait for the end of a transition, in order of arrival."""
    allocates_id: bool = False
    new_producer_id: int | None = None
    """An allocated producer id that no transition has used yet."""
    markers_sent: bool = False
    """The markers of the prepared state are being written."""

    @property
    def is_needed(self) -> bool:
        """True if the entry has something that the store does not have."""
        is_open = self.metadata is not None and not self.metadata.state.is_idle
        has_id = self.allocates_id or self.new_producer_id is not None
        return bool(self.open_writes or self.waiting) or has_id or is_open


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits for another transition of its transactional id."""

    call_id: int
    request: ActingRequest


@dataclass(frozen=True, slots=True)
class Write:
    """A record that is being written, and the response to send after its commit."""

    transactional_id: str
    metadata: TransactionMetadata | None
    """The state after the record; None removes the transactional id."""
    call_id: int | None = None
    response: TransactionResponse | None = None
    refused: ActingRequest | None = None
    """The request of the call, to be refused if the write fails."""


@dataclass(slots=True)
class Listing:
    """A ListTransactions request in progress."""

    request: ListTransactionsRequest
    left: Iterator[str]
    found: list[TransactionListing] = field(default_factory=list)
