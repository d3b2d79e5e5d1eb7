"""The numbers that an idempotent producer gives to the batches of one partition (KIP-98, KIP-360).

A leader takes a batch of a producer id and epoch only when its sequence follows the last one, and knows its last five
again. Epochs are each partition's own: a leader compares only what one partition has.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

MAX_EPOCH = 2**15 - 1
SEQUENCES = 2**31
"""Sequences go on at 0 behind 2^31 - 1."""
TRUST_MS = 60_000
"""So long after its last answer a leader is thought to know the producer; far below producer.id.expiration.ms."""
NO_LEADER = -1


class ProducerIdAndEpoch(NamedTuple):
    """What InitProducerId gives."""

    producer_id: int
    epoch: int


class ProducerNumber(NamedTuple):
    """What a batch's header says of its producer."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_NUMBER = ProducerNumber()


class Numbering:
    """One partition's producer id, epoch and next sequence; outlives the partition's queue.

    ``must_bump`` says that the log may not have all that was numbered: the next number begins another epoch, which
    keeps out what is still on its way. ``spent_id`` is an id that may not be used here any more.
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
    def needs_id(self) -> bool:
        """Whether :meth:`take` needs a new producer id."""
        return self.producer_id == NO_PRODUCER_ID or (self.must_bump and self.epoch == MAX_EPOCH)

    def accepts(self, fresh: ProducerIdAndEpoch | None) -> bool:
        """Whether an id is there, and another one than was used here last."""
        return fresh is not None and fresh.producer_id not in (self.producer_id, self.spent_id)

    def take(self, count: int, fresh: ProducerIdAndEpoch | None) -> ProducerNumber:
        """Return the number of the next batch of ``count`` records; ``fresh`` is asked for by :attr:`needs_id`."""
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
        """Say that the producer id is of no use here any more."""
        self.spent_id = self.producer_id
        self.producer_id = NO_PRODUCER_ID
        self.must_bump = True

    def confirm(self, leader: int, now_ms: float) -> None:
        """Say that ``leader`` has a batch of the present epoch: it knows what the next one must be."""
        self._leader, self._leader_ms = leader, now_ms

    def doubt(self) -> None:
        """Say that it is not known who leads and what the leader knows."""
        self._leader = NO_LEADER

    def is_known_to(self, leader: int, now_ms: float) -> bool:
        """Whether ``leader`` knows the producer.

        One that does not takes any sequence, so that a batch could overtake the one before it.
        """
        return self._leader == leader and now_ms - self._leader_ms < TRUST_MS

    def _begin(self) -> None:
        self.next_sequence = 0
        self.must_bump = False
        self.doubt()
