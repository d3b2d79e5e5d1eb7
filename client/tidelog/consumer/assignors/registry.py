"""The assignors by their names in ``partition.assignment.strategy``, as in Kafka and librdkafka."""

from __future__ import annotations

from tidelog.consumer.assignors.assignor import Assignor
from tidelog.consumer.assignors.range import RangeAssignor
from tidelog.consumer.assignors.roundrobin import RoundRobinAssignor
from tidelog.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from tidelog_foundation.errors import ErrorCode, error_for

_ALL: tuple[Assignor, ...] = (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
ASSIGNORS = {assignor.name: assignor for assignor in _ALL}


def assignor_named(name: str) -> Assignor:
    """Return the assignor with this name: range, roundrobin, sticky or cooperative-sticky.

    Raises:
        TidelogError: _INVALID_ARG: no assignor has this name.
    """
    if name not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise error_for(
            ErrorCode._INVALID_ARG, f"there is no assignor {name!r}; partition.assignment.strategy has: {known}"
        )
    return ASSIGNORS[name]
