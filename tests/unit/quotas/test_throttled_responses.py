"""Responses of clients that exceed a quota: they name the delay where Kafka's schema has a field for it."""

from __future__ import annotations

import asyncio
from typing import Any

from kafka_admin import AdminNode

from tidelog_foundation.requests.quotas import entity_of
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from tidelog_node.kafka.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
    QuorumTopic,
)
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, Request
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.quotas.usage import RequestUsage
from tidelog_node.shards.events import ClientIdentity

QUORUM = DescribeQuorumRequest([QuorumTopic("other", [QuorumPartition(0)])])


def throttled(request: Any, version: int, response: type[Any]) -> tuple[Any, RequestUsage]:
    """Return the response to a client that has used up its quota, and the usage of the request."""
    quotas = ClientQuotas(lambda: 10_000, lambda: 10**10)
    quotas.follow({entity_of({"user": "alice"}): {"producer_byte_rate": 1_000.0}})
    usage = RequestUsage(quotas, "alice", "app")
    usage.append(100_000)
    writer = Writer()
    encode(request, writer, version)
    caller = Caller("PLAINTEXT", ClientIdentity("app", "127.0.0.1"), version)
    made = Request(caller, 1, Reader(memoryview(b"".join(writer.chunks()))), usage=usage)
    body = asyncio.run(answered(all_apis()[request.API_KEY], made))
    return decode(response, Reader(memoryview(body)), version), usage


async def answered(api: Any, request: Request) -> bytes:
    return b"".join(await api.begin(AdminNode().node, request))


def test_response_without_a_field_for_the_delay_is_sent_and_the_client_muted() -> None:
    response, usage = throttled(QUORUM, 2, DescribeQuorumResponse)
    assert [topic.topic_name for topic in response.topics] == ["other"]
    assert usage.delay_ms > 0


def test_response_with_a_field_names_the_delay() -> None:
    response, usage = throttled(DescribeClusterRequest(False), 0, DescribeClusterResponse)
    assert response.throttle_time_ms == usage.delay_ms > 0
