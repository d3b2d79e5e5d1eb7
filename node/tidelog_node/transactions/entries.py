"""The transactional ids of a shard that are in memory. Others are read from the store of committed records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_node.shards.store import RecordStore
from tidelog_node.transactions.requests import AddPartitionsRequest, EndTxnRequest, InitProducerIdRequest
from tidelog_node.transactions.states import TransactionMetadata
from tidelog_node.transactions.store import TransactionStore

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


class Entries:
    """The transactional ids of a shard. Those that are needed are in memory, by id."""

    def __init__(self, store: RecordStore) -> None:
        self._store = TransactionStore(store)
        self._loaded: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        """Iterate over the ids in memory, which may change meanwhile."""
        return iter(tuple(self._loaded.items()))

    def get(self, transactional_id: str) -> Entry:
        """Return the entry of a transactional id, read from the store if it is not in memory."""
        entry = self._loaded.get(transactional_id)
        if entry is None:
            entry = self._loaded[transactional_id] = Entry(self._store.get(transactional_id))
        return entry

    def peek(self, transactional_id: str) -> Entry | None:
        """Return the entry of a transactional id if it is in memory."""
        return self._loaded.get(transactional_id)

    def metadata_of(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, which stays where it is."""
        entry = self._loaded.get(transactional_id)
        return self._store.get(transactional_id) if entry is None else entry.metadata

    def drop_unneeded(self, transactional_id: str) -> None:
        """Drop a transactional id from memory if the store has all of its state."""
        entry = self._loaded.get(transactional_id)
        if entry is not None and not entry.is_needed:
            del self._loaded[transactional_id]

    def ids(self) -> Iterator[str]:
        """Yield every transactional id of the store and of memory, each once."""
        in_memory = tuple(self._loaded)
        yield from in_memory
        known = frozenset(in_memory)
        yield from (name for name in self._store.ids() if name not in known)

    def stored_ids(self) -> Iterator[str]:
        """Yield every transactional id of the store."""
        return self._store.ids()
