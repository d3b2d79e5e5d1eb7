"""The condition ``Ready`` of a resource, and its status as a document. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one reconciliation.

    ``reason`` is one word for programs, ``message`` a sentence for people, ``fields`` the rest of the status.
    ``again_s`` is the time until the next reconciliation if nothing happens before.
    """

    is_ready: bool
    reason: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    again_s: float = 30.0


class Refusal(Exception):
    """A wish that cannot be fulfilled until somebody changes something; it becomes the condition of the resource."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def status_of(outcome: Outcome, before: Mapping[str, Any], generation: int, now: str) -> dict[str, Any]:
    """Return the status after an outcome. ``now`` is a time in RFC 3339.

    ``lastTransitionTime`` changes with the condition's status alone, and fields that the outcome does not have stay.
    A field that is None is removed by a merge patch.
    """
    status = "True" if outcome.is_ready else "False"
    old = next((c for c in before.get("conditions", ()) if c["type"] == "Ready"), None)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else now
    condition = {
        "type": "Ready",
        "status": status,
        "reason": outcome.reason,
        "message": outcome.message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }
    fields = {key: value for key, value in outcome.fields.items() if value is not None or key in before}
    return {**before, **fields, "conditions": [condition], "observedGeneration": generation}
