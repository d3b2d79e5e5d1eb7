"""How many examples a property has where it says so itself: as many as it says, few in ``make quick``."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """Return the number of examples for ``settings(max_examples=...)``; the profile ``quick`` has its own bound."""
    return min(count, settings().max_examples) if settings.get_current_profile_name() == "quick" else count


def steps(count: int) -> int:
    """Return the same for ``settings(stateful_step_count=...)``."""
    return min(count, settings().stateful_step_count) if settings.get_current_profile_name() == "quick" else count
