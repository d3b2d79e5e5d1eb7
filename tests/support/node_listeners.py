"""The listeners of a node in this process, for tests of the clients that other nodes have."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

import grpc.aio

from tests.support.toy_listener import until
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.transport import server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_node.handlers import NodeContext
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.served import Api, KafkaNode
from tidelog_node.kafka.server.limits import ListenerLimits, RequestBudgets
from tidelog_node.kafka.server.listener import KafkaListeners
from tidelog_node.server.log_service import log_service

_BUDGET_BYTES = 1 << 20


@contextlib.asynccontextmanager
async def grpc_listener(context: NodeContext) -> AsyncIterator[str]:
    """Serve LogService while the context lasts, and yield the address."""
    server = grpc.aio.server(options=server_options())
    intake = Intake(Charge(ByteBudget(_BUDGET_BYTES)))
    log_service(context, ByteBudget(_BUDGET_BYTES)).add_to(server, intake)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def kafka_listener(context: NodeContext, apis: Mapping[ApiKey, Api]) -> AsyncIterator[str]:
    """Serve these APIs while the context lasts, and yield the address. The clients must close their connections."""
    with KafkaListeners.bind([NamedListener("PLAINTEXT", "127.0.0.1", 0)], ListenerLimits()) as listeners:
        node = KafkaNode(context, None)  # type: ignore[arg-type]  # there are no groups
        await listeners.serve(node, dict(apis), RequestBudgets(ByteBudget(_BUDGET_BYTES), _BUDGET_BYTES))
        try:
            yield f"127.0.0.1:{listeners.ports['PLAINTEXT']}"
        finally:
            await until(lambda: listeners.connection_count == 0)
            await listeners.stop(0)
