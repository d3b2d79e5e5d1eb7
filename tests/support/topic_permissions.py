"""The authorizer of a node in a test, whose decisions and log are compared between two such nodes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final, cast

from support.metric_values import values

from tidelog_foundation.authorization import (
    Access,
    Action,
    Authorizer,
    RequestOrigin,
    StandardAuthorizer,
    StandardRules,
)
from tidelog_foundation.authorization.audit_log import audit
from tidelog_foundation.authorization.counted import DECISIONS, CountedAuthorizer
from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from tidelog_foundation.security import Principal
from tidelog_node.kafka.authorization import KafkaGuard
from tidelog_node.kafka.served import Caller
from tidelog_node.partitions import MetadataCache
from tidelog_node.shards.events import ClientIdentity

USERS: Final = ("alice", "bob")
_PERIOD: Final = 3


class EveryThird(Authorizer):
    """Denies the third of three actions, whatever it is, so that each question counts."""

    def __init__(self) -> None:
        self._asked = 0

    def authorize(self, origin: RequestOrigin, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed."""
        decisions = []
        for action in actions:
            self._asked += action.log_if_denied
            decisions.append(not action.log_if_denied or self._asked % _PERIOD != 0)
        return decisions


def standard() -> Authorizer:
    """Return an authorizer that decides by ACLs alone."""
    return StandardAuthorizer(StandardRules())


AUTHORIZERS: Final = {"standard": standard, "own": EveryThird}


class Permissions:
    """The guard of a node, the ACLs of its image, and the callers that it knows.

    ``metadata`` has the image of the node, whose ACLs the test sets.
    """

    def __init__(self, metadata: SimpleNamespace, authorizer: Authorizer) -> None:
        self._metadata = metadata
        self._authorizer = CountedAuthorizer(authorizer)
        self._guard = KafkaGuard(self._authorizer, cast(MetadataCache, metadata))
        self._callers = {
            user: Caller("PLAINTEXT", ClientIdentity("client", "/10.0.0.7"), 12, Principal("User", user))
            for user in USERS
        }
        self._acls: dict[AclId, AclBinding] = {}
        metadata.image.acls = self._acls

    def access(self, user: str) -> Access:
        """Return the permissions of a user for a fetch."""
        return self._guard.access("FETCH", self._callers[user])

    def set(self, user: str, permission: AclPermissionType | None) -> None:
        """Let an ACL permit or deny a user to read the topic ``t`` and to act for the cluster, or remove it."""
        acls = {key: acl for key, acl in self._acls.items() if acl.principal != f"User:{user}"}
        if permission is not None:
            for kind, name, operation in (
                (ResourceType.TOPIC, "t", AclOperation.READ),
                (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.CLUSTER_ACTION),
            ):
                acl = AclBinding(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, permission)
                acls[AclId(f"{user}{kind:5}{permission:5}".encode().ljust(16))] = acl
        self._acls = self._metadata.image.acls = acls

    def counts(self) -> Mapping[tuple[str, ...], object]:
        """Return the number of decisions by operation, resource type and outcome."""
        return values(self._authorizer.families(), DECISIONS)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def audit_lines(level: int) -> Iterator[list[str]]:
    """Collect the lines of the audit log, which has this level meanwhile."""
    before, handler = audit.level, _Lines()
    audit.setLevel(level)
    audit.addHandler(handler)
    try:
        yield handler.lines
    finally:
        audit.removeHandler(handler)
        audit.setLevel(before)
