"""The ListTransactions and DescribeTransactions requests of a shard (KIP-664, KIP-994, KIP-1152).

A listing goes through all transactional ids in slices, one per step.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from dataclasses import field

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.transactions.calls import Calls
from tidelog_node.transactions.entries import Entries
from tidelog_node.transactions.requests import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
)
from tidelog_node.transactions.states import TransactionState

_SLICE = 100
_SLICE_CHARS = 10_000
"""The characters of the ids that one step compares with a pattern."""


@dataclass(slots=True)
class Listing:
    """A ListTransactions request in progress."""

    request: ListTransactionsRequest
    left: Iterator[str]
    found: list[TransactionListing] = field(default_factory=list)


class Listings:
    """The listings of one shard that are in progress, by call."""

    def __init__(self, entries: Entries, calls: Calls) -> None:
        self._entries = entries
        self._calls = calls
        self._open: dict[int, Listing] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def calls(self) -> KeysView[int]:
        """Return the calls that wait for listings."""
        return self._open.keys()

    def begin(self, call_id: int, request: ListTransactionsRequest) -> None:
        """Begin a listing."""
        self._open[call_id] = Listing(request, self._entries.ids())

    def abandon(self, call_id: int) -> None:
        """Drop a listing whose caller has gone."""
        self._open.pop(call_id, None)

    def go_on(self, wall_ms: int) -> None:
        """Continue each listing with its next ids."""
        for call_id, listing in list(self._open.items()):
            names = _slice_of(listing.left)
            pattern = listing.request.pattern
            matching = names if pattern is None else pattern.matching(names)
            listing.found += [line for name in matching if (line := self._line(name, listing.request, wall_ms))]
            if not names:
                del self._open[call_id]
                self._calls.answer(call_id, ListTransactionsResponse(listing.found))

    def describe(self, call_id: int, request: DescribeTransactionsRequest) -> None:
        """Answer with the states of transactional ids, once they are durable."""
        found = tuple(self._description(transactional_id) for transactional_id in request.transactional_ids)
        loaded = (self._entries.peek(transactional_id) for transactional_id in request.transactional_ids)
        entries = [entry for entry in loaded if entry is not None]
        self._calls.answer_after_writes(entries, call_id, DescribeTransactionsResponse(found))

    def _description(self, transactional_id: str) -> TransactionDescription:
        metadata = self._entries.metadata_of(transactional_id)
        if metadata is not None:
            return TransactionDescription(transactional_id, metadata)
        text = f"there is no transactional id {transactional_id!r}"
        return TransactionDescription(transactional_id, error=error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text))

    def _line(self, name: str, request: ListTransactionsRequest, wall_ms: int) -> TransactionListing | None:
        metadata = self._entries.metadata_of(name)
        if metadata is None or (request.states and metadata.state not in request.states):
            return None
        if request.producer_ids and metadata.producer.id not in request.producer_ids:
            return None
        least_ms = request.running_longer_than_ms
        is_open = metadata.state is TransactionState.ONGOING or metadata.state.is_prepared
        if least_ms >= 0 and not (is_open and wall_ms - metadata.started_ms > least_ms):
            return None
        return TransactionListing(name, metadata.producer.id, metadata.state)


def _slice_of(left: Iterator[str]) -> list[str]:
    """Return the next ids of a listing, at least one if there is one."""
    names: list[str] = []
    chars = 0
    while len(names) < _SLICE and chars < _SLICE_CHARS and (name := next(left, None)) is not None:
        names.append(name)
        chars += len(name)
    return names
