"""Messages about transactions, of producers (KIP-98, KIP-447, KIP-890), nodes and administrators (KIP-664, KIP-994)."""

from __future__ import annotations

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


class AddPartitionsToTxnTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


class AddPartitionsToTxnTransaction(Structure):
    """The partitions to add to one transaction, or to verify."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3):
    """An addition of partitions to transactions: of one client up to version 3, of a node from version 4 on."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


class AddPartitionsToTxnPartitionResult(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Structure):
    """The results of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Structure):
    """The results of one transaction."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(Message, answers=AddPartitionsToTxnRequest):
    """The results by transaction, or by topic up to version 3."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)


class AddOffsetsToTxnRequest(Message, api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible=3):
    """An addition of a group's offsets to a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, answers=AddOffsetsToTxnRequest):
    """The error of the request."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


class EndTxnRequest(Message, api=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    """The end of a transaction. From version 5 on, the client uses transaction version 2."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, answers=EndTxnRequest):
    """The producer of the next transaction from version 5 on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1)
    producer_epoch: int = int16(since=5, default=-1)


class WritableTxnMarkerTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class WritableTxnMarker(Structure):
    """The marker of one transaction."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    """True to commit."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2)


class WriteTxnMarkersRequest(Message, api=ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible=1):
    """The markers that a coordinator or an administrator writes to partitions. Version 2 is of KIP-1228."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Structure):
    """The results of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Structure):
    """The results of one marker."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, answers=WriteTxnMarkersRequest):
    """The results of the markers."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


class TxnOffsetCommitRequestPartition(Structure):
    """An offset to commit. A leader epoch of -1 means unknown."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = string(nullable=0)


class TxnOffsetCommitRequestTopic(Structure):
    """The offsets of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), flexible=3):
    """A commit of offsets as part of a transaction. From version 5 on, it adds the group to the transaction."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Structure):
    """The results of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, answers=TxnOffsetCommitRequest):
    """The results by topic."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


class DescribeTransactionsRequest(Message, api=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible=0):
    """A request for the states of transactional ids."""

    transactional_ids: list[str] = array(STRING)


class TransactionTopic(Structure):
    """The partitions of one topic in an open transaction."""

    topic: str = string()
    partitions: list[int] = array(INT32)


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


class DescribeTransactionsResponse(Message, answers=DescribeTransactionsRequest):
    """The states in the order of the request."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionStateDescription] = array(TransactionStateDescription)


class ListTransactionsRequest(Message, api=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible=0):
    """A request for the transactional ids of a node that match all filters. An empty filter matches all."""

    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable=2, default=None)


class TransactionListingState(Structure):
    """One transactional id."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, answers=ListTransactionsRequest):
    """The matching transactional ids, and the requested states that do not exist."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[TransactionListingState] = array(TransactionListingState)
