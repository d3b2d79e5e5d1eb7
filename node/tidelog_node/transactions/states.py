"""The states of a transactional id and its recorded metadata (KIP-98, KIP-360, KIP-890, KIP-939)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from tidelog_foundation.dataclass import dataclass

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that takes part in an external two-phase commit: it never times out."""
EPOCH_BUMP_VERSION = 2
"""The first ``transaction.version`` in which each end of a transaction raises the producer's epoch (KIP-890)."""

TopicPartition: TypeAlias = tuple[str, int]


class TransactionState(IntEnum):
    """The state of a transactional id, with its number in __transaction_state."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """The name in DescribeTransactions and ListTransactions, such as ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """True if the transaction has ended and its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open. Only an idle transactional id expires."""
        return self in _IDLE


_IDLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
LEGAL_TRANSITIONS: dict[TransactionState, tuple[TransactionState, ...]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: (TransactionState.ONGOING, *_IDLE),
    TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
    TransactionState.PREPARE_ABORT: (TransactionState.ONGOING, *_IDLE),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
    TransactionState.DEAD: _IDLE,
}
"""The states that each state may follow. PREPARE_ABORT follows an idle state from transaction version 2 on."""


class Producer(NamedTuple):
    """A producer id with its epoch."""

    id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """True if the id has no further epoch for a client. The greatest epoch is reserved for fencing."""
        return self.epoch >= MAX_PRODUCER_EPOCH - 1


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The recorded state of one transactional id (TransactionLogValue). Times are wall-clock times in ms."""

    producer: Producer
    """The producer of the transaction. In a prepared state, its epoch is that of the markers."""
    state: TransactionState
    timeout_ms: int
    updated_ms: int
    started_ms: int = NO_TIMESTAMP
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions of the open transaction."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the current one, for a client that repeats the request that changed it."""
    next_producer: Producer = NO_PRODUCER
    """The producer that the client uses instead of ``producer``.

    In ONGOING, after a client took over a prepared transaction (KIP-939). In a prepared state, from the end of the
    transaction on, if it differs from ``producer``.
    """
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the current one, for a client that repeats the request that raised it."""
    client_version: int = 0
    """The ``transaction.version`` of the client that made the latest change."""

    @property
    def client(self) -> Producer:
        """The producer that the client must use in its next request."""
        return self.producer if self.next_producer.id == NO_PRODUCER_ID else self.next_producer

    @property
    def is_two_phase(self) -> bool:
        """True if the transaction takes part in an external two-phase commit (KIP-939)."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def is_taken_over(self) -> bool:
        """True if a client took over the open transaction in order to end it (KIP-939)."""
        return self.state is TransactionState.ONGOING and self.next_producer.id != NO_PRODUCER_ID

    def times_out_at(self) -> int | None:
        """Return the time at which the open transaction is aborted, or None."""
        if self.state is not TransactionState.ONGOING or self.is_two_phase:
            return None
        return self.started_ms + self.timeout_ms
