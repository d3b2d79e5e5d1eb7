"""Produce as a declaration, which the product reads and writes by hand, and batches of transactions."""

from __future__ import annotations

import time

from kafka_requests import ProducePartition, ProduceRequest, ProduceTopic

from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.kafka.protocol.fields import Message, Structure, array, int16, int32, int64, string, structure, uuid

NOW_MS = int(time.time() * 1_000)
"""The time of all records, which retention keeps."""


class BatchIndexAndErrorMessage(Structure):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(default=None, nullable=8)


class LeaderIdAndEpoch(Structure):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Structure):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(since=2, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8)
    error_message: str | None = string(since=8, nullable=8, default=None)
    current_leader: LeaderIdAndEpoch = structure(LeaderIdAndEpoch, tag=0, since=10, tagged=10)


class TopicProduceResponse(Structure):
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, answers=ProduceRequest):
    topics: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1)


def transactional_produce(
    transactional_id: str | None,
    topic: str,
    topic_id: bytes,
    partition: int,
    batch: bytes,
) -> ProduceRequest:
    """Return a request with one batch; ``topic_id`` is for version 13."""
    partitions = [ProducePartition(partition, batch)]
    return ProduceRequest(transactional_id, -1, 9_000, [ProduceTopic(topic, topic_id, partitions)])


def batch_of(producer_id: int, epoch: int, sequence: int, *, is_transactional: bool = True) -> bytes:
    """Return a batch with one record."""
    builder = RecordBatchBuilder()
    builder.append(b"key", b"value", (), NOW_MS)
    return builder.build(producer_id, epoch, sequence, is_transactional)
