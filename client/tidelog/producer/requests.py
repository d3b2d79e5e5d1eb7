"""Conversion of batches to produce requests, and of answers to the accumulator's events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

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


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A ProduceRequest as the parts of its encoding.

    A record is copied once more on its way to gRPC. protobuf would copy it into the message, out of it, and whenever
    the memory of the encoded message grows.
    """

    parts: Sequence[bytes]
    size: int

    def stream_message(self, correlation_id: int) -> bytes:
        """Return the encoded ProduceStreamRequest."""
        first = pb.ProduceStreamRequest(correlation_id=correlation_id).SerializeToString()
        return b"".join((first, _REQUEST_KEY, _varint(self.size), *self.parts))

    def message(self) -> pb.ProduceRequest:
        """Return the request for the unary method."""
        return pb.ProduceRequest.FromString(b"".join(self.parts))


def produce_request(
    send: Send, encoded: Sequence[bytes], acks: pb.Acks.ValueType, timeout_ms: int, transactional_id: str | None
) -> EncodedRequest:
    """Return one request for batches of distinct partitions."""
    head = pb.ProduceRequest(acks=acks, timeout_ms=timeout_ms)
    if transactional_id is not None:
        head.transactional_id = transactional_id
        head.transaction_version = send.transaction_version
    topics: dict[str, list[bytes]] = {}
    for batch, records in zip(send.batches, encoded, strict=True):
        parts = topics.get(batch.topic)
        if parts is None:
            parts = topics[batch.topic] = [pb.ProduceTopic(name=batch.topic).SerializeToString()]
        index = pb.ProducePartition(index=batch.partition).SerializeToString()
        parts += _field(_PARTITIONS_KEY, [index, _RECORDS_KEY, _varint(len(records)), records])
    whole = [head.SerializeToString()]
    for parts in topics.values():
        whole += _field(_TOPICS_KEY, parts)
    return EncodedRequest(whole, sum(map(len, whole)))


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


def _field(key: bytes, content: Sequence[bytes]) -> list[bytes]:
    """Return the parts of a field of protobuf whose content has a length."""
    return [key, _varint(sum(map(len, content))), *content]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _key(message_type: type[Message], name: str) -> bytes:
    return _varint(message_type.DESCRIPTOR.fields_by_name[name].number << 3 | _WITH_LENGTH)


_WITH_LENGTH = 2
"""The wire type of messages, bytes and text."""
_REQUEST_KEY = _key(pb.ProduceStreamRequest, "request")
_TOPICS_KEY = _key(pb.ProduceRequest, "topics")
_PARTITIONS_KEY = _key(pb.ProduceTopic, "partitions")
_RECORDS_KEY = _key(pb.ProducePartition, "records")


def _encode(send: Send) -> list[bytes]:
    return [batch.encode(number) for batch, number in zip(send.batches, send.numbers, strict=True)]
