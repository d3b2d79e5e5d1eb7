"""Goals of a rebalance and their limits. Pure.

Three goals are hard. A plan never makes one of them worse, and pursues them first: leaving nodes end without replicas;
the replicas of a partition are in as many racks as possible; replicas fill at most a share of a node's disk. The others
are soft: each keeps a value of every node within a range around the node's fair share.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

_MIB = 1_048_576
_PERCENT = 100


class Goal(enum.IntEnum):
    """The soft goals, in their default order; an earlier one takes precedence over a later one."""

    DISK = 0
    """Bytes of replicas, in proportion to the nodes' capacities."""
    REPLICAS = 1
    LEADERS = 2
    """Preferred leaders."""
    BYTES_IN = 3
    """Bytes per second that replicas receive, from producers and from leaders."""
    BYTES_OUT = 4
    """Bytes per second that leaders send, to consumers and to followers."""

    @property
    def of_leaders(self) -> bool:
        """Whether only the leaders of partitions add to the values."""
        return self in (Goal.LEADERS, Goal.BYTES_OUT)

    @property
    def is_count(self) -> bool:
        """Whether the values are numbers of replicas, and not of bytes."""
        return self in (Goal.REPLICAS, Goal.LEADERS)


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a plan.

    A node's value is in balance within ``threshold_percent`` of its fair share, or within ``slack_bytes`` (of disk)
    and ``slack_bytes_per_second`` of it. ``capacity_percent`` limits the share of a disk that replicas use, as Cruise
    Control's ``disk.capacity.threshold``. ``max_bytes`` limits the bytes that a plan copies; None is no limit.
    """

    goals: tuple[Goal, ...] = tuple(Goal)
    threshold_percent: int = 10
    capacity_percent: int = 80
    slack_bytes: int = 16 * _MIB
    slack_bytes_per_second: int = _MIB // 16
    max_bytes: int | None = None

    def slack(self, goal: Goal) -> int:
        """Return the deviation that no move is worth."""
        if goal.is_count:
            return 0
        return self.slack_bytes if goal is Goal.DISK else self.slack_bytes_per_second


@dataclass(frozen=True, slots=True)
class Range:
    """A node's fair share of a value, and the bounds, both included, between which the value is in balance."""

    share: int
    least: int
    most: int

    def excess(self, value: int) -> int:
        """Return how far a value is outside the bounds."""
        if value > self.most:
            return value - self.most
        return 0 if value >= self.least else self.least - value


def fair_ranges(goal: Goal, total: int, weights: Mapping[int, int], policy: Policy) -> dict[int, Range]:
    """Return each node's range for a ``total`` that nodes share by their weights.

    Whole numbers within the ranges can always add up to the total: a range includes the share, rounded up and down.
    """
    whole = sum(weights.values())
    ranges = {}
    for node, weight in weights.items():
        share, rest = divmod(total * weight, whole)
        rounded_up = share + (1 if rest else 0)
        margin = policy.threshold_percent * total * weight // (whole * _PERCENT)
        margin = max(margin, policy.slack(goal))
        ranges[node] = Range(share, max(0, min(share, rounded_up - margin)), max(rounded_up, share + margin))
    return ranges
