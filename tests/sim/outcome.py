"""The outcome of one run of a simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from raft_properties import PropertyViolatedError

NEVER = 1 << 60
"""The value of ``check_every`` for a run that does not assert the cores' own invariants."""


@dataclass(slots=True)
class Outcome:
    """``violated`` is the name of the broken property, None when all held; ``counts`` what was exercised."""

    seed: int
    violated: str | None = None
    detail: str = ""
    fingerprint: int = 0
    counts: dict[str, int] = field(default_factory=dict)


@contextlib.contextmanager
def noting_violations(outcome: Outcome) -> Iterator[None]:
    """Record what a run raises: a broken property, or what a core raises of itself.

    That is a broken invariant, an event that it takes for impossible, or its word that another replica broke a promise.
    """
    try:
        yield
    except PropertyViolatedError as error:
        outcome.violated, outcome.detail = error.name, error.detail
    except Exception as error:  # noqa: BLE001
        place, line = _place(error)
        outcome.violated, outcome.detail = f"Core:{place}", f"{type(error).__name__}: {str(error)[:400]} in line {line}"


def _place(error: Exception) -> tuple[str, int]:
    trace, place = error.__traceback__, ("", 0)
    while trace is not None:
        place = trace.tb_frame.f_code.co_qualname, trace.tb_lineno
        trace = trace.tb_next
    return place
