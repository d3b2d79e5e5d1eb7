"""The settings of authorization, the same for nodes and controllers, with Kafka's keys."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Final

from tidelog_foundation.authorization.authorizer import Authorizer
from tidelog_foundation.authorization.standard import StandardRules
from tidelog_foundation.authorization.standard_authorizer import STANDARD_AUTHORIZER, StandardAuthorizer
from tidelog_foundation.config.settings import setting
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security import Principal

ENTRY_POINTS: Final = "tidelog.authorizers"
"""The group of entry points that name authorizers."""


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals that ``User:alice;User:bob`` names.

    Raises:
        ConfigError: A part is not a principal; the message contains it.
    """
    return frozenset(str(Principal.parse(part)) for part in text.split(";") if part.strip())


# Not slotted: the settings of nodes and of controllers inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class AuthorizerSettings:
    """The choice of an authorizer, and the settings of StandardAuthorizer."""

    authorizer_class_name: str = setting(
        "",
        f"The authorizer of requests: {STANDARD_AUTHORIZER} decides by ACLs; module:Class, or the name of an entry "
        f"point of the group {ENTRY_POINTS}, is a class that inherits from "
        "tidelog_foundation.authorization.Authorizer. Without one, everybody may do everything.",
    )
    super_users: str = setting(
        "",
        "The principals that may do everything: User:alice;User:bob. Nodes and controllers must be among them, or be "
        "allowed CLUSTER_ACTION on the cluster.",
        parse_super_users,
    )
    allow_everyone_if_no_acl_found: bool = setting(False, "Whether everybody may use a resource that no ACL matches.")

    @property
    def has_authorizer(self) -> bool:
        """True if an authorizer decides about requests."""
        return bool(self.authorizer_class_name)

    def new_authorizer(self, node_id: int) -> Authorizer | None:
        """Return the authorizer of a process, configured but not started; None without one.

        Raises:
            ConfigError: The class does not exist or is no authorizer, or refuses its settings.
        """
        if not self.has_authorizer:
            return None
        if self.authorizer_class_name == STANDARD_AUTHORIZER:
            super_users = parse_super_users(self.super_users)
            return StandardAuthorizer(StandardRules(super_users, allow_if_no_acl=self.allow_everyone_if_no_acl_found))
        authorizer = _class_of(self.authorizer_class_name)()
        authorizer.configure(
            {
                "node.id": str(node_id),
                "super.users": self.super_users,
                "allow.everyone.if.no.acl.found": str(self.allow_everyone_if_no_acl_found).lower(),
            }
        )
        return authorizer


def _class_of(name: str) -> type[Authorizer]:
    """Return the class that ``module:Class`` or an entry point names."""
    try:
        found = _load(name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"authorizer.class.name {name} cannot be loaded: {error}") from error
    if not isinstance(found, type) or not issubclass(found, Authorizer):
        raise ConfigError(f"authorizer.class.name {name} must inherit from tidelog_foundation.authorization.Authorizer")
    return found


def _load(name: str) -> object:
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)
    points = importlib.metadata.entry_points(group=ENTRY_POINTS, name=name)
    for point in points:
        return point.load()
    raise ImportError(f"it is neither {STANDARD_AUTHORIZER} nor module:Class nor an entry point of {ENTRY_POINTS}")
