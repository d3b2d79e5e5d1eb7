"""The settings of authorization, the same for nodes and controllers, with Kafka's keys."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.authorization.authorizer import Authorizer
from tidelog_foundation.authorization.standard import StandardRules
from tidelog_foundation.authorization.standard_authorizer import STANDARD_AUTHORIZER, StandardAuthorizer
from tidelog_foundation.config.settings import setting
from tidelog_foundation.config.validators import one_of
from tidelog_foundation.security import Principal


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
        f"The authorizer of requests: {STANDARD_AUTHORIZER} decides by ACLs. Without one, everybody may do everything.",
        one_of("", STANDARD_AUTHORIZER),
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

    def new_authorizer(self) -> Authorizer | None:
        """Return the authorizer, None without one."""
        if not self.has_authorizer:
            return None
        rules = StandardRules(parse_super_users(self.super_users), allow_if_no_acl=self.allow_everyone_if_no_acl_found)
        return StandardAuthorizer(rules)
