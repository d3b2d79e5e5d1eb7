"""Conversion of batches to produce requests, and of answers to the accumulator's events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.events import BatchAcknowledged, BatchFailed, Send
from tidelog.producer.core.partition_queue import REFUSALS
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.common_pb2 import LeaderIdAndEpoch
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

ACKS = {"all": pb.ACKS_ALL, "-1": pb.ACKS_ALL, "1": pb.ACKS_LEADER, "0": pb.ACKS_NONE}

LearnLeader = Callable[[str, int, LeaderIdAndEpoch], bool]


async def encode_batches(send: Send, *, in_thread: bool) -> list[bytes]:
    """Return the encoded batches; ``in_thread`` keeps compression off the event loop."""
    if in_thread and not all(batch.is_encoded for batch in send.batches):
        return await asyncio.to_thread(_encode, send)
    return _encode(send)


def produce_request(
    send: Send, encoded: Sequence[bytes], acks: pb.Acks.ValueType, timeout_ms: int, transactional_id: str | None
) -> pb.ProduceStreamRequest:
    """Return one request for batches of distinct partitions, without its correlation id.

    It is built in place from the outside in, because adding a message to another one copies all its records.
    """
    message = pb.ProduceStreamRequest()
    request = message.request
    request.acks = acks
    request.timeout_ms = timeout_ms
    if transactional_id is not None:
        request.transactional_id = transactional_id
        request.transaction_version = send.transaction_version
    topics: dict[str, pb.ProduceTopic] = {}
    for batch, records in zip(send.batches, encoded, strict=True):
        topic = topics.get(batch.topic)
        if topic is None:
            topic = topics[batch.topic] = request.topics.add(name=batch.topic)
        topic.partitions.add(index=batch.partition, records=records)
    return message


def outcomes(
    send: Send, response: pb.ProduceResponse, learn_leader: LearnLeader, *, is_first: bool = True
) -> list[BatchAcknowledged | BatchFailed]:
    """Return the outcome of each batch; a batch missing from the answer has failed.

    ``is_first`` is false if the request was sent before with an unknown outcome.
    """
    results = {(t.name, p.index): p for t in response.topics for p in t.partitions}
    return [
        _outcome(batch, attempt, results.get((batch.topic, batch.partition)), learn_leader, is_first)
        for batch, attempt in zip(send.batches, send.attempts, strict=True)
    ]


def unconfirmed(send: Send) -> list[BatchAcknowledged | BatchFailed]:
    """Return the outcome of a sent request without an answer (acks=0)."""
    return [BatchAcknowledged(b.batch_id, a, -1) for b, a in zip(send.batches, send.attempts, strict=True)]


def failures(send: Send, error: TidelogError) -> list[BatchAcknowledged | BatchFailed]:
    """Return the failure of all batches of a request."""
    return [BatchFailed(b.batch_id, a, error) for b, a in zip(send.batches, send.attempts, strict=True)]


def _outcome(
    batch: Batch, attempt: int, result: pb.ProducePartitionResult | None, learn_leader: LearnLeader, is_first: bool
) -> BatchAcknowledged | BatchFailed:
    if result is None:
        text = f"the produce response does not contain {batch.topic}-{batch.partition}"
        return BatchFailed(batch.batch_id, attempt, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text))
    if not result.HasField("error"):
        return BatchAcknowledged(batch.batch_id, attempt, result.base_offset, result.log_append_time_ms)
    is_news = result.HasField("current_leader") and learn_leader(batch.topic, batch.partition, result.current_leader)
    error = error_for(result.error.code, result.error.message)
    return BatchFailed(batch.batch_id, attempt, error, is_news, is_refused=is_first and error.code in REFUSALS)


def _encode(send: Send) -> list[bytes]:
    return [batch.encode(number) for batch, number in zip(send.batches, send.numbers, strict=True)]
