"""The log of decisions, ``tidelog.authorizer``: a line per denial and per permitted change.

Denials of one principal are limited, so that a denied client that tries again and again does not fill the disk. The
first line after a period with more states how many were omitted.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Final

from tidelog_foundation.authorization.authorizer import Action, RequestOrigin
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.logs.limit import LogLimit
from tidelog_foundation.requests.acls import AclOperation

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
_MAX_PRINCIPALS: Final = 1_000
"""The maximum number of principals with a limit of their own; the others share one."""
_LINE: Final = "%s principal=%s host=%s client_id=%s api=%s operation=%s resource=%s:%s"


@dataclass(slots=True)
class DecisionCounts:
    """The logged decisions since the start of a process."""

    authorization_denied_total: int = 0
    administration_allowed_total: int = 0


class AuditLog:
    """Writes and counts the decisions of an authorizer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts = DecisionCounts()
        self._clock = clock
        self._limits: dict[str, LogLimit] = {}
        self._shared = LogLimit(audit, clock)

    def record(self, origin: RequestOrigin, action: Action, *, is_allowed: bool) -> None:
        """Log a decision: at INFO denials and permitted changes, at DEBUG all other permissions."""
        if not is_allowed:
            self.counts.authorization_denied_total += 1
            self._limit_of(str(origin.principal)).log(logging.INFO, _LINE, *_values("denied", origin, action))
            return
        level = logging.DEBUG
        if action.operation in _ADMINISTRATION:
            self.counts.administration_allowed_total += 1
            level = logging.INFO
        if audit.isEnabledFor(level):
            audit.log(level, _LINE, *_values("allowed", origin, action))

    def _limit_of(self, principal: str) -> LogLimit:
        limit = self._limits.get(principal)
        if limit is None:
            if len(self._limits) >= _MAX_PRINCIPALS:
                return self._shared
            limit = self._limits[principal] = LogLimit(audit, self._clock)
        return limit


def _values(decision: str, origin: RequestOrigin, action: Action) -> tuple[str, ...]:
    return (
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
