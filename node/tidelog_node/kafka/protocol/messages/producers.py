"""Producer ids and the producers that a partition knows: InitProducerId and DescribeProducers."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import INT32, Message, Structure, array, int16, int32, int64, string


@dataclass(slots=True)
class InitProducerIdRequest(Message):
    """A request for a producer id. A producer that has an id already sends it (KIP-360), otherwise -1."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.INIT_PRODUCER_ID, (0, 5), 2

    transactional_id: str | None = string(default=None, nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)


@dataclass(slots=True)
class InitProducerIdResponse(Message):
    """The id and its epoch, -1 on error."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.INIT_PRODUCER_ID, (0, 5), 2

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16(default=-1)


@dataclass(slots=True)
class TopicRequest(Structure):
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@dataclass(slots=True)
class DescribeProducersRequest(Message):
    """A request for the producers that write to partitions with a producer id (KIP-664)."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0

    topics: list[TopicRequest] = array(TopicRequest)


@dataclass(slots=True)
class ProducerState(Structure):
    """A producer's state in the partition's log. -1 stands for none."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@dataclass(slots=True)
class PartitionResponse(Structure):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    active_producers: list[ProducerState] = array(ProducerState)


@dataclass(slots=True)
class TopicResponse(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@dataclass(slots=True)
class DescribeProducersResponse(Message):
    """The producers of each partition."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_PRODUCERS, (0, 0), 0

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
