"""InitProducerId: a unique id for an idempotent producer (KIP-98)."""

from __future__ import annotations

from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.requests.producers import InitProducerIdRequest, InitProducerIdResponse

_FIRST_EPOCH = 0


async def init_producer_id(context: NodeContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a new id.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS: this node has received no ids from the controllers yet.
    """
    return InitProducerIdResponse(producer_id=await context.producer_ids.next_id(), producer_epoch=_FIRST_EPOCH)
