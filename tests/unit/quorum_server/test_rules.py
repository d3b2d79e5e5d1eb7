"""The rules of a controller for callers that are no nodes."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog_foundation.authorization import Access, RequestOrigin, StandardAuthorizer, StandardRules
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.requests.topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog_foundation.security import Principal
from tidelog_quorum.server.authorization import RULES

ALICE, NODE = "alice", "node"


def access_of(user: str, *, allow_if_no_acl: bool = False) -> Access:
    rules = StandardRules([f"User:{NODE}"], allow_if_no_acl=allow_if_no_acl)
    rules.set_acls({})
    return Access(StandardAuthorizer(rules), RequestOrigin(Principal("User", user), "10.0.0.1", "own", "api"))


def test_controller_believes_nodes_alone_about_the_client_whose_quota_counts() -> None:
    asked: list[Any] = []

    async def create(request: Any) -> CreateTopicsResponse:
        asked.append(request.quota_client)
        return CreateTopicsResponse()

    bob = QuotaClient("bob", "app")
    for user in (ALICE, NODE):
        access = access_of(user, allow_if_no_acl=user == NODE)
        asyncio.run(RULES["CreateTopics"](access, CreateTopicsRequest(quota_client=bob), create))
    assert asked == [QuotaClient(ALICE, "own"), bob]
