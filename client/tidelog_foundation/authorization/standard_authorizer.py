"""The authorizer of ``org.apache.kafka.metadata.authorizer.StandardAuthorizer``: its rules, and the audit log.

The logger ``tidelog.authorizer`` has one line per decision. A denial is INFO, unless the caller did not name the
resource. A permission is INFO for administration and DEBUG for everything else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog_foundation.authorization.authorizer import Action, RequestOrigin
from tidelog_foundation.authorization.standard import StandardRules
from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import WILDCARD, AclBinding, AclOperation, ResourceType

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's name of the authorizer."""
audit = logging.getLogger("tidelog.authorizer")
_ADMINISTRATION: Final = frozenset(
    (
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
        AclOperation.CREATE_TOKENS,
    )
)
_MAX_NAME: Final = 256
"""The most characters of a text of the caller in a line."""


class StandardAuthorizer:
    """Decides by ACLs and super users."""

    def __init__(self, rules: StandardRules) -> None:
        self._rules = rules

    @property
    def decides_by_acls(self) -> bool:
        """True, unless each permission is logged."""
        return not audit.isEnabledFor(logging.DEBUG)

    def set_acls(self, acls: Mapping[AclId, AclBinding]) -> None:
        """Use these ACLs, by id."""
        self._rules.set_acls(acls)

    def authorize(self, origin: RequestOrigin, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed."""
        principal, host, allows = str(origin.principal), origin.host, self._rules.allows
        decisions = [allows(principal, host, a.operation, a.resource_type, a.resource_name) for a in actions]
        for action, is_allowed in zip(actions, decisions, strict=True):
            if not is_allowed:
                if action.log_if_denied:
                    _log(logging.INFO, origin, action, "denied")
            elif action.log_if_denied:
                level = logging.INFO if action.operation in _ADMINISTRATION else logging.DEBUG
                if audit.isEnabledFor(level):
                    _log(level, origin, action, "allowed")
        return decisions

    def authorize_by_resource_type(
        self, origin: RequestOrigin, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679)."""
        is_allowed = self._rules.allows_any(str(origin.principal), origin.host, operation, resource_type)
        if not is_allowed:
            _log(logging.INFO, origin, Action(operation, resource_type, WILDCARD), "denied")
        return is_allowed


def _log(level: int, origin: RequestOrigin, action: Action, decision: str) -> None:
    audit.log(
        level,
        "%s principal=%s host=%s client_id=%s api=%s operation=%s resource=%s:%s",
        decision,
        _quoted(str(origin.principal)),
        origin.host,
        _quoted(origin.client_id),
        origin.api,
        action.operation.name,
        action.resource_type.name,
        _quoted(action.resource_name),
    )


def _quoted(text: str) -> str:
    """Return a caller's text as a JSON string, so that it cannot end the line."""
    return json.dumps(text[:_MAX_NAME])
