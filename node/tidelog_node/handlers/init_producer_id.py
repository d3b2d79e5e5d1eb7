"""InitProducerId: a unique id for an idempotent producer (KIP-98)."""

from __future__ import annotations

from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.handlers.context import NodeContext

_FIRST_EPOCH = 0


async def init_producer_id(context: NodeContext, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse:
    """Return a new id.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS: this node has received no ids from the controllers yet.
    """
    return pb.InitProducerIdResponse(producer_id=await context.producer_ids.next_id(), producer_epoch=_FIRST_EPOCH)
