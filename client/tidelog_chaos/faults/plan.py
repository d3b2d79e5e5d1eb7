"""The plan of faults, drawn from a seed before a run begins. Pure: no I/O, so that a seed always gives the same plan.

Faults begin at random intervals, mostly one at a time, sometimes two or three different ones together. Each lasts for a
random time, often into the next. The target of a fault is chosen when it begins, because it depends on the current
leaders; the plan gives each fault a seed for that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog_foundation.errors import ConfigError

KINDS: Mapping[str, Sequence[str]] = {
    "kill": (
        *("leader", "leader", "node", "node", "controller-leader", "controller-leader", "controller"),
        *("leader-and-controller-leader", "ahead", "again", "relay", "all"),
    ),
    "stop": ("leader", "node", "controller-leader", "controller"),
    "pause": ("leader", "leader", "node", "controller-leader", "controller"),
    "slow": ("leader", "node", "controller-leader"),
    "partition": ("isolate", "isolate-leader", "isolate-out", "isolate-in", "halves", "ring", "clients"),
    "delay": ("leader", "node", "controller-leader", "all"),
    "disk-full": ("leader", "node"),
    "disk-corrupt": ("truncate", "flip", "lose", "stale-majority"),
    "clock": ("leader", "node", "controller-leader", "all"),
    "reassign": ("leader", "follower"),
    "certificates": ("all", "leader", "node", "controller", "expired", "broken"),
    "credentials": ("new-password", "new-password", "same-password", "other-user"),
}
"""Every fault with its kinds; a kind that is listed twice is drawn twice as often."""
GROUPS: Mapping[str, Sequence[str]] = {"disk": ("disk-full", "disk-corrupt"), "none": ()}
"""Names for several faults, or for none."""
_TOGETHER = (1, 1, 1, 1, 2, 2, 3)
_LONGEST_HOLD = 1.2
_SHORTEST_HOLD = 0.4


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault: begins ``at_s`` after the start of the workload and is healed ``hold_s`` later."""

    at_s: float
    hold_s: float
    fault: str
    kind: str
    seed: int


def parse_faults(text: str) -> tuple[str, ...]:
    """Return the faults that ``kill,pause,disk`` names, in the order of :data:`KINDS`.

    ``partition:ring`` names one kind of a fault, and is not changed in the result.

    Raises:
        ConfigError: A name or a kind is unknown.
    """
    asked: dict[str, None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, kind = part.partition(":")
        if name not in KINDS and name not in GROUPS:
            raise ConfigError(f'"{name}" is not a fault; there are {", ".join([*KINDS, *GROUPS])}')
        if kind and kind not in KINDS.get(name, ()):
            kinds = ", ".join(dict.fromkeys(KINDS.get(name, ()))) or "none"
            raise ConfigError(f'"{kind}" is not a kind of {name}; there are {kinds}')
        asked.update(dict.fromkeys([part] if kind else GROUPS.get(name, (name,))))
    return tuple(sorted(asked, key=lambda fault: (list(KINDS).index(name_of(fault)), fault)))


def name_of(fault: str) -> str:
    """Return the name of a fault from :func:`parse_faults`, without the kind."""
    return fault.partition(":")[0]


def draw_plan(
    seed: int, faults: Iterable[str], duration_s: float, interval_s: tuple[float, float]
) -> tuple[PlannedFault, ...]:
    """Return the faults of a run, by their time; none begins in the last shortest interval.

    Raises:
        ConfigError: The interval is empty or not positive.
    """
    shortest, longest = interval_s
    if not 0 < shortest <= longest:
        raise ConfigError(f"the interval between faults must be positive and ascend, not {shortest} s to {longest} s")
    dice = random.Random(seed)
    known = list(faults)
    plan: list[PlannedFault] = []
    at_s = dice.uniform(shortest, longest)
    while known and at_s < max(duration_s - shortest, shortest):
        for fault in dice.sample(known, min(len(known), dice.choice(_TOGETHER))):
            name, _, kind = fault.partition(":")
            hold_s = dice.uniform(_SHORTEST_HOLD * shortest, _LONGEST_HOLD * longest)
            plan.append(PlannedFault(at_s, hold_s, name, kind or dice.choice(KINDS[name]), dice.randrange(2**32)))
        at_s += dice.uniform(shortest, longest)
    return tuple(plan)
