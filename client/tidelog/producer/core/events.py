"""The events of the accumulator, and its commands to the shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tidelog.producer.core.batch import Batch, PendingRecord, Rows
from tidelog.producer.core.engine import Delivery
from tidelog.producer.core.faults import possibly_stored
from tidelog.producer.core.numbering import ProducerNumber
from tidelog_foundation.errors import TidelogError


@dataclass(frozen=True, slots=True)
class BatchAcknowledged:
    """The leader has the batch; ``base_offset`` is -1 if no answer was requested (acks=0)."""

    batch_id: int
    attempt: int
    base_offset: int
    log_append_time_ms: int = -1


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """A failed attempt. ``leader_known`` tells that the answer named a newer leader, to be tried at once.

    ``is_refused`` is True if the leader has not stored the batch, and this attempt cannot store it later.
    """

    batch_id: int
    attempt: int
    error: TidelogError
    leader_known: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class TopicLearned:
    """The metadata of a topic: ``count`` partitions, of which ``available`` have a leader. A new id
    means a new topic.
    """

    topic: str
    count: int
    available: Sequence[int]
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class TopicRefused:
    """The cluster's answer that a topic does not exist or cannot be used."""

    topic: str
    error: TidelogError


@dataclass(frozen=True, slots=True)
class ProducerIdLearned:
    """A unique producer id from the cluster."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ProducerRefused:
    """The cluster's permanent refusal of a producer id or of a login; the producer cannot be used."""

    error: TidelogError


Event = BatchAcknowledged | BatchFailed | TopicLearned | TopicRefused | ProducerIdLearned | ProducerRefused


@dataclass(frozen=True, slots=True)
class Send:
    """Send these batches of distinct partitions to their leader, after all earlier ones.

    The outcome of ``batches[i]`` must name ``attempts[i]``, because the batch may have been sent elsewhere by then. It
    carries ``numbers[i]``, even if the batch has another number by then.
    """

    node_id: int
    batches: Sequence[Batch]
    attempts: Sequence[int]
    numbers: Sequence[ProducerNumber]
    transaction_version: int = 0
    """The version of the protocol of transactions, for batches of one."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Report ``count`` records of a partition as acknowledged (``error`` None) or failed, in their order.

    No log contains failed records or ever will, unless they ``may_be_stored``.
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
    """Request the partitions and leaders of these topics."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class AskProducerId:
    """Request a producer id until the cluster grants or refuses one."""


Command = Send | Settle | AskMetadata | AskProducerId


REQUEST_BYTES = 1_048_576
"""The size up to which batches for one node share a request (Kafka's max.request.size)."""


def requests_to(node_id: int, queues: Sequence[Sequence[Batch]], transaction_version: int = 0) -> Iterator[Send]:
    """Yield the requests for the batches of several partitions, in sending order.

    A request has at most one batch per partition.
    """
    for wave in zip_longest(*queues):
        group: list[Batch] = []
        size = 0
        for batch in filter(None, wave):
            batch_size = batch.builder.size_in_bytes
            if group and size + batch_size > REQUEST_BYTES:
                yield _send(node_id, group, transaction_version)
                group, size = [], 0
            group.append(batch)
            size += batch_size
        if group:
            yield _send(node_id, group, transaction_version)


def _send(node_id: int, batches: Sequence[Batch], transaction_version: int) -> Send:
    attempts, numbers = [batch.attempts for batch in batches], [batch.number for batch in batches]
    return Send(node_id, batches, attempts, numbers, transaction_version)


def settle_batch(batch: Batch) -> Settle:
    """Return the notice of a settled batch."""
    assert batch.outcome is not None
    error, base_offset, append_time_ms = batch.outcome
    may_be_stored = error is not None and batch.may_be_stored
    if error is not None and may_be_stored:
        error = possibly_stored(error)
    return Settle(
        batch.topic,
        batch.partition,
        batch.count,
        batch.deliveries,
        error,
        base_offset,
        append_time_ms,
        may_be_stored,
        batch.rows,
    )


def settle_pending(topic: str, record: PendingRecord, error: TidelogError) -> Settle:
    """Return the notice of a failed record that was in no batch."""
    deliveries = [] if record.on_delivery is None else [record.delivery(0)]
    return Settle(topic, record.partition, 1, deliveries, error)
