"""Fetch responses as a declaration, which the product writes by hand."""

from __future__ import annotations

from kafka_requests import FetchRequest

from tidelog_node.kafka.protocol.fields import Message, Structure, array, data, int16, int32, int64, string, uuid


class AbortedTransaction(Structure):
    producer_id: int = int64()
    first_offset: int = int64()


class FetchPartitionResponse(Structure):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=4)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: bytes | None = data(nullable=0)


class FetchTopicResponse(Structure):
    topic: str | None = string(until=12, nullable=0, default=None)
    topic_id: bytes = uuid(since=13)
    partitions: list[FetchPartitionResponse] = array(FetchPartitionResponse)


class FetchResponse(Message, answers=FetchRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=7)
    session_id: int = int32(since=7)
    responses: list[FetchTopicResponse] = array(FetchTopicResponse)
