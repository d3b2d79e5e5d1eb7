"""What the accumulator is told, and what it asks the shell to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.producer.core.batch import Batch, Delivery


@dataclass(frozen=True, slots=True)
class BatchAcknowledged:
    """The leader has the batch; -1 as ``base_offset`` when it was not asked (acks=0)."""

    batch_id: int
    attempt: int
    base_offset: int
    log_append_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """An attempt failed; ``leader_known`` says that the answer named a newer leader, to be tried at once."""

    batch_id: int
    attempt: int
    error: TidelogError
    leader_known: bool = False


@dataclass(frozen=True, slots=True)
class TopicLearned:
    """A topic has ``count`` partitions, of which ``available`` have a leader."""

    topic: str
    count: int
    available: Sequence[int]


@dataclass(frozen=True, slots=True)
class TopicRefused:
    """The cluster says that a topic does not exist or cannot be used."""

    topic: str
    error: TidelogError


Event = BatchAcknowledged | BatchFailed | TopicLearned | TopicRefused


@dataclass(frozen=True, slots=True)
class Send:
    """Send these batches, each of another partition, to the node that leads them.

    The outcome of ``batches[i]`` must name ``attempts[i]``: the batch may have been sent elsewhere by then.
    """

    node_id: int
    batches: Sequence[Batch]
    attempts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Settle:
    """``count`` records of a partition are acknowledged (``error`` None) or given up, in the order they came."""

    topic: str
    partition: int
    count: int
    deliveries: Sequence[Delivery]
    error: TidelogError | None
    base_offset: int = -1
    log_append_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class AskMetadata:
    """Ask for these topics' partitions and leaders."""

    topics: frozenset[str]


Command = Send | Settle | AskMetadata
