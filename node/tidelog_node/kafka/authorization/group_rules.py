"""The rules of APIs about groups, their members and their offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.kafka.authorization.rule import (
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTIONAL_ID,
    TRANSACTIONAL_ID_DENIED,
    Asked,
    Rule,
)
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import group_admin, group_members, group_offsets

_SEVERAL_KEYS: Final = 4
_SEVERAL_GROUPS: Final = 8
_FIRST_WITH_ERROR: Final = 2
"""The first version of OffsetFetch with an error of the whole request."""
_FIRST_WITHOUT_PROTOCOL: Final = 7
"""The first version of JoinGroup whose protocol may be null."""
_FIRST_WITH_PROTOCOL: Final = 5
"""The first version of SyncGroup that must name the protocol, which Kafka checks first."""
_OF_KEYS: Final = {
    0: (AclOperation.DESCRIBE, GROUP, GROUP_DENIED),
    1: (AclOperation.DESCRIBE, TRANSACTIONAL_ID, TRANSACTIONAL_ID_DENIED),
}
"""By the type of a key: the operation, the resource and the error."""
_TEXTS: Final = {
    GROUP_DENIED: "Group authorization failed.",
    TRANSACTIONAL_ID_DENIED: "Transactional Id authorization failed.",
}
_HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


def _of_member(refuse: Callable[[int], Any]) -> Rule:
    """Return the rule of an API of members, who read from the group."""

    async def rule(access: Access, request: Any, asked: Asked, handle: Callable[[Any], Awaitable[Any]]) -> Any:
        return (
            await handle(request)
            if access.allows(AclOperation.READ, GROUP, request.group_id)
            else refuse(asked.version)
        )

    return rule


def _not_joined(version: int) -> group_members.JoinGroupResponse:
    name = None if version >= _FIRST_WITHOUT_PROTOCOL else ""
    return group_members.JoinGroupResponse(error_code=GROUP_DENIED, protocol_name=name)


async def _sync(
    access: Access,
    request: group_members.SyncGroupRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_members.SyncGroupResponse]],
) -> group_members.SyncGroupResponse:
    if asked.version >= _FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return group_members.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL.code)
    if access.allows(AclOperation.READ, GROUP, request.group_id):
        return await handle(request)
    return group_members.SyncGroupResponse(error_code=GROUP_DENIED)


async def _find_coordinator(
    access: Access,
    request: group_admin.FindCoordinatorRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_admin.FindCoordinatorResponse]],
) -> group_admin.FindCoordinatorResponse:
    if request.key_type not in _OF_KEYS:
        return await handle(request)
    operation, kind, error = _OF_KEYS[request.key_type]
    if asked.version < _SEVERAL_KEYS:
        if access.allows(operation, kind, request.key):
            return await handle(request)
        return group_admin.FindCoordinatorResponse(
            error_code=error, error_message=_TEXTS[error], node_id=-1, host="", port=-1
        )
    request.coordinator_keys, refused = await access.split(operation, kind, request.coordinator_keys)
    response = await handle(request)
    response.coordinators += [group_admin.Coordinator(key, -1, "", -1, error, "") for key in refused]
    return response


async def _list_groups(
    access: Access,
    request: group_admin.ListGroupsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_admin.ListGroupsResponse]],
) -> group_admin.ListGroupsResponse:
    """A caller who may describe the cluster lists all groups, any other those that he may describe."""
    response = await handle(request)
    if not access.on_cluster(AclOperation.DESCRIBE, log=False):
        shown = await access.allowed(AclOperation.DESCRIBE, GROUP, (g.group_id for g in response.groups), log=False)
        response.groups = [group for group in response.groups if group.group_id in shown]
    return response


async def _describe_groups(
    access: Access,
    request: group_admin.DescribeGroupsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_admin.DescribeGroupsResponse]],
) -> group_admin.DescribeGroupsResponse:
    request.groups, refused = await access.split(AclOperation.DESCRIBE, GROUP, request.groups)
    response = await handle(request)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = access.operations(GROUP, group.group_id)
    response.groups += [group_admin.DescribedGroup(error_code=GROUP_DENIED, group_id=name) for name in refused]
    return response


async def _describe_consumer_groups(
    access: Access,
    request: group_admin.ConsumerGroupDescribeRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_admin.ConsumerGroupDescribeResponse]],
) -> group_admin.ConsumerGroupDescribeResponse:
    """A group with a topic that the caller may not describe is answered without its members."""
    request.group_ids, refused = await access.split(AclOperation.DESCRIBE, GROUP, request.group_ids)
    response = await handle(request)
    names = {name for group in response.groups for name in _topics_of(group)}
    shown = await access.allowed(AclOperation.DESCRIBE, TOPIC, names)
    for group in response.groups:
        if not _topics_of(group) <= shown:
            group.error_code, group.error_message, group.members = TOPIC_DENIED, _HIDDEN_TOPICS, []
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = access.operations(GROUP, group.group_id)
    response.groups += [group_admin.DescribedConsumerGroup(error_code=GROUP_DENIED, group_id=name) for name in refused]
    return response


def _topics_of(group: group_admin.DescribedConsumerGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


async def _delete_groups(
    access: Access,
    request: group_admin.DeleteGroupsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_admin.DeleteGroupsResponse]],
) -> group_admin.DeleteGroupsResponse:
    request.groups_names, refused = await access.split(AclOperation.DELETE, GROUP, request.groups_names)
    response = await handle(request)
    response.results += [group_admin.DeletableGroupResult(name, GROUP_DENIED) for name in refused]
    return response


async def _consumer_heartbeat(
    access: Access,
    request: group_members.ConsumerGroupHeartbeatRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_members.ConsumerGroupHeartbeatResponse]],
) -> group_members.ConsumerGroupHeartbeatResponse:
    """A member must be allowed to describe every topic that it names."""
    if not access.allows(AclOperation.READ, GROUP, request.group_id):
        return group_members.ConsumerGroupHeartbeatResponse(error_code=GROUP_DENIED)
    names = request.subscribed_topic_names or []
    if await access.allowed(AclOperation.DESCRIBE, TOPIC, names) < frozenset(names):
        return group_members.ConsumerGroupHeartbeatResponse(error_code=TOPIC_DENIED)
    return await handle(request)


async def _offset_commit(
    access: Access,
    request: group_offsets.OffsetCommitRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_offsets.OffsetCommitResponse]],
) -> group_offsets.OffsetCommitResponse:
    if not access.allows(AclOperation.READ, GROUP, request.group_id):
        return group_offsets.OffsetCommitResponse(topics=[_uncommitted(t, GROUP_DENIED) for t in request.topics])
    allowed = await access.allowed(AclOperation.READ, TOPIC, filter(None, asked.names_of(request.topics)))
    # An id can become known meanwhile: its topic is denied.
    named = list(zip(request.topics, asked.names_of(request.topics), strict=True))
    refused = [topic for topic, name in named if name and name not in allowed]
    request.topics = [topic for topic, name in named if not name or name in allowed]
    if refused and not request.topics:
        return group_offsets.OffsetCommitResponse(topics=[_uncommitted(t, TOPIC_DENIED) for t in refused])
    response = await handle(request)
    response.topics += [_uncommitted(topic, TOPIC_DENIED) for topic in refused]
    return response


def _uncommitted(topic: group_offsets.OffsetCommitRequestTopic, error: int) -> group_offsets.OffsetCommitResponseTopic:
    partitions = [group_offsets.OffsetCommitResponsePartition(p.partition_index, error) for p in topic.partitions]
    return group_offsets.OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)


async def _offset_delete(
    access: Access,
    request: group_offsets.OffsetDeleteRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_offsets.OffsetDeleteResponse]],
) -> group_offsets.OffsetDeleteResponse:
    if not access.allows(AclOperation.DELETE, GROUP, request.group_id):
        return group_offsets.OffsetDeleteResponse(error_code=GROUP_DENIED)
    allowed = await access.allowed(AclOperation.READ, TOPIC, (topic.name for topic in request.topics))
    refused = [topic for topic in request.topics if topic.name not in allowed]
    request.topics = [topic for topic in request.topics if topic.name in allowed]
    response = await handle(request)
    if not response.error_code:
        response.topics += [
            group_offsets.OffsetDeleteResponseTopic(
                topic.name,
                [
                    group_offsets.OffsetDeleteResponsePartition(p.partition_index, TOPIC_DENIED)
                    for p in topic.partitions
                ],
            )
            for topic in refused
        ]
    return response


async def _offset_fetch(
    access: Access,
    request: group_offsets.OffsetFetchRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_offsets.OffsetFetchResponse]],
) -> group_offsets.OffsetFetchResponse:
    """A request for all offsets is answered with those of the topics that the caller may describe."""
    if asked.version < _SEVERAL_GROUPS:
        return await _fetch_one(access, request, asked, handle)
    allowed = await access.allowed(AclOperation.DESCRIBE, GROUP, (group.group_id for group in request.groups))
    refused = [group.group_id for group in request.groups if group.group_id not in allowed]
    request.groups = [group for group in request.groups if group.group_id in allowed]
    # A request may name a group twice: once with topics and once for all offsets.
    topics = [topic for group in request.groups for topic in group.topics or ()]
    described = await access.allowed(AclOperation.DESCRIBE, TOPIC, filter(None, asked.names_of(topics)))
    named = [_take_denied(described, group, asked) for group in request.groups]
    response = await handle(request)
    for group, denied in zip(response.groups, named, strict=True):
        if group.error_code:
            continue
        if denied is None:
            group.topics = await _shown(access, group.topics, asked)
        else:
            group.topics += denied
    response.groups += [group_offsets.OffsetFetchResponseGroup(name, [], GROUP_DENIED) for name in refused]
    return response


async def _fetch_one(
    access: Access,
    request: group_offsets.OffsetFetchRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[group_offsets.OffsetFetchResponse]],
) -> group_offsets.OffsetFetchResponse:
    if not access.allows(AclOperation.DESCRIBE, GROUP, request.group_id):
        refused = [_unfetched(topic, GROUP_DENIED) for topic in request.topics or ()]
        has_error = asked.version >= _FIRST_WITH_ERROR
        return group_offsets.OffsetFetchResponse(topics=[] if has_error else refused, error_code=GROUP_DENIED)
    if request.topics is None:
        response = await handle(request)
        allowed = await access.allowed(
            AclOperation.DESCRIBE, TOPIC, (topic.name for topic in response.topics), log=False
        )
        response.topics = [topic for topic in response.topics if topic.name in allowed]
        return response
    allowed = await access.allowed(AclOperation.DESCRIBE, TOPIC, (topic.name for topic in request.topics))
    refused = [_unfetched(topic, TOPIC_DENIED) for topic in request.topics if topic.name not in allowed]
    request.topics = [topic for topic in request.topics if topic.name in allowed]
    response = await handle(request)
    if not response.error_code:
        response.topics += refused
    return response


def _take_denied(
    described: frozenset[str], group: group_offsets.OffsetFetchRequestGroup, asked: Asked
) -> list[group_offsets.OffsetFetchResponseTopic] | None:
    """Remove the topics of a group that are denied, and return their results; None if it has no list of topics."""
    if group.topics is None:
        return None
    pairs = list(zip(group.topics, asked.names_of(group.topics), strict=True))
    group.topics = [topic for topic, name in pairs if not name or name in described]
    return [_unfetched(topic, TOPIC_DENIED) for topic, name in pairs if name and name not in described]


async def _shown(
    access: Access, topics: list[group_offsets.OffsetFetchResponseTopic], asked: Asked
) -> list[group_offsets.OffsetFetchResponseTopic]:
    names = [name or "" for name in asked.names_of(topics)]
    allowed = await access.allowed(AclOperation.DESCRIBE, TOPIC, names, log=False)
    return [topic for topic, name in zip(topics, names, strict=True) if name in allowed]


def _unfetched(topic: group_offsets.OffsetFetchRequestTopic, error: int) -> group_offsets.OffsetFetchResponseTopic:
    partitions = [
        group_offsets.OffsetFetchResponsePartition(index, -1, -1, "", error) for index in topic.partition_indexes
    ]
    return group_offsets.OffsetFetchResponseTopic(topic.name, topic.topic_id, partitions)


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_consumer_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.JOIN_GROUP: _of_member(_not_joined),
    ApiKey.SYNC_GROUP: _sync,
    ApiKey.HEARTBEAT: _of_member(lambda _: group_members.HeartbeatResponse(error_code=GROUP_DENIED)),
    ApiKey.LEAVE_GROUP: _of_member(lambda _: group_members.LeaveGroupResponse(error_code=GROUP_DENIED)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
}
