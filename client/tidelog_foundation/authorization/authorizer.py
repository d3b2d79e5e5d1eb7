"""The interface of authorizers (KIP-504), which decide whether callers may perform actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import AclBinding, AclOperation, ResourceType
from tidelog_foundation.security import Principal


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The origin of a request: the caller, the caller's address, and the names of client, listener and API."""

    principal: Principal
    host: str
    client_id: str
    api: str
    listener: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """An operation on a resource.

    An authorizer logs a denied action only with ``log_if_denied``. It is False if the caller did not name the resource,
    as in a listing from which it is left out.
    """

    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    log_if_denied: bool = True


class Authorizer(Protocol):
    """Decides for one process. Called on its event loop, so an implementation must not block."""

    def authorize(self, origin: RequestOrigin, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed."""

    def authorize_by_resource_type(
        self, origin: RequestOrigin, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679)."""

    @property
    def decides_by_acls(self) -> bool:
        """True if permissions depend on the ACLs alone, so that callers may remember them until the ACLs change."""

    def set_acls(self, acls: Mapping[AclId, AclBinding]) -> None:
        """Use these ACLs, by id. Called with those of the metadata log before each request, mostly with the same."""
