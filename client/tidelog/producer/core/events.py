"""What the accumulator is told, and what it asks the shell to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.producer.core.batch import Batch, Rows
from tidelog.producer.core.engine import Delivery
from tidelog.producer.core.numbering import ProducerNumber
from tidelog_foundation.errors import TidelogError


@dataclass(frozen=True, slots=True)
class BatchAcknowledged:
    """The leader has the batch; -1 as ``base_offset`` when it was not asked (acks=0)."""

    batch_id: int
    attempt: int
    base_offset: int
    log_append_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """An attempt failed; ``leader_known`` says that the answer named a newer leader, to be tried at once.

    ``is_refused`` says that the leader has not stored the batch, and will not by this attempt.
    """

    batch_id: int
    attempt: int
    error: TidelogError
    leader_known: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class TopicLearned:
    """A topic has ``count`` partitions, of which ``available`` have a leader; another id means that it is a new one."""

    topic: str
    count: int
    available: Sequence[int]
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class TopicRefused:
    """The cluster says that a topic does not exist or cannot be used."""

    topic: str
    error: TidelogError


@dataclass(frozen=True, slots=True)
class ProducerIdLearned:
    """The cluster gave a producer id, which nobody else has."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdRefused:
    """The cluster gives this producer no id, now or later: it cannot be used."""

    error: TidelogError


Event = BatchAcknowledged | BatchFailed | TopicLearned | TopicRefused | ProducerIdLearned | ProducerIdRefused


@dataclass(frozen=True, slots=True)
class Send:
    """Send these batches, each of another partition, to the node that leads them, behind what it was sent before.

    The outcome of ``batches[i]`` must name ``attempts[i]``: the batch may have been sent elsewhere by then. It goes
    with the number ``numbers[i]``, also when it has another one by then.
    """

    node_id: int
    batches: Sequence[Batch]
    attempts: Sequence[int]
    numbers: Sequence[ProducerNumber]


@dataclass(frozen=True, slots=True)
class Settle:
    """``count`` records of a partition are acknowledged (``error`` None) or given up, in the order they came.

    Those that are given up are in no log and come into none, unless they ``may_be_stored``.
    """

    topic: str
    partition: int
    count: int
    deliveries: Sequence[Delivery]
    error: TidelogError | None
    base_offset: int = -1
    log_append_time_ms: int = -1
    may_be_stored: bool = False
    rows: Rows | None = None


@dataclass(frozen=True, slots=True)
class AskMetadata:
    """Ask for these topics' partitions and leaders."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class AskProducerId:
    """Ask the cluster for a producer id, again until it gives or refuses one."""


Command = Send | Settle | AskMetadata | AskProducerId
