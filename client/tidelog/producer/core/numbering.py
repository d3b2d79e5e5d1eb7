"""The numbers of an idempotent producer's batches in one partition (KIP-98, KIP-360).

A leader accepts a batch of a producer id and epoch only if its sequence follows the last one, and recognizes the last
five. Each partition has its own epochs, because a leader compares numbers only within a partition. A transactional
producer has one epoch for all partitions, which its coordinator raises.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

MAX_EPOCH = 2**15 - 1
SEQUENCES = 2**31
"""The number of sequence values; 0 follows 2^31 - 1."""
TRUST_MS = 60_000
"""The time after its last answer for which a leader surely knows the producer; far below producer.id.expiration.ms."""
NO_LEADER = -1


class ProducerIdAndEpoch(NamedTuple):
    """The answer to InitProducerId."""

    producer_id: int
    epoch: int


class ProducerNumber(NamedTuple):
    """The producer's fields in a batch header."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False


NO_NUMBER = ProducerNumber()


class Numbering:
    """One partition's producer id, epoch and next sequence; it outlives the partition's queue.

    ``must_bump`` tells that the log may lack numbered batches: the next number begins another epoch, which fences
    batches still in flight. ``spent_id`` is an id that must not be used here again.
    """

    __slots__ = ("_leader", "_leader_ms", "epoch", "must_bump", "next_sequence", "producer_id", "spent_id")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self.next_sequence = 0
        self.must_bump = False
        self.spent_id = NO_PRODUCER_ID
        self._leader = NO_LEADER
        self._leader_ms = 0.0

    @property
    def may_renumber(self) -> bool:
        """True if a partition may begin another epoch by itself."""
        return True

    @property
    def needs_id(self) -> bool:
        """True if :meth:`take` needs a new producer id."""
        return self.producer_id == NO_PRODUCER_ID or (self.must_bump and self.epoch == MAX_EPOCH)

    def accepts(self, fresh: ProducerIdAndEpoch | None) -> bool:
        """Return True if ``fresh`` is an id other than the one last used here."""
        return fresh is not None and fresh.producer_id not in (self.producer_id, self.spent_id)

    def take(self, count: int, fresh: ProducerIdAndEpoch | None) -> ProducerNumber:
        """Return the number of the next batch of ``count`` records; ``fresh`` is required if :attr:`needs_id`."""
        if self.needs_id:
            assert fresh is not None
            assert self.accepts(fresh)
            self.producer_id, self.epoch = fresh
            self._begin()
        elif self.must_bump:
            self.epoch += 1
            self._begin()
        number = ProducerNumber(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + count) % SEQUENCES
        return number

    def give_up_id(self) -> None:
        """Drop the producer id, which this partition can no longer use."""
        self.spent_id = self.producer_id
        self.producer_id = NO_PRODUCER_ID
        self.must_bump = True

    def confirm(self, leader: int, now_ms: float) -> None:
        """Record that ``leader`` has a batch of the current epoch and thus knows the next sequence."""
        self._leader, self._leader_ms = leader, now_ms

    def doubt(self) -> None:
        """Record that the leader's knowledge of the producer is uncertain."""
        self._leader = NO_LEADER

    def is_known_to(self, leader: int, now_ms: float) -> bool:
        """Return True if ``leader`` knows the producer.

        To a leader that does not know it, any sequence is acceptable, so a batch could overtake an earlier one.
        """
        return self._leader == leader and now_ms - self._leader_ms < TRUST_MS

    def _begin(self) -> None:
        self.next_sequence = 0
        self.must_bump = False
        self.doubt()


class TransactionNumbering(Numbering):
    """The numbers in one partition of a transactional producer, whose id and epoch are those of its transaction.

    With ``must_bump``, no batch gets a number until the producer has another epoch.
    """

    __slots__ = ()

    @property
    def may_renumber(self) -> bool:
        """False: another epoch begins with another transaction."""
        return False

    @property
    def needs_id(self) -> bool:
        """True, because the producer may have changed since the last number."""
        return True

    def accepts(self, fresh: ProducerIdAndEpoch | None) -> bool:
        """Return True if ``fresh`` can number a batch."""
        return fresh is not None and not (self.must_bump and fresh == (self.producer_id, self.epoch))

    def take(self, count: int, fresh: ProducerIdAndEpoch | None) -> ProducerNumber:
        """Return the number of the next batch of ``count`` records of the producer ``fresh``."""
        assert fresh is not None
        assert self.accepts(fresh)
        if fresh != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = fresh
            self._begin()
        number = ProducerNumber(self.producer_id, self.epoch, self.next_sequence, is_transactional=True)
        self.next_sequence = (self.next_sequence + count) % SEQUENCES
        return number

    def give_up_id(self) -> None:
        """Do nothing: the coordinator decides whether the producer is fenced."""

    def rewind(self, base_sequence: int) -> None:
        """Reuse the numbers from ``base_sequence`` on for the same records."""
        self.next_sequence = base_sequence
