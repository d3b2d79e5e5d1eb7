"""The rules of the service of groups, their members and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from tidelog_foundation.authorization import Access
from tidelog_foundation.authorization.rules import GROUP, TOPIC, TRANSACTIONAL_ID, Handle, Rule, in_order, per_item
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.groups import messages

G = TypeVar("G", messages.DescribedGroup, messages.DescribedConsumerGroup)
_HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


async def _join(access: Access, request: messages.JoinGroupRequest, handle: Handle) -> Any:
    if access.allows(AclOperation.READ, GROUP, request.group_id):
        return await handle(replace(request, may_describe=access.may_describe_topic))
    return messages.JoinGroupResponse(access.denial(AclOperation.READ, GROUP, request.group_id))


def _of_member(response: Callable[..., Any]) -> Rule:
    """Return the rule of a method of members, who read from the group."""

    async def rule(access: Access, request: Any, handle: Handle) -> Any:
        if access.allows(AclOperation.READ, GROUP, request.group_id):
            return await handle(request)
        return response(error=access.denial(AclOperation.READ, GROUP, request.group_id))

    return rule


async def _find_coordinator(access: Access, request: messages.FindCoordinatorRequest, handle: Handle) -> Any:
    groups = await access.allowed(AclOperation.DESCRIBE, GROUP, request.group_ids)
    transactions = await access.allowed(AclOperation.DESCRIBE, TRANSACTIONAL_ID, request.transactional_ids)
    permitted = messages.FindCoordinatorRequest(
        tuple(name for name in request.group_ids if name in groups),
        tuple(name for name in request.transactional_ids if name in transactions),
    )
    response = await handle(permitted)
    found = len(permitted.group_ids)

    def denied_group(name: str) -> messages.Coordinator:
        return messages.Coordinator(name, access.denial(AclOperation.DESCRIBE, GROUP, name))

    def denied_transaction(name: str) -> messages.Coordinator:
        error = access.denial(AclOperation.DESCRIBE, TRANSACTIONAL_ID, name)
        return messages.Coordinator("", error, transactional_id=name)

    return messages.FindCoordinatorResponse(
        (
            *in_order(
                request.group_ids, groups, response.coordinators[:found], denied_group, str, lambda c: c.group_id
            ),
            *in_order(
                request.transactional_ids,
                transactions,
                response.coordinators[found:],
                denied_transaction,
                str,
                lambda c: c.transactional_id,
            ),
        )
    )


async def _consumer_heartbeat(access: Access, request: messages.ConsumerGroupHeartbeatRequest, handle: Handle) -> Any:
    """A member must be allowed to describe every topic that it names."""
    if not access.allows(AclOperation.READ, GROUP, request.group_id):
        return messages.ConsumerGroupHeartbeatResponse(access.denial(AclOperation.READ, GROUP, request.group_id))
    names = request.subscribed_topic_names or ()
    described = await access.allowed(AclOperation.DESCRIBE, TOPIC, names)
    hidden = next((name for name in names if name not in described), None)
    if hidden is not None:
        return messages.ConsumerGroupHeartbeatResponse(access.denial(AclOperation.DESCRIBE, TOPIC, hidden))
    return await handle(replace(request, may_describe=access.may_describe_topic))


def _uncommitted(topic: messages.OffsetCommitTopic, error: TidelogError) -> messages.OffsetCommitTopicResult:
    results = tuple(messages.OffsetCommitPartitionResult(p.index, error) for p in topic.partitions)
    return messages.OffsetCommitTopicResult(topic.name, results)


_COMMITS: Final = per_item(AclOperation.READ, TOPIC, "topics", "topics", _uncommitted)


async def _commit(access: Access, request: Any, handle: Handle, response: Callable[..., Any]) -> Any:
    """Commit the offsets of topics that the caller may read. There is no commit without any."""

    async def commit(permitted: Any) -> Any:
        return await handle(permitted) if permitted.topics or not request.topics else response()

    return await _COMMITS(access, request, commit)


async def _offset_commit(access: Access, request: messages.OffsetCommitRequest, handle: Handle) -> Any:
    if access.allows(AclOperation.READ, GROUP, request.group_id):
        return await _commit(access, request, handle, messages.OffsetCommitResponse)
    error = access.denial(AclOperation.READ, GROUP, request.group_id)
    return messages.OffsetCommitResponse(tuple(_uncommitted(topic, error) for topic in request.topics))


async def _txn_offset_commit(access: Access, request: messages.TxnOffsetCommitRequest, handle: Handle) -> Any:
    error = None
    if not access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        error = access.denial(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    elif not access.allows(AclOperation.READ, GROUP, request.group_id):
        error = access.denial(AclOperation.READ, GROUP, request.group_id)
    if error is not None:
        return messages.TxnOffsetCommitResponse(tuple(_uncommitted(topic, error) for topic in request.topics))
    return await _commit(access, request, handle, messages.TxnOffsetCommitResponse)


async def _offset_fetch(access: Access, request: messages.OffsetFetchRequest, handle: Handle) -> Any:
    """A request for all offsets is answered with those of the topics that the caller may describe."""
    asked = {group.group_id: group for group in request.groups}
    shown = await access.allowed(
        AclOperation.DESCRIBE, TOPIC, (topic.name for group in request.groups for topic in group.topics)
    )
    trimmed = replace(
        request,
        groups=tuple(replace(g, topics=tuple(t for t in g.topics if t.name in shown)) for g in request.groups),
    )
    response = await _GROUPS_OF_OFFSETS(access, trimmed, handle)

    async def completed(result: messages.OffsetFetchGroupResult) -> messages.OffsetFetchGroupResult:
        if result.error is not None:
            return result
        # A request may name a group twice: once with topics and once for all offsets.
        allowed = await access.allowed(AclOperation.DESCRIBE, TOPIC, (t.name for t in result.topics), log=False)
        permitted = tuple(t for t in result.topics if t.name in allowed)
        group = asked[result.group_id]
        named = () if group.all_topics else group.topics
        denied = tuple(_unfetched(access, t.name, t.partitions) for t in named if t.name not in shown)
        return replace(result, topics=(*permitted, *denied))

    return replace(response, groups=tuple([await completed(group) for group in response.groups]))


def _unfetched(access: Access, topic: str, partitions: tuple[int, ...]) -> messages.OffsetFetchTopicResult:
    error = access.denial(AclOperation.DESCRIBE, TOPIC, topic)
    return messages.OffsetFetchTopicResult(
        topic, tuple(messages.OffsetFetchPartitionResult(index, error) for index in partitions)
    )


async def _offset_delete(access: Access, request: messages.OffsetDeleteRequest, handle: Handle) -> Any:
    if not access.allows(AclOperation.DELETE, GROUP, request.group_id):
        return messages.OffsetDeleteResponse(access.denial(AclOperation.DELETE, GROUP, request.group_id))
    response = await _DELETIONS(access, request, handle)
    return response if response.error is None else replace(response, topics=())


async def _list_groups(access: Access, request: messages.ListGroupsRequest, handle: Handle) -> Any:
    """A caller who may describe the cluster lists all groups, any other those that the caller may describe."""
    response = await handle(request)
    if access.on_cluster(AclOperation.DESCRIBE, log=False):
        return response
    shown = await access.allowed(AclOperation.DESCRIBE, GROUP, (g.group_id for g in response.groups), log=False)
    return replace(response, groups=tuple(g for g in response.groups if g.group_id in shown))


async def _describe_groups(access: Access, request: messages.DescribeGroupsRequest, handle: Handle) -> Any:
    response = await _CLASSIC_GROUPS(access, request, handle)
    return replace(response, groups=tuple(_with_operations(access, request, group) for group in response.groups))


def _with_operations(access: Access, request: Any, group: G) -> G:
    """Return a described group with the operations that the caller may perform, if they are requested."""
    if not request.include_authorized_operations or group.error is not None:
        return group
    return replace(group, authorized_operations=access.operations(GROUP, group.group_id))


async def _describe_consumer_groups(
    access: Access, request: messages.ConsumerGroupDescribeRequest, handle: Handle
) -> Any:
    """A group with a topic that the caller may not describe is answered without its members."""
    response = await _CONSUMER_GROUPS(access, request, handle)
    names = {name for group in response.groups for name in _topics_of(group)}
    shown = await access.allowed(AclOperation.DESCRIBE, TOPIC, names)

    def visible(group: messages.DescribedConsumerGroup) -> messages.DescribedConsumerGroup:
        if _topics_of(group) <= shown:
            return _with_operations(access, request, group)
        return replace(group, error=error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN_TOPICS), members=())

    return replace(response, groups=tuple(map(visible, response.groups)))


def _topics_of(group: messages.DescribedConsumerGroup) -> set[str]:
    return {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment or ()
    }


def _per_group(operation: AclOperation, denied: Callable[[str, TidelogError], Any]) -> Rule:
    return per_item(operation, GROUP, "group_ids", "groups", denied, str, lambda group: group.group_id)


_GROUPS_OF_OFFSETS: Final = per_item(
    AclOperation.DESCRIBE,
    GROUP,
    "groups",
    "groups",
    lambda group, error: messages.OffsetFetchGroupResult(group.group_id, error),
    lambda group: group.group_id,
    lambda result: result.group_id,
)
_DELETIONS: Final = per_item(
    AclOperation.READ,
    TOPIC,
    "topics",
    "topics",
    lambda topic, error: messages.OffsetCommitTopicResult(
        topic.name, tuple(messages.OffsetCommitPartitionResult(index, error) for index in topic.partitions)
    ),
)
_CLASSIC_GROUPS: Final = _per_group(AclOperation.DESCRIBE, messages.DescribedGroup)
_CONSUMER_GROUPS: Final = _per_group(AclOperation.DESCRIBE, messages.DescribedConsumerGroup)
GROUP_RULES: Final[Mapping[str, Rule]] = {
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _join,
    "SyncGroup": _of_member(messages.SyncGroupResponse),
    "Heartbeat": _of_member(messages.HeartbeatResponse),
    "LeaveGroup": _of_member(messages.LeaveGroupResponse),
    "ConsumerGroupHeartbeat": _consumer_heartbeat,
    "OffsetCommit": _offset_commit,
    "TxnOffsetCommit": _txn_offset_commit,
    "OffsetFetch": _offset_fetch,
    "OffsetDelete": _offset_delete,
    "ListGroups": _list_groups,
    "DescribeGroups": _describe_groups,
    "ConsumerGroupDescribe": _describe_consumer_groups,
    "DeleteGroups": _per_group(AclOperation.DELETE, messages.DeletedGroup),
}
