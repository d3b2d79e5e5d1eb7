"""The requests of a transactional producer to coordinators, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from tidelog.producer.core.numbering import ProducerIdAndEpoch
from tidelog.producer.core.transaction_scope import TopicPartition
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A prepared transaction's identity, which the other side of a two-phase commit stores (KIP-939).

    ``str()`` and :meth:`parse` convert it to and from text, such as ``1007:3``.
    """

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the identity in a text.

        Raises:
            TidelogError: _INVALID_ARG.
        """
        try:
            producer_id, epoch = map(int, text.split(":"))
        except ValueError:
            reason = f"{text!r} is not a prepared transaction, which has the form producer id:epoch"
            raise error_for(ErrorCode._INVALID_ARG, reason) from None
        return cls(producer_id, epoch)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group that commits offsets in a transaction (KIP-447).

    ``generation_id`` is the generation, or the member's epoch; -1 with an empty ``member_id`` for no member.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """A position to commit. ``leader_epoch`` is that of the last record before it, None if unknown."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A request for a producer (InitProducerId). ``producer`` is the one that the client has (KIP-360), if any."""

    producer: ProducerIdAndEpoch | None
    keep_prepared: bool


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """A request to add partitions to the transaction (AddPartitionsToTxn)."""

    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AddGroup:
    """A request to add a group's offsets to the transaction (AddOffsetsToTxn)."""

    producer: ProducerIdAndEpoch
    group_id: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """A request to the group's coordinator to commit offsets in the transaction (TxnOffsetCommit)."""

    producer: ProducerIdAndEpoch
    member: GroupMember
    offsets: Sequence[OffsetToCommit]
    version: int


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A request to commit or abort the transaction (EndTxn)."""

    producer: ProducerIdAndEpoch
    committed: bool
    version: int


Request: TypeAlias = InitProducer | AddPartitions | AddGroup | CommitOffsets | EndTransaction


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request once. :class:`Answered` or :class:`Unanswered` follows, with the same id."""

    request_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class ProducerGiven:
    """The answer to :class:`InitProducer` and :class:`EndTransaction`.

    It has the producer of the next transaction, the finalized ``transaction.version``, and the kept transaction.
    """

    producer: ProducerIdAndEpoch
    version: int
    kept: ProducerIdAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class PartitionErrors:
    """The answer to :class:`AddPartitions`, :class:`CommitOffsets` and, without errors, :class:`AddGroup`.

    A partition without an entry has no error.
    """

    errors: Mapping[TopicPartition, TidelogError]


@dataclass(frozen=True, slots=True)
class Answered:
    """A coordinator's answer to an :class:`Ask`."""

    request_id: int
    answer: ProducerGiven | PartitionErrors


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The error of a whole request. An error of the client itself leaves the outcome unknown."""

    request_id: int
    error: TidelogError

    @property
    def is_unknown(self) -> bool:
        """True if the request may still be executed, even later."""
        return self.error.code.code < 0
