"""Blocks of producer ids: each is allocated to one broker, once (KIP-730)."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidelog_quorum.controller.brokers import check_broker_epoch
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.records import ProducerIdsRecord

BLOCK_SIZE = 1_000
_MAX_PRODUCER_ID = 2**63 - 1


def allocate_producer_ids(
    state: ControllerState, request: AllocateProducerIdsRequest, now_ms: int
) -> Result[AllocateProducerIdsResponse]:
    """Allocate the next block to the calling broker; a block whose answer is lost is never used.

    Raises:
        TidelogError: STALE_BROKER_EPOCH, the broker is not registered with that epoch; UNKNOWN_SERVER_ERROR, all ids
            are used up.
    """
    image = state.latest
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    if start > _MAX_PRODUCER_ID - BLOCK_SIZE:
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"all producer ids up to {start} are used up")
    record = ProducerIdsRecord(broker.broker_id, broker.broker_epoch, start + BLOCK_SIZE)
    return Result([record], AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE))
