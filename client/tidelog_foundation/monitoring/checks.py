"""The health checks of a process, by which supervisors decide about traffic and restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of a health check. ``detail`` explains it to an operator."""

    name: str
    is_ok: bool
    detail: str = ""


Readiness: TypeAlias = Callable[[], Sequence[Check]]
"""Returns the checks on the process's event loop. The process is ready if all are passed."""


def all_checks(*parts: Readiness) -> Readiness:
    """Return the checks of a process that has several parts."""
    return lambda: [check for part in parts for check in part()]
