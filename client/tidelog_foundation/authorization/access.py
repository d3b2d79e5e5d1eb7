"""The decisions about one request."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Final

from tidelog_foundation.authorization.authorizer import Action, Authorizer, RequestOrigin
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.acls import CLUSTER_NAME, AclOperation, ResourceType
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_foundation.time_slices import TimeSlices

_TOPIC_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_SUPPORTED: Final = {
    ResourceType.TOPIC: _TOPIC_OPERATIONS,
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations on a type of resource (Kafka's AclEntry.supportedOperations)."""
_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def _no_name(_: bytes) -> None:
    return None


class Right:
    """An operation on resources of a type, for requests that need it often. It is compared by identity."""

    __slots__ = ("kind", "operation")

    def __init__(self, operation: AclOperation, kind: ResourceType) -> None:
        self.operation = operation
        self.kind = kind


READ_TOPIC: Final = Right(AclOperation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Right(AclOperation.WRITE, ResourceType.TOPIC)
WRITE_TRANSACTION: Final = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
_NAMES_AT_ONCE: Final = 64
"""The number of names that are decided without a look at the time."""
_MAX_REMEMBERED: Final = 100
"""The maximum number of names that an Access remembers for a right."""


class Access:
    """The permissions of a caller for the requests of one API, under the same ACLs."""

    __slots__ = ("_authorizer", "_origin", "_remembered", "topic_name")

    def __init__(
        self, authorizer: Authorizer, origin: RequestOrigin, topic_name: Callable[[bytes], str | None] = _no_name
    ) -> None:
        self._authorizer = authorizer
        self._origin = origin
        self._remembered: dict[Right, set[str]] | None = {} if authorizer.decides_by_acls else None
        self.topic_name = topic_name
        """Returns the name of the topic with an id, or None."""

    def allows(self, operation: AclOperation, kind: ResourceType, name: str, *, log: bool = True) -> bool:
        """Return whether an operation on a resource is allowed; a denial is not logged without ``log``."""
        return self._authorizer.authorize(self._origin, [Action(operation, kind, name, log)])[0]

    @property
    def principal(self) -> Principal:
        """The caller."""
        return self._origin.principal

    @property
    def client_id(self) -> str:
        """The caller's name of its client."""
        return self._origin.client_id

    def may_describe_topic(self, name: str) -> bool:
        """Return whether the caller may describe a topic that it has not named, so that a denial is not logged."""
        return self.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, log=False)

    def may_create_token_for(self, owner: Principal) -> bool:
        """Return whether the caller may create a delegation token of an owner. Everybody may for itself (KIP-373).

        An anonymous caller passes, since it is refused for another reason.
        """
        if self.principal in (owner, ANONYMOUS):
            return True
        return self.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner))

    def may_see_token(self, token_id: str, owner: Principal, others: Iterable[Principal]) -> bool:
        """Return whether the caller may see a delegation token. ``others`` are its requester and renewers."""
        return (
            self.principal in (owner, *others)
            or self.allows(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id, log=False)
            or self.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(owner), log=False)
        )

    def remembers(self, right: Right, name: str) -> bool:
        """Return whether :meth:`has` has granted a right before, without a line in a log; if not, it must decide."""
        return self._remembered is not None and name in self._remembered.get(right, ())

    def has(self, right: Right, name: str) -> bool:
        """Return whether the caller has a right on a resource. Repeated permissions take a fraction of the time."""
        remembered = self._remembered
        if remembered is None:
            return self.allows(right.operation, right.kind, name)
        names = remembered.get(right)
        if names is not None and name in names:
            return True
        if not self.allows(right.operation, right.kind, name):
            return False
        if names is None:
            remembered[right] = {name}
        elif len(names) < _MAX_REMEMBERED:
            names.add(name)
        return True

    def on_cluster(self, operation: AclOperation, *, log: bool = True) -> bool:
        """Return whether an operation on the cluster is allowed."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, log=log)

    async def allowed(
        self, operation: AclOperation, kind: ResourceType, names: Iterable[str], *, log: bool = True
    ) -> frozenset[str]:
        """Return the names of the resources on which an operation is allowed. Each is decided once.

        Other requests have their turns while many names are decided.
        """
        distinct = list(dict.fromkeys(names))
        found: list[str] = []
        slices = TimeSlices()
        for begin in range(0, len(distinct), _NAMES_AT_ONCE):
            if slices.is_over:
                await slices.give_way()
            some = distinct[begin : begin + _NAMES_AT_ONCE]
            decisions = self._authorizer.authorize(self._origin, [Action(operation, kind, name, log) for name in some])
            found += itertools.compress(some, decisions)
        return frozenset(found)

    async def split(
        self, operation: AclOperation, kind: ResourceType, names: Iterable[str]
    ) -> tuple[list[str], list[str]]:
        """Return the names of the resources on which an operation is allowed, and the others, each in their order."""
        names = list(names)
        allowed = await self.allowed(operation, kind, names)
        return [name for name in names if name in allowed], [name for name in names if name not in allowed]

    def denial(self, operation: AclOperation, kind: ResourceType, name: str) -> TidelogError:
        """Return the error of a denied operation on a resource."""
        text = f"{self._origin.principal} is not authorized to {operation.name} {kind.name} {name}"
        return error_for(_ERRORS[kind], text)

    def require(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Return if an operation on a resource is allowed.

        Raises:
            TidelogError: The operation is denied: CLUSTER_AUTHORIZATION_FAILED, or the error of the resource's type.
        """
        if not self.allows(operation, kind, name):
            raise self.denial(operation, kind, name)

    def allows_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether an operation is allowed on at least one resource of a type."""
        return self._authorizer.authorize_by_resource_type(self._origin, operation, kind)

    def operations_on_cluster(self) -> int:
        """Return the allowed operations on the cluster, 0 if it must not be described."""
        if not self.on_cluster(AclOperation.DESCRIBE):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the allowed operations on a resource, one bit each."""
        supported = _SUPPORTED[kind]
        actions = [Action(operation, kind, name, log_if_denied=False) for operation in supported]
        decisions = self._authorizer.authorize(self._origin, actions)
        return sum(1 << operation for operation, is_allowed in zip(supported, decisions, strict=True) if is_allowed)
