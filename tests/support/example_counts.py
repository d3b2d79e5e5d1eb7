"""The number of examples of a property with its own count: that count in ``make sim``, fewer in ``make test``."""

from __future__ import annotations

from hypothesis import settings

DEFAULT_EXAMPLES = 100
"""The number of examples of a property without its own count, in ``make sim``."""
_LEAST = 10
"""A property with at most this many examples has all of them in ``make test``."""
_SHARE = 0.3


def examples(count: int) -> int:
    """Return the number of examples for ``settings(max_examples=...)``.

    The profile ``thorough`` has all of them, ``tidelog`` a share, and ``quick`` has its own limit.
    """
    match settings.get_current_profile_name():
        case "quick":
            return min(count, settings().max_examples)
        case "thorough":
            return count
        case _:
            return share_of(count)


def share_of(count: int) -> int:
    """Return the number of examples that ``make test`` runs of a property with so many."""
    return min(count, max(_LEAST, round(count * _SHARE)))


def steps(count: int) -> int:
    """Return the number of steps for ``settings(stateful_step_count=...)``. The profile ``quick`` has its own limit."""
    return min(count, settings().stateful_step_count) if settings.get_current_profile_name() == "quick" else count
