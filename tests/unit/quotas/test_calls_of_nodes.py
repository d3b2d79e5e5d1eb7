"""The quotas of gRPC calls that pass for those of nodes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog_foundation.authorization import StandardAuthorizer, StandardRules
from tidelog_foundation.requests.quotas import entity_of
from tidelog_foundation.security import Principal
from tidelog_foundation.transport.authorization import AuthorizingGuard
from tidelog_foundation.transport.services import OF_NODE, Caller, RpcContext
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.server.authorization import RULES, STREAMS
from tidelog_node.server.call_quotas import CallQuotas, usage_of


@pytest.mark.parametrize("method", ["Fetch", "WriteTxnMarkers", "AddPartitionsToTxn"])
def test_call_that_passes_for_a_nodes_is_measured_if_the_caller_may_not_act_for_the_cluster(method: str) -> None:
    authorizer = StandardAuthorizer(StandardRules(["User:node"]))
    guard = AuthorizingGuard(authorizer, RULES, STREAMS, dict, lambda _: None, "GRPC")
    quotas = ClientQuotas(lambda: 0, lambda: 0)
    quotas.follow({entity_of({"user": None}): {"request_percentage": 1.0}})

    async def is_measured(user: str, guard: AuthorizingGuard | None = guard) -> bool:
        rpc = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:5000", invocation_metadata=lambda: OF_NODE)
        caller = Caller(cast(RpcContext, rpc), Principal("User", user))

        async def call() -> Any:
            return usage_of(caller) is not None

        return cast(bool, await CallQuotas(quotas, guard).run(method, caller, call))

    async def main() -> None:
        assert not await is_measured("node")
        assert await is_measured("mallory")
        assert not await is_measured("mallory", None)

    asyncio.run(main())
