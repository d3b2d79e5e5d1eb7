"""ACLs: this node describes those of its image, and the leading controller creates and deletes them.

An authorizer that keeps its own ACLs answers in their place. Without an authorizer all of it fails with
SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests import acls as requests
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, forward_change


async def create_acls(context: NodeContext, request: requests.CreateAclsRequest) -> requests.CreateAclsResponse:
    """Create ACLs, and wait until this node's image has them.

    Raises:
        TidelogError: SECURITY_DISABLED, or an error of the leading controller that concerns all of them.
    """
    _check_enabled(context, "No Authorizer is configured.")
    if context.acl_store is not None:
        return requests.CreateAclsResponse(tuple(await context.acl_store.create_acls(request.acls)))
    response, remaining_s = await forward_change(context, request)
    created = [acl for acl, result in zip(request.acls, response.results, strict=True) if result.error is None]
    await context.metadata.wait_until(lambda image: image.acl_ids.keys() >= set(created), remaining_s)
    return response


async def describe_acls(context: NodeContext, request: requests.DescribeAclsRequest) -> requests.DescribeAclsResponse:
    """Return the ACLs that match a filter.

    Raises:
        TidelogError: SECURITY_DISABLED.
    """
    _check_enabled(context, "No Authorizer is configured on the broker")
    if context.acl_store is not None:
        return requests.DescribeAclsResponse(tuple(await context.acl_store.acls(request.filter)))
    acls = context.metadata.image.acl_ids
    found = [acl async for acl in TimeSlices().of(acls) if request.filter.matches(acl)]
    return requests.DescribeAclsResponse(tuple(found))


async def delete_acls(context: NodeContext, request: requests.DeleteAclsRequest) -> requests.DeleteAclsResponse:
    """Delete the ACLs that match any of the filters, and wait until this node's image has them no longer.

    Raises:
        TidelogError: SECURITY_DISABLED, or an error of the leading controller that concerns all of them.
    """
    _check_enabled(context, "No Authorizer is configured.")
    if context.acl_store is not None:
        return requests.DeleteAclsResponse(tuple(await context.acl_store.delete_acls(request.filters)))
    response, remaining_s = await forward_change(context, request)
    deleted = {acl for result in response.results for acl in result.deleted}
    await context.metadata.wait_until(lambda image: image.acl_ids.keys().isdisjoint(deleted), remaining_s)
    return response


def _check_enabled(context: NodeContext, text: str) -> None:
    if not context.has_authorizer:
        raise error_for(ErrorCode.SECURITY_DISABLED, text)
