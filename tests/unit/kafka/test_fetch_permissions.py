"""A connection's fetches take few steps while the authorizer's decision is known, and have the current permissions."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from unit.kafka.test_short_way import Run

from tidelog_foundation.authorization import StandardAuthorizer, StandardRules
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchSpec, SessionStep
from tidelog_node.handlers import fetch as fetch_module
from tidelog_node.handlers.consumer_read import read_at_once
from tidelog_node.kafka.authorization import KafkaGuard
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.fetch_request import encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_quorum.metadata.records import AccessControlEntryRecord

VERSIONS = (12, 13, 17)
"""The last version with names, the first with ids, and the newest."""
HEADER_BYTES = 9
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Client:
    """A client that fetches the topic ``t`` from its first record, without a session."""

    def __init__(self, cluster: Any, run: Run, version: int) -> None:
        self._cluster = cluster
        self._run = run
        self._version = version

    def fetch(self) -> tuple[ErrorCode | None, bool]:
        """Return the error of the partition, and whether there are records."""
        partition = self._cluster.nodes[1].registry.get("t", 0)
        topic = "t" if self._version < VERSIONS[1] else partition.topic_id
        wanted = {(topic, 0): FetchSpec(partition.topic_id if topic != "t" else b"", 0, 1 << 20)}
        writer = Writer()
        encode_request(FetchRequest(wanted, 1 << 20, 0, 1, session=SessionStep(0, -1)), writer, self._version)
        header = struct.pack(">hhih", ApiKey.FETCH, self._version, 1, 6) + b"client\0"
        data = header + b"".join(writer.chunks())
        self._run.transport.sent.clear()
        self._run.receive(struct.pack(">i", len(data)) + data)
        answer = bytes(self._run.transport.sent)
        response: FetchResponse = decode_response(Reader(memoryview(answer)[HEADER_BYTES:]), self._version)
        [[result]] = response.topics.values()
        return result.error and result.error.code, len(result.records) > 0

    async def set_acl(self, user: str, permission: AclPermissionType) -> None:
        acl = AclBinding(
            ResourceType.TOPIC, "t", PatternType.LITERAL, f"User:{user}", "*", AclOperation.READ, permission
        )
        record = AccessControlEntryRecord(f"{user}{permission}".encode().ljust(16), acl)
        await self._cluster.controller.change(record)


@pytest.mark.parametrize("version", VERSIONS)
def test_fetches_of_a_connection_take_few_steps_until_the_acls_change(
    version: int, cluster_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_steps: list[bool] = []

    def reading(*arguments: Any) -> FetchResponse | None:
        response = read_at_once(*arguments)
        few_steps.append(response is not None)
        return response

    async def main() -> None:
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"secret")
            guard = KafkaGuard(StandardAuthorizer(StandardRules()), cluster.nodes[1].context.metadata)
            run = Run(cluster, is_short=False, guard=guard)
            client = Client(cluster, run, version)
            found = [client.fetch()]
            for user, permission in (("ANONYMOUS", AclPermissionType.ALLOW), ("bob", AclPermissionType.ALLOW)):
                await client.set_acl(user, permission)
                found += [client.fetch() for _ in range(3)]
            await client.set_acl("ANONYMOUS", AclPermissionType.DENY)
            found += [client.fetch() for _ in range(2)]
            run.connection.connection_lost(None)
            assert found == [(DENIED, False), *[(None, True)] * 6, *[(DENIED, False)] * 2]

    monkeypatch.setattr(fetch_module, "read_at_once", reading)
    asyncio.run(main())
    assert few_steps == [False, *[False, True, True] * 2, False, False]
