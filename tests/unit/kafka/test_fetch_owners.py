"""Fetch sessions and fetches of replicas belong to a principal; permissions are those of each fetch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog_foundation.authorization import StandardAuthorizer, StandardRules
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tidelog_foundation.requests.quotas import entity_of
from tidelog_foundation.security import Principal
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchSpec, SessionStep
from tidelog_node.kafka.apis.fetch import FetchApi
from tidelog_node.kafka.authorization import KafkaGuard
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.fetch_request import encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, KafkaNode, Request, is_of_nodes
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.quotas.usage import RequestUsage
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.metadata.records import AccessControlEntryRecord

VERSION = 12
FULL = (0, 0)
FOREVER_MS = 60_000


class Node:
    """A node of a cluster in memory with an authorizer. alice and bob may read the topic t, node may do everything."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.context = cluster.nodes[1].context
        authorizer = StandardAuthorizer(StandardRules(["User:node"]))
        self.served = KafkaNode(self.context, None, KafkaGuard(authorizer, self.context.metadata))  # type: ignore[arg-type]

    async def set_acl(self, user: str, permission: AclPermissionType) -> None:
        acl = AclBinding(
            ResourceType.TOPIC, "t", PatternType.LITERAL, f"User:{user}", "*", AclOperation.READ, permission
        )
        await self._cluster.controller.change(AccessControlEntryRecord(f"{user}{permission:11}".encode()[:16], acl))

    def caller(self, user: str, version: int = VERSION) -> Caller:
        return Caller("PLAINTEXT", ClientIdentity("client", "/host"), version, Principal("User", user))

    def begin(self, user: str, request: FetchRequest, usage: RequestUsage | None = None) -> Any:
        writer = Writer()
        encode_request(request, writer, VERSION)
        frame = Reader(memoryview(b"".join(writer.chunks())))
        return FetchApi().begin(self.served, Request(self.caller(user), 1, frame, usage))

    def fetch(self, user: str, session: tuple[int, int], *, usage: RequestUsage | None = None, **fields: Any) -> Any:
        """Return the response of a fetch of the topic t."""
        wanted = {("t", 0): FetchSpec(b"", 0, 1 << 20)} if session[1] <= 0 else {}
        request = FetchRequest(wanted, 1 << 20, min_bytes=1, session=SessionStep(*session), **fields)
        body = self.begin(user, request, usage)
        assert isinstance(body, list), "it waits"
        return response_of(body)


def response_of(body: Any) -> FetchResponse:
    return decode_response(Reader(memoryview(b"".join(body))), VERSION)


def code_of(response: FetchResponse) -> ErrorCode | None:
    [[result]] = response.topics.values()
    return result.error and result.error.code


@pytest.fixture
def run(cluster_of):  # type: ignore[no-untyped-def]
    def run_with_node(test: Any) -> None:
        async def main() -> None:
            async with cluster_of(1) as cluster:
                await cluster.create_topic(replicas=(1,))
                await cluster.produce(1, b"secret")
                node = Node(cluster)
                for user in ("alice", "bob"):
                    await node.set_acl(user, AclPermissionType.ALLOW)
                await test(node, cluster)

        asyncio.run(main())

    return run_with_node


def test_session_of_another_principal_does_not_exist_and_is_not_ended_by_it(run: Any) -> None:
    async def test(node: Node, cluster: Any) -> None:
        session = node.fetch("alice", FULL).session_id
        assert session
        for user in ("bob", "mallory"):
            stolen = node.fetch(user, (session, 1))
            assert (stolen.error.code, stolen.topics) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})
            node.fetch(user, (session, -1))
            node.fetch(user, (session, 0))
        assert node.fetch("alice", (session, 1)).error is None
        assert not node.fetch("alice", (session, -1)).session_id
        assert node.fetch("alice", (session, 2)).error.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(test)


def test_wait_of_another_principals_session_is_not_ended(run: Any) -> None:
    async def test(node: Node, cluster: Any) -> None:
        session = node.fetch("alice", FULL).session_id
        at_end = {("t", 0): FetchSpec(b"", 1, 1 << 20)}
        request = FetchRequest(at_end, 1 << 20, FOREVER_MS, 1, session=SessionStep(session, 1))
        waiting = node.begin("alice", request)
        sessions = node.context.fetch_sessions
        sessions.end_wait(session, 1, "User:bob")
        await asyncio.sleep(0)
        assert not waiting.is_settled
        sessions.end_wait(session, 1, "User:alice")
        await asyncio.wait_for(waiting, 5)

    run(test)


def test_session_is_denied_what_its_principal_may_not_read_any_more(run: Any) -> None:
    async def test(node: Node, cluster: Any) -> None:
        session = node.fetch("alice", FULL).session_id
        await node.set_acl("alice", AclPermissionType.DENY)
        await cluster.produce(1, b"later")
        response = node.fetch("alice", (session, 1))
        assert code_of(response) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert response.size == 0

    run(test)


def test_client_that_names_a_replica_gets_no_session_and_ends_none_of_a_follower(run: Any) -> None:
    async def test(node: Node, cluster: Any) -> None:
        follower = node.fetch("node", FULL, replica=(BrokerId(2), BrokerEpoch(-1))).session_id
        assert follower
        denied = node.fetch("alice", FULL, replica=(BrokerId(2), BrokerEpoch(-1)))
        assert (code_of(denied), denied.session_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
        [known] = node.context.fetch_sessions.cache
        assert known.id == follower

    run(test)


def test_client_that_names_a_replica_without_permission_has_its_quota(run: Any) -> None:
    async def test(node: Node, cluster: Any) -> None:
        spent_ns = 0

        def now_ns() -> int:
            nonlocal spent_ns
            spent_ns += 10**8
            return spent_ns

        quotas = ClientQuotas(lambda: 10**6, now_ns)
        quotas.follow({entity_of({"user": None}): {"request_percentage": 0.001}})
        delays = {}
        for user in ("alice", "node"):
            usage = RequestUsage(quotas, user, "client")
            usage.enter()
            fields = {"usage": usage, "replica": (BrokerId(2), BrokerEpoch(-1))}
            delays[user] = node.fetch(user, FULL, **fields).throttle_time_ms
        assert delays["alice"] > 0
        assert delays["node"] == 0

    run(test)


@pytest.mark.parametrize("api", [ApiKey.WRITE_TXN_MARKERS, ApiKey.ADD_PARTITIONS_TO_TXN])
def test_requests_of_nodes_have_no_quota_unless_the_caller_is_denied(run: Any, api: ApiKey) -> None:
    async def test(node: Node, cluster: Any) -> None:
        assert is_of_nodes(node.served, api, node.caller("node", 4))
        assert not is_of_nodes(node.served, api, node.caller("alice", 4))
        assert is_of_nodes(KafkaNode(node.context, node.served.groups), api, node.caller("alice", 4))
        assert not is_of_nodes(node.served, ApiKey.FETCH, node.caller("node", 4))

    run(test)
