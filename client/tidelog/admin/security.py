"""ACLs, with confluent-kafka's names."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from tidelog.admin.operations import Future, Operations, Outcomes, change_timeout_ms
from tidelog.admin.resources import AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from tidelog.cluster.answers import error_of
from tidelog.v1 import admin_service_pb2 as pb
from tidelog.v1 import common_pb2 as common_pb

E = TypeVar("E", bound=enum.Enum)


@functools.total_ordering
class AclBinding:
    """An ACL: it allows or denies a principal, from a host, an operation on resources (KIP-11).

    Types can be members, their names or their numbers. Two ACLs are equal if all their parts are.
    """

    _FORBIDDEN: ClassVar[frozenset[enum.Enum]] = frozenset(
        (
            ResourceType.ANY,
            ResourcePatternType.ANY,
            ResourcePatternType.MATCH,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
    )
    _OPTIONAL: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        """Create a rule.

        Raises:
            ValueError: a part is missing, or is not a type that a rule can have.
            TypeError: ``name``, ``principal`` or ``host`` is not a string.
        """
        self.restype = self._member("restype", ResourceType, restype)
        self.name = self._text("name", name)
        self.resource_pattern_type = self._member("resource_pattern_type", ResourcePatternType, resource_pattern_type)
        self.principal = self._text("principal", principal)
        self.host = self._text("host", host)
        self.operation = self._member("operation", AclOperation, operation)
        self.permission_type = self._member("permission_type", AclPermissionType, permission_type)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._parts()))})"

    def __hash__(self) -> int:
        return hash(self._parts())

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, AclBinding) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._parts() < other._parts() if isinstance(other, AclBinding) else NotImplemented

    def _parts(self) -> tuple[Any, ...]:
        where = (self.restype, self.name, self.resource_pattern_type)
        return (*where, self.principal, self.host, self.operation, self.permission_type)

    def _text(self, what: str, value: str | None) -> str | None:
        if value is None and what not in self._OPTIONAL:
            raise ValueError(f"{what} must not be None")
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{what} must be text, not {type(value).__name__}")
        return value

    def _member(self, what: str, kind: type[E], value: object) -> E:
        if value is None:
            raise ValueError(f"{what} must not be None")
        try:
            member = kind[value.upper()] if isinstance(value, str) else kind(value)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{what} must be one of {', '.join(kind.__members__)}, not {value!r}") from error
        if member in self._FORBIDDEN:
            raise ValueError(f"{what} of an {type(self).__name__} must not be {member.name}")
        return member


class AclBindingFilter(AclBinding):
    """A filter of ACLs: None, or the member ANY, matches every value of that part."""

    _FORBIDDEN = frozenset(
        (
            ResourceType.UNKNOWN,
            ResourcePatternType.UNKNOWN,
            AclOperation.UNKNOWN,
            AclPermissionType.UNKNOWN,
        )
    )
    _OPTIONAL = frozenset(("name", "principal", "host"))


class SecurityAdmin(Operations):
    """Operations on ACLs."""

    def create_acls(
        self, acls: Iterable[AclBinding], *, request_timeout: float | None = None
    ) -> dict[AclBinding, Future[None]]:
        """Create ACLs; creating one that exists succeeds. ``request_timeout`` is in seconds.

        A future fails with KafkaException: INVALID_REQUEST if the ACL is invalid; SECURITY_DISABLED if the cluster has
        no authorizer.
        """
        wanted = list(dict.fromkeys(acls))
        request = pb.CreateAclsRequest(
            acls=[common_pb.AclBinding(**_parts_of(acl)) for acl in wanted],
            timeout_ms=change_timeout_ms(request_timeout),
        )

        async def create() -> Outcomes[AclBinding, None]:
            response = await self._change(lambda c, t: c.admin.CreateAcls(request, timeout=t), request_timeout)
            return {acl: error_of(result) for acl, result in zip(wanted, response.results, strict=True)}

        return self._futures(wanted, create())

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
    ) -> Future[list[AclBinding]]:
        """Return the ACLs that match a filter, in order.

        The future fails with KafkaException: SECURITY_DISABLED if the cluster has no authorizer.
        """
        request = pb.DescribeAclsRequest(filter=pb.AclFilter(**_parts_of(acl_binding_filter)))

        async def describe() -> list[AclBinding]:
            response = await self._ask(lambda c, t: c.admin.DescribeAcls(request, timeout=t), request_timeout)
            return sorted(map(_from_proto, response.acls))

        return self._future(describe())

    def delete_acls(
        self, acl_binding_filters: Iterable[AclBindingFilter], *, request_timeout: float | None = None
    ) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
        """Delete the ACLs that match any of the filters. Each future returns those that its filter matched.

        A future fails with KafkaException: SECURITY_DISABLED if the cluster has no authorizer.
        """
        wanted = list(dict.fromkeys(acl_binding_filters))
        request = pb.DeleteAclsRequest(
            filters=[pb.AclFilter(**_parts_of(each)) for each in wanted], timeout_ms=change_timeout_ms(request_timeout)
        )

        async def delete() -> Outcomes[AclBindingFilter, list[AclBinding]]:
            response = await self._change(lambda c, t: c.admin.DeleteAcls(request, timeout=t), request_timeout)
            return {
                each: error_of(result) or sorted(map(_from_proto, result.deleted))
                for each, result in zip(wanted, response.results, strict=True)
            }

        return self._futures(wanted, delete())


def _parts_of(acl: AclBinding) -> dict[str, Any]:
    """Return the fields of the message of an ACL or a filter."""
    return {
        "resource_type": acl.restype.value,
        "resource_name": acl.name,
        "pattern_type": acl.resource_pattern_type.value,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.value,
        "permission_type": acl.permission_type.value,
    }


def _from_proto(acl: common_pb.AclBinding) -> AclBinding:
    return AclBinding(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
