"""An authorizer as others write them: it permits by the names of resources, and keeps its own ACLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tidelog_foundation.authorization import Action, Authorizer, RequestOrigin
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.requests.acls import AclBinding, AclCreationResult, AclDeletionResult, AclFilter


class OwnNamesAuthorizer(Authorizer):
    """Permits everything to super users, and to others what begins with their name."""

    started: ClassVar[int] = 0

    def __init__(self) -> None:
        self._super_users: frozenset[str] = frozenset()
        self._acls: list[AclBinding] = []

    def configure(self, settings: Mapping[str, str]) -> None:
        self._super_users = frozenset(settings["super.users"].split(";"))
        if "User:nobody" in self._super_users:
            raise ConfigError("nobody cannot be a super user")

    async def start(self) -> None:
        type(self).started += 1

    def authorize(self, origin: RequestOrigin, actions: Sequence[Action]) -> Sequence[bool]:
        is_super = str(origin.principal) in self._super_users
        return [is_super or a.resource_name.startswith(origin.principal.name) for a in actions]

    async def create_acls(self, acls: Sequence[AclBinding]) -> Sequence[AclCreationResult]:
        self._acls += acls
        return [AclCreationResult() for _ in acls]

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Sequence[AclDeletionResult]:
        found = [tuple(acl for acl in self._acls if each.matches(acl)) for each in filters]
        self._acls = [acl for acl in self._acls if not any(each.matches(acl) for each in filters)]
        return [AclDeletionResult(deleted=acls) for acls in found]

    async def acls(self, acl_filter: AclFilter) -> Sequence[AclBinding]:
        return [acl for acl in self._acls if acl_filter.matches(acl)]


class NoAuthorizer:
    """Not an authorizer."""
