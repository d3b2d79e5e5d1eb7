"""Producer ids and the producers that a partition knows: InitProducerId and DescribeProducers."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import INT32, Message, Structure, array, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, api=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2):
    """A request for a producer id. A producer that has an id already sends it (KIP-360), otherwise -1."""

    transactional_id: str | None = string(default=None, nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


class InitProducerIdResponse(Message, answers=InitProducerIdRequest):
    """The id and its epoch, -1 on error, and the producer of a prepared transaction that was kept (KIP-939)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16(default=-1)
    ongoing_txn_producer_id: int = int64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = int16(since=6, default=-1)


class TopicRequest(Structure):
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class DescribeProducersRequest(Message, api=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0):
    """A request for the producers that write to partitions with a producer id (KIP-664)."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Structure):
    """A producer's state in the partition's log. -1 stands for none."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Structure):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, answers=DescribeProducersRequest):
    """The producers of each partition."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
