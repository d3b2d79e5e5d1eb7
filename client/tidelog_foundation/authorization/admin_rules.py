"""The rules of the administrators' service, which nodes and controllers serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tidelog_foundation.authorization.access import Access
from tidelog_foundation.authorization.rules import (
    CLUSTER,
    GROUP,
    TOPIC,
    Handle,
    Rule,
    in_order,
    is_open,
    on_cluster,
    per_item,
)
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests import cluster, configs, delegation_tokens, topics
from tidelog_foundation.requests.acls import CLUSTER_NAME, AclOperation, ResourceType
from tidelog_foundation.time_slices import TimeSlices

_OF_CONFIGS: Final = {configs.ConfigResourceType.TOPIC: TOPIC, configs.ConfigResourceType.GROUP: GROUP}


async def _create_topics(access: Access, request: topics.CreateTopicsRequest, handle: Handle) -> Any:
    """Creating a topic is an operation on the cluster, or on the topic. Its numbers belong to its settings."""
    names = [topic.name for topic in request.topics]
    if access.on_cluster(AclOperation.CREATE, log=False):
        allowed = frozenset(names)
    else:
        allowed = await access.allowed(AclOperation.CREATE, TOPIC, names)
    response = await handle(replace(request, topics=tuple(t for t in request.topics if t.name in allowed)))
    described = await access.allowed(AclOperation.DESCRIBE_CONFIGS, TOPIC, allowed, log=False)
    shown = [
        t if t.error is not None or t.name in described else replace(t, num_partitions=-1, replication_factor=-1)
        for t in response.topics
    ]

    def denied(topic: topics.CreatableTopic) -> topics.CreatableTopicResult:
        return topics.CreatableTopicResult(topic.name, error=access.denial(AclOperation.CREATE, TOPIC, topic.name))

    merged = in_order(request.topics, allowed, shown, denied, lambda t: t.name, lambda t: t.name)
    return replace(response, topics=merged)


async def _delete_topics(access: Access, request: topics.DeleteTopicsRequest, handle: Handle) -> Any:
    """A topic requested by an id that the caller may not describe is answered without its name.

    An id that this server does not know is refused here: the leading controller may know it, and trusts nodes.
    """
    by_id = {topic_id: access.topic_name(topic_id) for topic_id in request.topic_ids}
    names = [*request.topic_names, *(name for name in by_id.values() if name is not None)]
    described = await access.allowed(AclOperation.DESCRIBE, TOPIC, names)
    deletable = await access.allowed(AclOperation.DELETE, TOPIC, described)
    permitted = replace(
        request,
        topic_names=tuple(name for name in request.topic_names if name in deletable),
        topic_ids=tuple(topic_id for topic_id in request.topic_ids if by_id[topic_id] in deletable),
    )
    response = await handle(permitted)
    refused = [
        topics.DeletableTopicResult(name, error=access.denial(AclOperation.DELETE, TOPIC, name))
        for name in dict.fromkeys(request.topic_names)
        if name not in deletable
    ]
    for topic_id, name in by_id.items():
        if name is None:
            unknown = error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id.hex()}")
            refused.append(topics.DeletableTopicResult("", topic_id, unknown))
        elif name not in deletable:
            shown = name if name in described else ""
            error = access.denial(AclOperation.DELETE, TOPIC, shown or topic_id.hex())
            refused.append(topics.DeletableTopicResult(shown, topic_id, error))
    return replace(response, topics=(*response.topics, *refused))


async def _list_topics(access: Access, request: topics.ListTopicsRequest, handle: Handle) -> Any:
    """Topics that the caller may not describe are left out."""
    response = await handle(request)
    shown = await access.allowed(AclOperation.DESCRIBE, TOPIC, (t.name for t in response.topics), log=False)
    return replace(response, topics=tuple(t for t in response.topics if t.name in shown))


async def _describe_topics(access: Access, request: topics.DescribeTopicsRequest, handle: Handle) -> Any:
    """The settings of a topic need a permission of their own."""
    response = await _TOPICS(access, request, handle)
    names = [d.topic.name for d in response.topics if d.configs]
    shown = await access.allowed(AclOperation.DESCRIBE_CONFIGS, TOPIC, names, log=False)
    described = tuple(d if d.topic.name in shown else replace(d, configs=()) for d in response.topics)
    if request.include_authorized_operations:
        described = tuple(
            replace(d, authorized_operations=access.operations(TOPIC, d.topic.name)) if d.topic.error is None else d
            for d in described
        )
    return replace(response, topics=described)


async def _describe_cluster(access: Access, request: cluster.DescribeClusterRequest, handle: Handle) -> Any:
    """The controllers are shown to those who may describe the cluster."""
    response = await handle(request)
    if request.include_authorized_operations:
        response = replace(response, authorized_operations=access.operations_on_cluster())
    if access.on_cluster(AclOperation.DESCRIBE, log=False):
        return response
    return replace(response, voters=())


async def _create_token(access: Access, request: delegation_tokens.CreateDelegationTokenRequest, handle: Handle) -> Any:
    """Creating a token of somebody else is an operation on that user (KIP-373)."""
    if request.owner is not None and not access.may_create_token_for(request.owner):
        raise access.denial(AclOperation.CREATE_TOKENS, ResourceType.USER, str(request.owner))
    return await handle(request)


async def _describe_tokens(
    access: Access, request: delegation_tokens.DescribeDelegationTokenRequest, handle: Handle
) -> Any:
    """Tokens that the caller may not see are left out."""
    response = await handle(request)

    def is_shown(token: delegation_tokens.DelegationToken) -> bool:
        return access.may_see_token(token.token_id, token.owner, (token.requester, *token.renewers))

    shown = [issued async for issued in TimeSlices().of(response.tokens) if is_shown(issued.token)]
    return replace(response, tokens=tuple(shown))


def _configs(operation: AclOperation, result: Any) -> Rule:
    """Return the rule of a method whose ``resources`` are decided one by one; ``result`` is the class of results."""

    async def rule(access: Access, request: Any, handle: Handle) -> Any:
        slices = TimeSlices()
        found = [(resource, _resource_of(resource.resource)) async for resource in slices.of(request.resources)]
        denied = [(r, target) async for r, target in slices.of(found) if not access.allows(operation, *target)]
        if not denied:
            return await handle(request)
        refused = {id(r) for r, _ in denied}
        permitted = tuple(r for r in request.resources if id(r) not in refused)
        response = await handle(replace(request, resources=permitted))
        results = tuple(result(r.resource, access.denial(operation, *target)) for r, target in denied)
        return replace(response, resources=(*response.resources, *results))

    return rule


def _resource_of(resource: configs.ConfigResourceName) -> tuple[ResourceType, str]:
    """Return the resource of a configuration. Brokers belong to the cluster, and so does what is not known."""
    kind = _OF_CONFIGS.get(resource.type)  # type: ignore[call-overload]  # other numbers are allowed
    return (CLUSTER, CLUSTER_NAME) if kind is None else (kind, resource.name)


_TOPICS: Final = per_item(
    AclOperation.DESCRIBE,
    TOPIC,
    "topic_names",
    "topics",
    lambda name, error: topics.TopicDescription(topics.TopicMetadata(name, error)),
    name=lambda name: name,
    result_name=lambda description: description.topic.name,
)
ADMIN_RULES: Final[Mapping[str, Rule]] = {
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "ListTopics": _list_topics,
    "DescribeTopics": _describe_topics,
    "DescribeCluster": _describe_cluster,
    "CreatePartitions": per_item(
        AclOperation.ALTER, TOPIC, "topics", "topics", lambda t, error: topics.CreatePartitionsResult(t.name, error)
    ),
    "IncrementalAlterConfigs": _configs(AclOperation.ALTER_CONFIGS, configs.ConfigResourceResult),
    "DescribeConfigs": _configs(AclOperation.DESCRIBE_CONFIGS, configs.DescribedConfigResource),
    "ElectLeaders": on_cluster(AclOperation.ALTER),
    "AlterPartitionReassignments": on_cluster(AclOperation.ALTER),
    "ListPartitionReassignments": on_cluster(AclOperation.DESCRIBE),
    "DescribeFeatures": is_open,
    "UpdateFeatures": on_cluster(AclOperation.ALTER),
    "UnregisterBroker": on_cluster(AclOperation.ALTER),
    "DescribeStopSafety": on_cluster(AclOperation.DESCRIBE),
    "DescribeProcess": on_cluster(AclOperation.DESCRIBE),
    "CreateAcls": on_cluster(AclOperation.ALTER),
    "DescribeAcls": on_cluster(AclOperation.DESCRIBE),
    "DeleteAcls": on_cluster(AclOperation.ALTER),
    "CreateDelegationToken": _create_token,
    # The controller decides: owners and renewers may renew and expire a token.
    "RenewDelegationToken": is_open,
    "ExpireDelegationToken": is_open,
    "DescribeDelegationToken": _describe_tokens,
    "AlterUserScramCredentials": on_cluster(AclOperation.ALTER),
    "DescribeUserScramCredentials": on_cluster(AclOperation.DESCRIBE),
    "AlterClientQuotas": on_cluster(AclOperation.ALTER_CONFIGS),
    "DescribeClientQuotas": on_cluster(AclOperation.DESCRIBE_CONFIGS),
    "CreateClusterLink": on_cluster(AclOperation.ALTER),
    "AlterClusterLink": on_cluster(AclOperation.ALTER),
    "DeleteClusterLink": on_cluster(AclOperation.ALTER),
    "ListClusterLinks": on_cluster(AclOperation.DESCRIBE),
    "CreateMirrorTopic": on_cluster(AclOperation.ALTER),
    "AlterMirrorTopics": on_cluster(AclOperation.ALTER),
    "DescribeMirrorTopics": on_cluster(AclOperation.DESCRIBE),
}
