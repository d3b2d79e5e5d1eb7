"""DescribeAcls, answered by this node, and CreateAcls and DeleteAcls, forwarded to the leading controller.

An error of the call becomes the error of every element in it, as in Kafka's ``getErrorResponse``.
"""

from __future__ import annotations

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests import acls as requests
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers import acls as handlers
from tidelog_node.kafka.apis.errors import code_of, text_of
from tidelog_node.kafka.protocol.messages import acls as wire
from tidelog_node.kafka.served import Api, Caller, CloseConnection, KafkaNode, MessageApi


async def describe_acls(
    node: KafkaNode, request: wire.DescribeAclsRequest, caller: Caller
) -> wire.DescribeAclsResponse:
    """Describe the ACLs that match a filter, by pattern."""
    wanted = _filter(request)
    try:
        found = await handlers.describe_acls(node.context, requests.DescribeAclsRequest(wanted))
    except TidelogError as error:
        return wire.DescribeAclsResponse(error_code=code_of(error), error_message=text_of(error))
    patterns: dict[tuple[int, str, int], wire.DescribeAclsResource] = {}
    async for acl in TimeSlices().of(found.acls):
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = patterns.setdefault(pattern, wire.DescribeAclsResource(*pattern))
        resource.acls.append(wire.AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
    return wire.DescribeAclsResponse(error_message=None, resources=list(patterns.values()))


async def create_acls(node: KafkaNode, request: wire.CreateAclsRequest, caller: Caller) -> wire.CreateAclsResponse:
    """Create ACLs, each by itself."""
    slices = TimeSlices()
    acls = [_binding(acl) async for acl in slices.of(request.creations)]
    try:
        response = await handlers.create_acls(node.context, requests.CreateAclsRequest(tuple(acls)))
        errors = [result.error for result in response.results]
    except TidelogError as error:
        errors = [error] * len(acls)
    return wire.CreateAclsResponse(
        results=[wire.AclCreationResult(code_of(error), text_of(error)) async for error in slices.of(errors)]
    )


async def delete_acls(node: KafkaNode, request: wire.DeleteAclsRequest, caller: Caller) -> wire.DeleteAclsResponse:
    """Delete the ACLs that match any of the filters."""
    slices = TimeSlices()
    filters = [_filter(each) async for each in slices.of(request.filters)]
    try:
        results = (await handlers.delete_acls(node.context, requests.DeleteAclsRequest(tuple(filters)))).results
    except TidelogError as error:
        results = (requests.AclDeletionResult(error),) * len(filters)
    return wire.DeleteAclsResponse(
        filter_results=[
            wire.DeleteAclsFilterResult(
                code_of(result.error), text_of(result.error), [_deleted(acl) async for acl in slices.of(result.deleted)]
            )
            async for result in slices.of(results)
        ]
    )


def _binding(acl: wire.AclCreation) -> requests.AclBinding:
    _check_known(acl, acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    return requests.AclBinding(
        requests.ResourceType(acl.resource_type),
        acl.resource_name,
        requests.PatternType(acl.resource_pattern_type),
        acl.principal,
        acl.host,
        requests.AclOperation(acl.operation),
        requests.AclPermissionType(acl.permission_type),
    )


def _filter(each: wire.DescribeAclsRequest | wire.DeleteAclsFilter) -> requests.AclFilter:
    _check_known(each, each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    return requests.AclFilter(
        requests.ResourceType(each.resource_type_filter),
        each.resource_name_filter,
        requests.PatternType(each.pattern_type_filter),
        each.principal_filter,
        each.host_filter,
        requests.AclOperation(each.operation),
        requests.AclPermissionType(each.permission_type),
    )


def _check_known(element: object, *numbers: int) -> None:
    """Refuse the number of UNKNOWN, as Kafka does when it parses the request. Numbers without a member pass."""
    if 0 in numbers:
        raise CloseConnection(f"an ACL or filter contains unknown elements: {element}")


def _deleted(acl: requests.AclBinding) -> wire.DeleteAclsMatchingAcl:
    return wire.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


APIS: tuple[Api, ...] = (
    MessageApi(wire.DescribeAclsRequest, describe_acls),
    MessageApi(wire.CreateAclsRequest, create_acls),
    MessageApi(wire.DeleteAclsRequest, delete_acls),
)
