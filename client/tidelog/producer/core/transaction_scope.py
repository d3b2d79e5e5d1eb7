"""The open transaction of a producer, as the accumulator sees it."""

from __future__ import annotations

from tidelog.producer.core.numbering import ProducerIdAndEpoch
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

TopicPartition = tuple[str, int]
IMPLICIT_VERSION = 2
"""The first ``transaction.version`` in which leaders add partitions to transactions (KIP-890)."""


class TransactionScope:
    """The accumulator's view of transactions. The transaction manager changes it.

    ``refusal`` is the error of a new record, None if a transaction is open. Batches are sent only in an open
    transaction that no record has failed. ``failure`` is the error of its first failed record.
    """

    def __init__(self) -> None:
        self.refusal: TidelogError | None = error_for(
            ErrorCode._STATE, "there is no open transaction: call begin_transaction() first"
        )
        self.failure: TidelogError | None = None
        self.version = 0
        self.producer: ProducerIdAndEpoch | None = None
        self.enlisted: set[TopicPartition] = set()
        """The partitions in the transaction. With version 2, a partition is added by its leader."""
        self.wanted: set[TopicPartition] = set()
        """Partitions with ready batches that are not in the transaction."""
        self.is_sending = False
        self.has_sent = False
        """True if a batch of this transaction may have arrived at a leader."""

    def open(self, producer: ProducerIdAndEpoch, version: int) -> None:
        """Begin a transaction of a producer."""
        self.refusal = self.failure = None
        self.producer, self.version = producer, version
        self.enlisted, self.wanted = set(), set()
        self.is_sending, self.has_sent = True, False

    def may_send(self, partition: TopicPartition) -> bool:
        """Return True if a batch may go to a partition; otherwise note that the partition is wanted."""
        if not self.is_sending:
            return False
        if self.version < IMPLICIT_VERSION and partition not in self.enlisted:
            self.wanted.add(partition)
            return False
        return True
