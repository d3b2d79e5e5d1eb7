"""Access control lists: the rules that allow or deny principals operations on resources (KIP-11, KIP-290, KIP-371).

The numbers of the enumerations are Kafka's. A number that is not Kafka's becomes UNKNOWN.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Self

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.request import Request

WILDCARD: Final = "*"
"""The name of all resources of a type, and the address of all hosts."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""The principal that stands for all."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""


class _Numbered(IntEnum):
    """An enumeration whose 0 stands for all numbers that it does not have."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)


class ResourceType(_Numbered):
    """The type of a resource; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Numbered):
    """The way in which an ACL names resources (KIP-290); ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Numbered):
    """An operation on a resource; ANY is for filters, ALL for ACLs."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Numbered):
    """The effect of an ACL; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An ACL: it allows or denies an operation on the resources of a pattern to a principal from a host.

    ``principal`` is a type and a name, such as ``User:alice``. The literal resource name, the host and the principal's
    name can be ``*``.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of ACLs: None, or the member ANY, matches every value of that part.

    With the pattern type MATCH the name is that of a resource, and the filter matches the ACLs that apply to it.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, acl: AclBinding) -> bool:
        """Return whether the filter matches an ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name in (None, acl.resource_name):
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        assert self.resource_name is not None
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD


@dataclass(frozen=True, slots=True)
class AclCreationResult:
    """The outcome for one ACL. Creating an ACL that exists succeeds."""

    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class CreateAclsResponse:
    """One result per ACL, in the request's order."""

    results: tuple[AclCreationResult, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateAclsRequest(Request[CreateAclsResponse]):
    """A request to create ACLs. Each is created or refused by itself."""

    acls: tuple[AclBinding, ...] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class AclDeletionResult:
    """The ACLs that one filter matched, all of them deleted, or the error of the filter."""

    error: TidelogError | None = None
    deleted: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAclsResponse:
    """One result per filter, in the request's order. An ACL is in the result of each filter that matches it."""

    results: tuple[AclDeletionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAclsRequest(Request[DeleteAclsResponse]):
    """A request to delete all ACLs that match any of the filters."""

    filters: tuple[AclFilter, ...] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeAclsResponse:
    """The ACLs that match, in any order."""

    acls: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeAclsRequest(Request[DescribeAclsResponse]):
    """A request for the ACLs that match a filter."""

    filter: AclFilter = AclFilter()
