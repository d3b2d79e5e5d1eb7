"""The rules of gRPC methods for requests that clients other than Tidelog's send."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog_foundation.authorization import Access, RequestOrigin, StandardAuthorizer, StandardRules
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import AclId, TopicId
from tidelog_foundation.requests.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.requests.topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog_foundation.security import ANONYMOUS
from tidelog_node.groups import messages
from tidelog_node.server.authorization import RULES

CALLER = str(ANONYMOUS)
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


def access(*described: tuple[ResourceType, str]) -> Access:
    authorizer = StandardAuthorizer(StandardRules())
    acls = [
        AclBinding(kind, name, PatternType.LITERAL, CALLER, "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW)
        for kind, name in described
    ]
    authorizer.set_acls({AclId(i.to_bytes(16, "big")): acl for i, acl in enumerate(acls)})
    return Access(authorizer, RequestOrigin(ANONYMOUS, "127.0.0.1", "test", "test", "GRPC"))


def test_group_that_is_named_twice_hides_the_offsets_of_denied_topics() -> None:
    async def handle(request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
        found = tuple(messages.OffsetFetchTopicResult(name) for name in ("seen", "hidden"))
        return messages.OffsetFetchResponse(
            tuple(
                messages.OffsetFetchGroupResult(group.group_id, topics=found if group.all_topics else ())
                for group in request.groups
            )
        )

    named = messages.OffsetFetchGroup("g", topics=(TopicPartitions("hidden", (0,)),))
    request = messages.OffsetFetchRequest((messages.OffsetFetchGroup("g", all_topics=True), named))
    rule = RULES["OffsetFetch"]
    response = asyncio.run(rule(access((GROUP, "g"), (TOPIC, "seen")), request, handle))
    assert len(response.groups) == len(request.groups)
    read = [topic.name for group in response.groups for topic in group.topics if not _is_denied(topic)]
    assert read == ["seen"]


def test_decisions_about_many_names_take_turns_with_other_requests() -> None:
    async def test() -> None:
        others: list[bool] = []
        asyncio.get_running_loop().call_soon(others.append, True)
        names = [f"g{i}" for i in range(20_000)]
        assert await access((GROUP, "g7")).allowed(AclOperation.DESCRIBE, GROUP, names, log=False) == {"g7"}
        assert others

    asyncio.run(test())


def test_id_that_a_server_does_not_know_yet_deletes_no_topic_of_the_leading_controller() -> None:
    forwarded: list[Any] = []

    async def handle(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        forwarded.extend((*request.topic_names, *request.topic_ids))
        return DeleteTopicsResponse()

    topic_id = TopicId(bytes(15) + b"x")
    response = asyncio.run(RULES["DeleteTopics"](access(), DeleteTopicsRequest(topic_ids=(topic_id,)), handle))
    [result] = response.topics
    assert (result.name, result.topic_id, result.error.code) == ("", topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    assert not forwarded


def _is_denied(topic: messages.OffsetFetchTopicResult) -> bool:
    codes = {p.error.code for p in topic.partitions if p.error is not None}
    return codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
