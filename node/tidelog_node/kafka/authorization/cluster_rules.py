"""The rules of APIs about the cluster, its settings, and access to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import CLUSTER_NAME, AclOperation, ResourceType
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.kafka.authorization.rule import CLUSTER_DENIED, GROUP, TOPIC, Asked, Rule, on_cluster
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import acls, configs, log_dirs, metadata, quorum, quotas, replicas, scram
from tidelog_node.kafka.refusals import refused_election, refused_reassignment

_FIRST_WITH_LOG_DIR_ERROR: Final = 3
_TOPIC_CONFIG, _GROUP_CONFIG = 2, 32
_TEXT: Final = "Cluster authorization failed."
_OF_CONFIGS: Final = {
    _TOPIC_CONFIG: (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    _GROUP_CONFIG: (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
_CLUSTER_CONFIG: Final = (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""Brokers, loggers and client metrics."""
_TEXTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _TEXT,
}


def _config_check(access: Access, operation: AclOperation, kind: int, name: str) -> ErrorCode | None:
    resource, error = _OF_CONFIGS.get(kind, _CLUSTER_CONFIG)
    is_allowed = access.allows(operation, resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else name)
    return None if is_allowed else error


def _configs(operation: AclOperation, field: str, denied: Callable[[Any, ErrorCode], Any]) -> Rule:
    """Return the rule of an API whose ``resources`` are decided one by one; ``field`` has the results."""

    async def rule(access: Access, request: Any, asked: Asked, handle: Callable[[Any], Awaitable[Any]]) -> Any:
        found = [
            (r, _config_check(access, operation, r.resource_type, r.resource_name))
            async for r in TimeSlices().of(request.resources)
        ]
        request.resources = [resource for resource, error in found if error is None]
        response = await handle(request)
        getattr(response, field).extend(denied(resource, error) for resource, error in found if error is not None)
        return response

    return rule


def _undescribed(resource: configs.DescribeConfigsResource, error: ErrorCode) -> configs.DescribeConfigsResult:
    return configs.DescribeConfigsResult(error.code, _TEXTS[error], resource.resource_type, resource.resource_name)


def _unaltered(resource: Any, error: ErrorCode) -> configs.AlterConfigsResourceResponse:
    return configs.AlterConfigsResourceResponse(
        error.code, _TEXTS[error], resource.resource_type, resource.resource_name
    )


def _altering_partitions(refuse: Callable[[Any, int, str], Awaitable[Any]]) -> Rule:
    """Return the rule of an API that alters the cluster; ``refuse`` makes the denial of each partition."""

    async def rule(access: Access, request: Any, asked: Asked, handle: Callable[[Any], Awaitable[Any]]) -> Any:
        if access.on_cluster(AclOperation.ALTER):
            return await handle(request)
        return await refuse(request, CLUSTER_DENIED, _TEXT)

    return rule


async def _describe_cluster(
    access: Access,
    request: metadata.DescribeClusterRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[metadata.DescribeClusterResponse]],
) -> metadata.DescribeClusterResponse:
    response = await handle(request)
    if request.include_cluster_authorized_operations and not response.error_code:
        response.cluster_authorized_operations = access.operations_on_cluster()
    return response


def _no_log_dirs(_: log_dirs.DescribeLogDirsRequest, version: int) -> log_dirs.DescribeLogDirsResponse:
    return log_dirs.DescribeLogDirsResponse(error_code=CLUSTER_DENIED if version >= _FIRST_WITH_LOG_DIR_ERROR else 0)


def _no_moves(request: log_dirs.AlterReplicaLogDirsRequest, _: int) -> log_dirs.AlterReplicaLogDirsResponse:
    results = [
        log_dirs.AlterReplicaLogDirTopicResult(
            topic.name,
            [log_dirs.AlterReplicaLogDirPartitionResult(index, CLUSTER_DENIED) for index in topic.partitions],
        )
        for folder in request.dirs
        for topic in folder.topics
    ]
    return log_dirs.AlterReplicaLogDirsResponse(results=results)


def _no_credentials(
    request: scram.DescribeUserScramCredentialsRequest, _: int
) -> scram.DescribeUserScramCredentialsResponse:
    """Return the denial, with one result without a name per user, as Kafka does."""
    results = [
        scram.DescribeUserScramCredentialsResult(error_code=CLUSTER_DENIED, error_message=_TEXT)
        for _ in request.users or ()
    ]
    return scram.DescribeUserScramCredentialsResponse(error_code=CLUSTER_DENIED, error_message=_TEXT, results=results)


def _unaltered_credentials(
    request: scram.AlterUserScramCredentialsRequest, _: int
) -> scram.AlterUserScramCredentialsResponse:
    users = {change.name for changes in (request.deletions, request.upsertions) for change in changes}
    results = [scram.AlterUserScramCredentialsResult(user, CLUSTER_DENIED, _TEXT) for user in sorted(users)]
    return scram.AlterUserScramCredentialsResponse(results=results)


def _unaltered_quotas(request: quotas.AlterClientQuotasRequest, _: int) -> quotas.AlterClientQuotasResponse:
    entries = [quotas.QuotaAlterationResultData(CLUSTER_DENIED, _TEXT, entry.entity) for entry in request.entries]
    return quotas.AlterClientQuotasResponse(entries=entries)


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.DESCRIBE_ACLS: on_cluster(
        lambda _, __: acls.DescribeAclsResponse(error_code=CLUSTER_DENIED, error_message=_TEXT), AclOperation.DESCRIBE
    ),
    ApiKey.CREATE_ACLS: on_cluster(
        lambda q, _: acls.CreateAclsResponse(
            results=[acls.AclCreationResult(CLUSTER_DENIED, _TEXT) for _ in q.creations]
        ),
        AclOperation.ALTER,
    ),
    ApiKey.DELETE_ACLS: on_cluster(
        lambda q, _: acls.DeleteAclsResponse(
            filter_results=[acls.DeleteAclsFilterResult(CLUSTER_DENIED, _TEXT) for _ in q.filters]
        ),
        AclOperation.ALTER,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: on_cluster(_no_credentials, AclOperation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: on_cluster(_unaltered_credentials, AclOperation.ALTER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: on_cluster(
        lambda _, __: quotas.DescribeClientQuotasResponse(error_code=CLUSTER_DENIED, error_message=_TEXT, entries=None),
        AclOperation.DESCRIBE_CONFIGS,
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: on_cluster(_unaltered_quotas, AclOperation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_CONFIGS: _configs(AclOperation.DESCRIBE_CONFIGS, "results", _undescribed),
    ApiKey.ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS, "responses", _unaltered),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS, "responses", _unaltered),
    ApiKey.LIST_CONFIG_RESOURCES: on_cluster(
        lambda _, __: configs.ListConfigResourcesResponse(error_code=CLUSTER_DENIED), AclOperation.DESCRIBE_CONFIGS
    ),
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_LOG_DIRS: on_cluster(_no_log_dirs, AclOperation.DESCRIBE),
    ApiKey.ALTER_REPLICA_LOG_DIRS: on_cluster(_no_moves, AclOperation.ALTER),
    ApiKey.DESCRIBE_QUORUM: on_cluster(
        lambda _, __: quorum.DescribeQuorumResponse(error_code=CLUSTER_DENIED, error_message=_TEXT),
        AclOperation.DESCRIBE,
    ),
    ApiKey.ADD_RAFT_VOTER: on_cluster(
        lambda _, __: quorum.AddRaftVoterResponse(error_code=CLUSTER_DENIED, error_message=_TEXT), AclOperation.ALTER
    ),
    ApiKey.REMOVE_RAFT_VOTER: on_cluster(
        lambda _, __: quorum.RemoveRaftVoterResponse(error_code=CLUSTER_DENIED, error_message=_TEXT),
        AclOperation.ALTER,
    ),
    ApiKey.UPDATE_RAFT_VOTER: on_cluster(
        lambda _, __: quorum.UpdateRaftVoterResponse(error_code=CLUSTER_DENIED), AclOperation.CLUSTER_ACTION
    ),
    ApiKey.UNREGISTER_BROKER: on_cluster(
        lambda _, __: quorum.UnregisterBrokerResponse(error_code=CLUSTER_DENIED, error_message=_TEXT),
        AclOperation.ALTER,
    ),
    ApiKey.UPDATE_FEATURES: on_cluster(
        lambda _, __: quorum.UpdateFeaturesResponse(error_code=CLUSTER_DENIED, error_message=_TEXT),
        AclOperation.ALTER,
    ),
    ApiKey.ELECT_LEADERS: _altering_partitions(refused_election),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _altering_partitions(refused_reassignment),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: on_cluster(
        lambda _, __: replicas.ListPartitionReassignmentsResponse(error_code=CLUSTER_DENIED, error_message=_TEXT),
        AclOperation.DESCRIBE,
    ),
}
