"""WriteTxnMarkers: append the markers that end transactions, and answer when all in-sync replicas have them (KIP-98).

Transaction coordinators send it to the leaders of a transaction's partitions, and administrators to abort a hanging
transaction (KIP-664). The log refuses markers of fenced producers and coordinators. A coordinator repeats a marker
after any other error, so a partition may get it twice; the second one ends nothing.

Partitions whose replicas are slow do not delay the answer of the others for long: their result is REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import ControlType, control_batch
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.unexpected import report_unexpected
from tidelog_node.coordination import OFFSETS_TOPIC
from tidelog_node.handlers.context import DEFAULT_TIMEOUT_MS, NodeContext
from tidelog_node.handlers.requests import transactions as requests
from tidelog_node.partitions import Partition, create_folders
from tidelog_node.transactions.states import MAX_PRODUCER_EPOCH

logger = logging.getLogger(__name__)
SLOW_MS: Final = 500
"""The time that the replicas of a partition have left when another partition of the request has its marker."""


@dataclass(slots=True)
class _Appended:
    """A marker in one partition: refused with an error, or appended and on its way to the other replicas."""

    index: int
    error: TidelogError | None = None
    partition: Partition | None = None
    replicated: asyncio.Future[None] | None = None


async def write_txn_markers(
    context: NodeContext, request: requests.WriteTxnMarkersRequest
) -> requests.WriteTxnMarkersResponse:
    """Append each marker to its partitions; errors are in the results.

    A result without an error means that all in-sync replicas, at least ``min.insync.replicas``, have the marker.
    """
    slices = TimeSlices()
    appended: list[_Appended] = []
    try:
        await create_folders([each async for each in slices.of(_hosted(context, request)) if each is not None])
        markers = [await _append(context, marker, appended, slices) async for marker in slices.of(request.markers)]
        await _wait(appended)
    finally:
        for each in appended:
            _end_wait(each)
    results = []
    async for marker, topics in slices.of(zip(request.markers, markers, strict=True)):
        of_topics = [
            requests.WritableTxnMarkerTopicResult(
                name,
                tuple([requests.WritableTxnMarkerPartitionResult(a.index, a.error) async for a in slices.of(of_topic)]),
            )
            async for name, of_topic in slices.of(topics)
        ]
        results.append(requests.WritableTxnMarkerResult(marker.producer_id, tuple(of_topics)))
    return requests.WriteTxnMarkersResponse(tuple(results))


def _hosted(context: NodeContext, request: requests.WriteTxnMarkersRequest) -> Iterator[Partition | None]:
    """Yield the partitions of the request that this node hosts, each once, and None for everything else."""
    seen = set[Partition]()
    for marker in request.markers:
        yield None
        for topic in marker.topics:
            yield None
            for index in topic.partitions:
                partition = context.partitions.get(topic.name, index)
                yield None if partition in seen else partition
                if partition is not None:
                    seen.add(partition)


async def _append(
    context: NodeContext, marker: requests.WritableTxnMarker, appended: list[_Appended], slices: TimeSlices
) -> list[tuple[str, list[_Appended]]]:
    error = _refused(marker)
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    fields = (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
    batch = b"" if error is not None else control_batch(kind, *fields, context.clock.wall_ms())
    topics = []
    async for topic in slices.of(marker.topics):
        results: list[_Appended] = []
        topics.append((topic.name, results))
        async for index in slices.of(topic.partitions):
            each = _Appended(index, error)
            if error is None:
                each = _append_one(context, topic.name, index, batch, marker)
            results.append(each)
            appended.append(each)
    return topics


def _refused(marker: requests.WritableTxnMarker) -> TidelogError | None:
    """Return the error for a marker of a producer that cannot exist."""
    if marker.producer_id >= 0 and 0 <= marker.producer_epoch <= MAX_PRODUCER_EPOCH:
        return None
    text = f"a marker of producer id {marker.producer_id} and epoch {marker.producer_epoch}: the id begins with 0, the"
    return error_for(ErrorCode.INVALID_REQUEST, f"{text} epoch is 0 to {MAX_PRODUCER_EPOCH}")


def _append_one(
    context: NodeContext, topic: str, index: int, batch: bytes, marker: requests.WritableTxnMarker
) -> _Appended:
    try:
        partition = context.partition(topic, index)
        if topic == OFFSETS_TOPIC and context.groups is not None:
            # The groups' offsets take effect with the marker, so their coordinator appends it.
            ended = context.groups.end_transaction(
                index, batch, marker.producer_id, marker.transaction_version, committed=marker.committed
            )
            return _Appended(index, None, partition, asyncio.ensure_future(ended))
        required_offset = partition.append_marker(batch, marker.transaction_version).last_offset + 1
        if partition.is_replicated(required_offset):
            return _Appended(index)
    except TidelogError as error:
        return _Appended(index, error.detached())
    replicated = partition.replicated(required_offset).as_future()
    return _Appended(index, None, partition, replicated)


async def _wait(appended: Sequence[_Appended]) -> None:
    """Wait until all replicas have the markers.

    Once one marker is settled, the others have :data:`SLOW_MS` left.
    """
    waiting = {each.replicated for each in appended if each.replicated is not None}
    has_settled = len(waiting) < len(appended)
    if waiting and not has_settled:
        timeout_s = DEFAULT_TIMEOUT_MS / 1000
        settled, waiting = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        has_settled = bool(settled)
    if waiting and has_settled:
        await asyncio.wait(waiting, timeout=SLOW_MS / 1000)


def _end_wait(appended: _Appended) -> None:
    """Set the error of a marker that did not reach the other replicas."""
    partition, replicated = appended.partition, appended.replicated
    if partition is None or replicated is None:
        return
    if replicated.cancel():
        text = f"{partition}: not all in-sync replicas have the marker yet"
        appended.error = error_for(ErrorCode.REQUEST_TIMED_OUT, text)
        return
    error = replicated.exception()
    if isinstance(error, TidelogError):
        appended.error = error.detached()
    elif error is not None:
        text = "The replication of a marker to %s failed with an unexpected error"
        appended.error = report_unexpected(logger, error, text, partition)
