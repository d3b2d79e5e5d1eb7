"""The number of examples of a property with its own count: that count, but few in ``make quick``."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """Return the number of examples for ``settings(max_examples=...)``. The profile ``quick`` has its own limit."""
    return min(count, settings().max_examples) if settings.get_current_profile_name() == "quick" else count


def steps(count: int) -> int:
    """Return the number of steps for ``settings(stateful_step_count=...)`` likewise."""
    return min(count, settings().stateful_step_count) if settings.get_current_profile_name() == "quick" else count
