"""Creation and deletion of ACLs, as in Kafka's AclControlManager and AclApis.

Rules:

- each ACL is created or refused by itself; one that exists, or is named twice, is written once;
- each filter deletes the ACLs that it matches; an ACL that several filters match is in the result of each;
- all records of a request are one atomic entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclCreationResult,
    AclDeletionResult,
    AclFilter,
    AclOperation,
    AclPermissionType,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    PatternType,
    ResourceType,
)
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.features import ACLS_VERSION, METADATA_VERSION
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

_MAX_ACLS = 100_000
"""The largest number of ACLs in a cluster."""
_MAX_TEXT = 1_024
"""The most characters of a resource's name, a principal or a host."""
_MAX_COMPARISONS = 2_000_000
"""The most comparisons of an ACL with a filter in one request with several filters, which take about a second."""
_PATTERNS = (PatternType.LITERAL, PatternType.PREFIXED)


def create_acls(state: ControllerState, request: CreateAclsRequest, now_ms: int) -> Result[CreateAclsResponse]:
    """Create the ACLs that are valid and new.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, the level of ``metadata.version`` has no ACLs; POLICY_VIOLATION, the cluster
            would have too many.
    """
    image = state.latest
    if image.feature_levels.get(METADATA_VERSION, 0) < ACLS_VERSION:
        text = f"ACLs need {METADATA_VERSION} {ACLS_VERSION}: upgrade the feature first"
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
    errors = [_error_of(acl) for acl in request.acls]
    valid = dict.fromkeys(acl for acl, error in zip(request.acls, errors, strict=True) if error is None)
    new = [acl for acl in valid if acl not in image.acl_ids]
    if len(image.acls) + len(new) > _MAX_ACLS:
        text = f"the cluster would have {len(image.acls) + len(new)} ACLs, {_MAX_ACLS} are the limit"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    records = [AccessControlEntryRecord(AclId(next(state.topic_ids)), acl) for acl in new]
    return Result(records, CreateAclsResponse(tuple(map(AclCreationResult, errors))))


def delete_acls(state: ControllerState, request: DeleteAclsRequest, now_ms: int) -> Result[DeleteAclsResponse]:
    """Delete the ACLs that match any of the filters.

    Raises:
        TidelogError: POLICY_VIOLATION, the filters and ACLs are too many to compare each with each.
    """
    image = state.latest
    searches = sum(_exact(each) is None for each in request.filters)
    if searches > 1 and searches * len(image.acls) > _MAX_COMPARISONS:
        text = (
            f"{searches} filters that leave out a part would be compared with {len(image.acls)} ACLs, "
            f"{_MAX_COMPARISONS} comparisons are the limit: ask for less at once"
        )
        raise error_for(ErrorCode.POLICY_VIOLATION, text)
    results = [_matches(image, each) for each in request.filters]
    deleted = dict.fromkeys(acl for result in results for acl in result.deleted)
    records = [RemoveAccessControlEntryRecord(image.acl_ids[acl]) for acl in deleted]
    return Result(records, DeleteAclsResponse(tuple(results)))


def _matches(image: MetadataImage, each: AclFilter) -> AclDeletionResult:
    if 0 in (ResourceType(each.resource_type), PatternType(each.pattern_type)):
        return AclDeletionResult(error_for(ErrorCode.INVALID_REQUEST, "Unknown patternFilter."))
    if 0 in (AclOperation(each.operation), AclPermissionType(each.permission_type)):
        return AclDeletionResult(error_for(ErrorCode.INVALID_REQUEST, "Unknown entryFilter."))
    exact = _exact(each)
    if exact is not None:
        return AclDeletionResult(deleted=(exact,) if exact in image.acl_ids else ())
    return AclDeletionResult(deleted=tuple(filter(each.matches, image.acl_ids)))


def _exact(each: AclFilter) -> AclBinding | None:
    """Return the only ACL that a filter can match, or None if it can match several."""
    name, principal, host = each.resource_name, each.principal, each.host
    types = (each.resource_type, each.operation, each.permission_type)
    if name is None or principal is None or host is None or 1 in types or each.pattern_type not in _PATTERNS:
        return None
    return AclBinding(
        each.resource_type, name, each.pattern_type, principal, host, each.operation, each.permission_type
    )


def _error_of(acl: AclBinding) -> TidelogError | None:
    problem = next(_problems(acl), None)
    return None if problem is None else error_for(ErrorCode.INVALID_REQUEST, problem)


def _problems(acl: AclBinding) -> Iterator[str]:
    """Yield what is wrong with an ACL, in the order of Kafka's checks."""
    kind, pattern = ResourceType(acl.resource_type), PatternType(acl.pattern_type)
    operation, permission = AclOperation(acl.operation), AclPermissionType(acl.permission_type)
    if kind is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        yield f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        yield "Invalid empty resource name"
    if kind in (ResourceType.UNKNOWN, ResourceType.ANY):
        yield f"Invalid resourceType {kind.name}"
    if pattern not in _PATTERNS:
        yield f"Invalid patternType {pattern.name}"
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        yield f"Invalid operation {operation.name}"
    if permission not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        yield f"Invalid permissionType {permission.name}"
    if ":" not in acl.principal:
        yield (
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    for what, text in (("resource name", acl.resource_name), ("principal", acl.principal), ("host", acl.host)):
        if len(text) > _MAX_TEXT:
            yield f"The {what} has {len(text)} characters, {_MAX_TEXT} are the limit"
