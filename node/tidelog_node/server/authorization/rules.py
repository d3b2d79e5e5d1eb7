"""The rule of every method of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog_foundation.authorization.admin_rules import ADMIN_RULES
from tidelog_foundation.authorization.rules import Rule
from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.server.authorization.group_rules import GROUP_RULES
from tidelog_node.server.authorization.log_rules import LOG_RULES
from tidelog_node.server.authorization.transaction_rules import TRANSACTION_RULES

RULES: Final[Mapping[str, Rule]] = {**ADMIN_RULES, **GROUP_RULES, **LOG_RULES, **TRANSACTION_RULES}
STREAMS: Final[Mapping[str, AclOperation | None]] = {"ProduceStream": None}
"""Each request of the stream is decided by itself."""
