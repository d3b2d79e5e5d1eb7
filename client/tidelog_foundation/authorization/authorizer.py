"""The interface of authorizers (KIP-504), which decide whether callers may perform actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import (
    AclBinding,
    AclCreationResult,
    AclDeletionResult,
    AclFilter,
    AclOperation,
    ResourceType,
)
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


class Authorizer(ABC):
    """Decides for one process. A class that is named in ``authorizer.class.name`` inherits from it (KIP-504).

    One object is made without arguments, configured, started, and asked on the process's event loop, so that no method
    may block. A request fails if a method raises an exception.
    """

    def configure(self, settings: Mapping[str, str]) -> None:  # noqa: B027  # optional
        """Take the settings of authorization and ``node.id``. The default ignores them.

        Raises:
            ConfigError: A setting is invalid. The process does not start.
        """

    async def start(self) -> None:  # noqa: B027  # optional
        """Load what the authorizer needs, before clients are served. The default does nothing."""

    @abstractmethod
    def authorize(self, origin: RequestOrigin, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed."""

    def authorize_by_resource_type(
        self, origin: RequestOrigin, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679). By default it is not."""
        return False

    @property
    def decides_by_acls(self) -> bool:
        """True if permissions depend on the ACLs of :meth:`set_acls` alone.

        Permissions are then remembered until the ACLs change. By default, each request is decided.
        """
        return False

    def set_acls(self, acls: Mapping[AclId, AclBinding]) -> None:  # noqa: B027  # optional
        """Use the ACLs of the metadata log, by id. Called before decisions when they have changed.

        The default ignores them.
        """


@runtime_checkable
class AclStore(Protocol):
    """ACLs that an authorizer keeps itself, in place of those of the metadata log.

    An authorizer with these methods answers the requests of administrators on the node that receives them.
    """

    async def create_acls(self, acls: Sequence[AclBinding]) -> Sequence[AclCreationResult]:
        """Create ACLs, and return the outcome for each."""

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Sequence[AclDeletionResult]:
        """Delete the ACLs that match any of the filters, and return the outcome for each filter."""

    async def acls(self, acl_filter: AclFilter) -> Sequence[AclBinding]:
        """Return the ACLs that match a filter."""
