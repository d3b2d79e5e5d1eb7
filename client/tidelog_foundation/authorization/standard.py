"""The authorizer with the rules of Kafka's StandardAuthorizer, over the ACLs of the metadata log.

Rules, in this order:

- super users may do everything;
- an ACL that denies an operation has precedence over all that allow it;
- an ACL that allows an operation, or another one that implies it, allows it: READ, WRITE, DELETE and ALTER imply
  DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS;
- otherwise the operation is denied, unless ``allow.everyone.if.no.acl.found`` is true and no ACL matches the resource,
  not even one of another principal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from tidelog_foundation.authorization.acl_index import AclIndex, canonical_host
from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import AclBinding, AclOperation, ResourceType

K = TypeVar("K")
_MAX_CACHED: Final = 20_000
"""The largest number of decisions in a cache, which is emptied when it is full."""
_MAX_CACHED_NAME: Final = 256
"""The length of the longest name in the cache; topics have shorter ones."""
_TYPE_BITS: Final = 4
_ANY_NAME: Final = "hardcode"
"""The resource that stands for all others in the first check of :meth:`StandardRules.allows_any`, as in Kafka."""


class StandardRules:
    """Decisions without an audit log. They are cached until the ACLs change.

    Without ACLs, before the first :meth:`set_acls`, super users alone may do something.
    """

    def __init__(self, super_users: Collection[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._acls: Mapping[AclId, AclBinding] | None = None
        self._index = AclIndex()
        self._cache: dict[tuple[str, str, int, str], bool] = {}
        self._cache_of_types: dict[tuple[str, str, int], bool] = {}

    def set_acls(self, acls: Mapping[AclId, AclBinding]) -> None:
        """Take the current ACLs, by id. An ACL is immutable, so only the ids are compared."""
        if acls is self._acls:
            return
        before, self._acls = self._acls or {}, acls
        for acl_id in before.keys() - acls.keys():
            self._index.remove(before[acl_id])
        for acl_id in acls.keys() - before.keys():
            self._index.add(acls[acl_id])
        self._cache.clear()
        self._cache_of_types.clear()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether a principal may perform an operation on a resource from a host."""
        # Members of enumerations have a slow hash.
        key = (principal, host, operation << _TYPE_BITS | resource_type, name)
        decision = self._cache.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, resource_type, name)
            if len(name) <= _MAX_CACHED_NAME:
                _store(self._cache, key, decision)
        return decision

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether a principal may perform an operation on at least one resource of a type (KIP-679)."""
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        key = (principal, host, operation << _TYPE_BITS | resource_type)
        decision = self._cache_of_types.get(key)
        if decision is None:
            decision = self._index.allows_any(principal, canonical_host(host), operation, resource_type)
            _store(self._cache_of_types, key, decision)
        return decision

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        if self._acls is None:
            return False
        decision = self._index.decide(principal, canonical_host(host), operation, resource_type, name)
        return self._allow_if_no_acl if decision is None else decision


def _store(cache: dict[K, bool], key: K, decision: bool) -> None:
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = decision
