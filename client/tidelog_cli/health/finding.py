"""Findings about a cluster: what is wrong, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_NAMED: Final = 3


class Severity(enum.IntEnum):
    """The severities, in the words of the alerts. Their values are the exit codes of the commands."""

    INFO = 0
    """Worth a look; nothing is wrong."""
    WARNING = 1
    """One more failure may refuse clients or lose records."""
    CRITICAL = 2
    """Clients are refused, or records are in danger, now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about an object of the cluster. ``link`` is a page of the docs."""

    severity: Severity
    subject: str
    text: str
    action: str
    link: str = ""


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0, or the value of the worst severity."""
    return max((finding.severity.value for finding in findings), default=0)


def named(names: Sequence[str]) -> str:
    """Return the first few of several names, and the number of the rest."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
