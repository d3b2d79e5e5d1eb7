"""The authorizer of ``org.apache.kafka.metadata.authorizer.StandardAuthorizer``: its rules, and the audit log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog_foundation.authorization.audit_log import AuditLog, audit
from tidelog_foundation.authorization.authorizer import Action, Authorizer, RequestOrigin
from tidelog_foundation.authorization.standard import StandardRules
from tidelog_foundation.ids import AclId
from tidelog_foundation.requests.acls import WILDCARD, AclBinding, AclOperation, ResourceType

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's name of the authorizer."""


class StandardAuthorizer(Authorizer):
    """Decides by ACLs and super users."""

    def __init__(self, rules: StandardRules) -> None:
        self._rules = rules
        self._audit = AuditLog()

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
            if action.log_if_denied:
                self._audit.record(origin, action, is_allowed=is_allowed)
        return decisions

    def authorize_by_resource_type(
        self, origin: RequestOrigin, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679)."""
        is_allowed = self._rules.allows_any(str(origin.principal), origin.host, operation, resource_type)
        if not is_allowed:
            self._audit.record(origin, Action(operation, resource_type, WILDCARD), is_allowed=False)
        return is_allowed
