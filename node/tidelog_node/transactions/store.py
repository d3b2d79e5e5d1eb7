"""The committed transactional ids of a shard, decoded from the materialized view of its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tidelog_node.transactions.states import TransactionMetadata


class TransactionStore(Protocol):
    """The newest committed state of every transactional id of a shard.

    The shell applies records before it reports RecordsCommitted.
    """

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, or None."""
        ...

    def ids(self) -> Iterator[str]:
        """Return all transactional ids, each once. Records may be applied during the iteration."""
        ...
