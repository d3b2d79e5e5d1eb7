"""The setting with which nodes and controllers enable delegation tokens."""

from __future__ import annotations

from tidelog_foundation.config.settings import setting
from tidelog_foundation.config.validators import not_empty
from tidelog_foundation.dataclass import dataclass


# Not slotted: the settings of nodes inherit it beside a class with slots.
@dataclass(frozen=True, kw_only=True)
class TokenKey:
    """The secret key of delegation tokens."""

    delegation_token_secret_key: str | None = setting(
        None,
        "The secret key of delegation tokens (KIP-48), the same on all nodes and controllers. Without it, there are no "
        "delegation tokens.",
        not_empty,
        secret=True,
        config_type="PASSWORD",
    )
