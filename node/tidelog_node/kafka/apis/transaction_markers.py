"""WriteTxnMarkers, which transaction coordinators and administrators send to partition leaders."""

from __future__ import annotations

from collections.abc import Generator

from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.handlers.requests import transactions as values
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages import transactions as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi


async def write_txn_markers(
    node: KafkaNode, request: wire.WriteTxnMarkersRequest, caller: Caller
) -> wire.WriteTxnMarkersResponse:
    """Write the markers, and answer when all in-sync replicas have them."""
    slices = TimeSlices()
    markers = [await slices.result_of(_marker(marker)) async for marker in slices.of(request.markers)]
    answer = await handlers.write_txn_markers(node.context, values.WriteTxnMarkersRequest(tuple(markers)))
    results = [await slices.result_of(_result(result)) async for result in slices.of(answer.markers)]
    return wire.WriteTxnMarkersResponse(results)


def _marker(marker: wire.WritableTxnMarker) -> Generator[None, None, values.WritableTxnMarker]:
    topics = []
    for topic in marker.topics:
        topics.append(TopicPartitions(topic.name, tuple(topic.partition_indexes)))
        yield
    return values.WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        tuple(topics),
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def _result(result: values.WritableTxnMarkerResult) -> Generator[None, None, wire.WritableTxnMarkerResult]:
    topics = []
    for topic in result.topics:
        partitions = []
        for partition in topic.partitions:
            partitions.append(wire.WritableTxnMarkerPartitionResult(partition.index, code_of(partition.error)))
            yield
        topics.append(wire.WritableTxnMarkerTopicResult(topic.name, partitions))
        yield
    return wire.WritableTxnMarkerResult(result.producer_id, topics)


APIS: tuple[Api, ...] = (MessageApi(wire.WriteTxnMarkersRequest, write_txn_markers),)
