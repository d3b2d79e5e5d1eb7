"""DescribeAcls, CreateAcls and DeleteAcls (KIP-140, KIP-290, KIP-373)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, int8, int16, int32, string

LITERAL = 3


class DescribeAclsRequest(Message, api=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2):
    """A filter of ACLs; null matches everything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Structure):
    """An ACL of one pattern."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Structure):
    """The ACLs of one pattern."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, answers=DescribeAclsRequest):
    """The ACLs that match, by pattern."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


class AclCreation(Structure):
    """An ACL to create."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    """The ACLs to create."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Structure):
    """The outcome for one ACL."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class CreateAclsResponse(Message, answers=CreateAclsRequest):
    """One result per ACL, in the request's order."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


class DeleteAclsFilter(Structure):
    """A filter of ACLs; null matches everything."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, api=ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2):
    """The filters of the ACLs to delete."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Structure):
    """A deleted ACL."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Structure):
    """The ACLs that one filter matched."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, answers=DeleteAclsRequest):
    """One result per filter, in the request's order."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
