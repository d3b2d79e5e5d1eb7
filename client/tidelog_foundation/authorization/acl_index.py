"""An index of ACLs that finds the ones of a resource and a principal without a scan.

Permissions of one principal from one host on one pattern are two sets of bits, one bit per operation. A decision looks
up the literal name, the wildcard, and one prefix per length that a prefixed ACL has.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from typing import Final, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)


@dataclass(slots=True)
class _Permissions:
    """ACLs of one pattern, principal and host, and the operations that they allow and deny, one bit each.

    Several ACLs can have the same effect, if they name the same host in different forms.
    """

    acls: set[AclBinding] = field(default_factory=set)
    allowed: int = 0
    denied: int = 0

    def add(self, acl: AclBinding) -> None:
        self.acls.add(acl)
        if acl.permission_type is AclPermissionType.ALLOW:
            self.allowed |= 1 << acl.operation
        else:
            self.denied |= 1 << acl.operation

    def remove(self, acl: AclBinding) -> None:
        rest = self.acls - {acl}
        self.acls, self.allowed, self.denied = set(), 0, 0
        for each in rest:
            self.add(each)


_Pattern: TypeAlias = "dict[tuple[str, str], _Permissions]"
"""The permissions by principal and host of the ACLs with one pattern."""


@dataclass(slots=True)
class _Resources:
    """The ACLs of one resource type. ``lengths`` counts the prefixes of each length."""

    literals: dict[str, _Pattern] = field(default_factory=dict)
    prefixes: dict[str, _Pattern] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)

    def patterns_of(self, name: str) -> Iterator[_Pattern]:
        """Yield the patterns that match a resource."""
        literals, prefixes = self.literals, self.prefixes
        if (pattern := literals.get(name)) is not None:
            yield pattern
        if name != WILDCARD and (pattern := literals.get(WILDCARD)) is not None:
            yield pattern
        size = len(name)
        for length in self.lengths:
            if length <= size and (pattern := prefixes.get(name[:length])) is not None:
                yield pattern


class AclIndex:
    """The ACLs of a cluster, each at most once. An addition or removal takes the same time for any number of ACLs."""

    def __init__(self) -> None:
        self._types: dict[ResourceType, _Resources] = {}

    def add(self, acl: AclBinding) -> None:
        """Add an ACL that the index does not have."""
        resources = self._types.setdefault(acl.resource_type, _Resources())
        patterns = _patterns(resources, acl)
        if acl.resource_name not in patterns:
            patterns[acl.resource_name] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                resources.lengths[len(acl.resource_name)] += 1
        patterns[acl.resource_name].setdefault(_caller(acl), _Permissions()).add(acl)

    def remove(self, acl: AclBinding) -> None:
        """Remove an ACL that the index has."""
        resources = self._types[acl.resource_type]
        patterns = _patterns(resources, acl)
        callers = patterns[acl.resource_name]
        permissions = callers[_caller(acl)]
        permissions.remove(acl)
        if not permissions.acls:
            del callers[_caller(acl)]
        if not callers:
            del patterns[acl.resource_name]
            if acl.pattern_type is PatternType.PREFIXED:
                _uncount(resources.lengths, len(acl.resource_name))

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Return whether the ACLs allow an operation; None if no ACL names the resource, for anybody.

        An ACL that denies has precedence. ``host`` is in the form of :func:`canonical_host`.
        """
        resources = self._types.get(resource_type)
        if resources is None:
            return None
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        is_allowed: bool | None = None
        for pattern in resources.patterns_of(name):
            if is_allowed is None:
                is_allowed = False
            for caller in _callers(principal, host):
                permissions = pattern.get(caller)
                if permissions is not None:
                    if permissions.denied & denying:
                        return False
                    is_allowed = is_allowed or bool(permissions.allowed & allowing)
        return is_allowed

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether the ACLs allow an operation on at least one resource of a type (KIP-679).

        As in Kafka, operations do not imply others here. A literal that is denied by an ACL of the same name or of a
        prefix is not allowed, and a prefix is not if it or a shorter one is denied.
        """
        resources = self._types.get(resource_type, _Resources())
        mask = _DENYING[operation]
        callers = _callers(principal, host)

        def granted(patterns: dict[str, _Pattern], *, denied: bool) -> Iterator[str]:
            for name, pattern in patterns.items():
                found = [pattern[caller] for caller in callers if caller in pattern]
                if any((p.denied if denied else p.allowed) & mask for p in found):
                    yield name

        denied_names = set(granted(resources.literals, denied=True))
        if WILDCARD in denied_names:
            return False
        denied_prefixes = set(granted(resources.prefixes, denied=True))
        lengths = {len(prefix) for prefix in denied_prefixes}

        def is_free(name: str) -> bool:
            return not any(name[:n] in denied_prefixes for n in lengths if n <= len(name))

        allowed_names = set(granted(resources.literals, denied=False))
        if WILDCARD in allowed_names:
            return True
        if any(is_free(name) for name in allowed_names - denied_names):
            return True
        return any(is_free(prefix) for prefix in granted(resources.prefixes, denied=False))


def canonical_host(host: str) -> str:
    """Return the short form of an address, so that all forms of it are equal; other texts remain as they are.

    An IPv6 address that contains an IPv4 address becomes that one, as in Java.
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


def _caller(acl: AclBinding) -> tuple[str, str]:
    return acl.principal, canonical_host(acl.host)


def _callers(principal: str, host: str) -> tuple[tuple[str, str], ...]:
    return (
        (principal, host),
        (principal, WILDCARD),
        (WILDCARD_PRINCIPAL, host),
        (WILDCARD_PRINCIPAL, WILDCARD),
    )


def _patterns(resources: _Resources, acl: AclBinding) -> dict[str, _Pattern]:
    return resources.prefixes if acl.pattern_type is PatternType.PREFIXED else resources.literals


def _uncount(lengths: Counter[int], length: int) -> None:
    lengths[length] -= 1
    if not lengths[length]:
        del lengths[length]


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_DENYING: Final = {operation: _bits(operation, AclOperation.ALL) for operation in AclOperation}
"""The operations whose denial denies an operation."""
_IMPLIED: Final = {
    AclOperation.DESCRIBE: _bits(AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: _bits(AclOperation.ALTER_CONFIGS),
}
_ALLOWING: Final = {operation: bits | _IMPLIED.get(operation, 0) for operation, bits in _DENYING.items()}
"""The operations whose permission permits an operation."""
