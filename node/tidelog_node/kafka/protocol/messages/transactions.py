"""Transactions: of producers (KIP-98, KIP-447, KIP-890), between nodes, and for administrators (KIP-664, KIP-994)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    INT32,
    INT64,
    STRING,
    Message,
    Structure,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
)


@dataclass(slots=True)
class AddPartitionsToTxnTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True)
class AddPartitionsToTxnTransaction(Structure):
    """The partitions to add to one transaction, or to verify."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@dataclass(slots=True)
class AddPartitionsToTxnRequest(Message):
    """An addition of partitions to transactions: of one client up to version 3, of a node from version 4 on."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), 3

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult(Structure):
    """The results of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@dataclass(slots=True)
class AddPartitionsToTxnResult(Structure):
    """The results of one transaction."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@dataclass(slots=True)
class AddPartitionsToTxnResponse(Message):
    """The results by transaction, or by topic up to version 3."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), 3

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)


@dataclass(slots=True)
class AddOffsetsToTxnRequest(Message):
    """An addition of a group's offsets to a transaction."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@dataclass(slots=True)
class AddOffsetsToTxnResponse(Message):
    """The error of the request."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), 3

    throttle_time_ms: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class EndTxnRequest(Message):
    """The end of a transaction. From version 5 on, the client uses transaction version 2."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.END_TXN, (0, 5), 3

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@dataclass(slots=True)
class EndTxnResponse(Message):
    """The producer of the next transaction from version 5 on."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.END_TXN, (0, 5), 3

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1)
    producer_epoch: int = int16(since=5, default=-1)


@dataclass(slots=True)
class WritableTxnMarkerTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@dataclass(slots=True)
class WritableTxnMarker(Structure):
    """The marker of one transaction."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    """True to commit."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2)


@dataclass(slots=True)
class WriteTxnMarkersRequest(Message):
    """The markers that a coordinator or an administrator writes to partitions."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.WRITE_TXN_MARKERS, (1, 1), 1

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class WritableTxnMarkerTopicResult(Structure):
    """The results of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@dataclass(slots=True)
class WritableTxnMarkerResult(Structure):
    """The results of one marker."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@dataclass(slots=True)
class WriteTxnMarkersResponse(Message):
    """The results of the markers."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.WRITE_TXN_MARKERS, (1, 1), 1

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition(Structure):
    """An offset to commit. A leader epoch of -1 means unknown."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = string(nullable=0)


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic(Structure):
    """The offsets of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@dataclass(slots=True)
class TxnOffsetCommitRequest(Message):
    """A commit of offsets as part of a transaction. From version 5 on, it adds the group to the transaction."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic(Structure):
    """The results of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@dataclass(slots=True)
class TxnOffsetCommitResponse(Message):
    """The results by topic."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.TXN_OFFSET_COMMIT, (0, 5), 3

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


@dataclass(slots=True)
class DescribeTransactionsRequest(Message):
    """A request for the states of transactional ids."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0

    transactional_ids: list[str] = array(STRING)


@dataclass(slots=True)
class TransactionTopic(Structure):
    """The partitions of one topic in an open transaction."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True)
class TransactionStateDescription(Structure):
    """The state of one transactional id. Times are in ms; a start of -1 means none."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TransactionTopic] = array(TransactionTopic)


@dataclass(slots=True)
class DescribeTransactionsResponse(Message):
    """The states in the order of the request."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), 0

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionStateDescription] = array(TransactionStateDescription)


@dataclass(slots=True)
class ListTransactionsRequest(Message):
    """A request for the transactional ids of a node that match all filters. An empty filter matches all."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_TRANSACTIONS, (0, 1), 0

    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64(since=1, default=-1)


@dataclass(slots=True)
class TransactionListingState(Structure):
    """One transactional id."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@dataclass(slots=True)
class ListTransactionsResponse(Message):
    """The matching transactional ids, and the requested states that do not exist."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_TRANSACTIONS, (0, 1), 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[TransactionListingState] = array(TransactionListingState)
