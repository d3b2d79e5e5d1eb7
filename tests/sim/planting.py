"""Bugs that are planted into the real cores while a simulation runs, as patches of their classes and modules.

A check that never failed may be one that cannot: each bug leaves out one rule, and the simulation has to find it. The
cores' own invariants are not asserted meanwhile: what is seen must be seen from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sim.outcome import Outcome
from sim.processes import spread

Patch = tuple[Any, str, Any]
"""An object to patch, the name of its attribute, and the new value."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """The simulation has to find it ``within`` so many seeds from 0: about ten times the mean distance of its hits.

    ``seen`` is one of them that has shown it. It makes the search short and does not limit it, since any change of a
    simulation changes the history of every seed.
    """

    name: str
    within: int
    patches: Callable[[], list[Patch]]
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """The way in which a planted bug was found; ``seed`` is None if it was not."""

    bug: str
    seed: int | None
    violated: str
    actions: int
    seconds: float


_INHERITED = object()
"""The original of a name that a base class defines."""


@contextlib.contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """Have the bug in the cores for a while."""
    patches = bug.patches()
    assert all(hasattr(owner, name) for owner, name, _ in patches), bug.name
    originals = [(owner, name, owner.__dict__.get(name, _INHERITED)) for owner, name, _ in patches]
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in originals:
            if value is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def search(bug: PlantedBug, run_seed: Callable[[int], Outcome]) -> Outcome | None:
    """Return the first violation that the seeds show with a bug planted. Begin with the seed that has shown it."""
    seeds = sorted(range(bug.within), key=lambda seed: seed != bug.seen)
    with planted(bug):
        outcomes = (run_seed(seed) for seed in seeds)
        return next((outcome for outcome in outcomes if outcome.violated is not None), None)


def find(
    bug: PlantedBug, run_seed: Callable[[int], Outcome], minimised: Callable[[int, str], Sequence[object]]
) -> Finding:
    """Search for a planted bug; ``minimised`` returns the actions that show it, given the seed and the property.

    Raises:
        AssertionError: without the bug the same seed is a violation too, so that it shows nothing.
    """
    started = time.monotonic()
    outcome = search(bug, run_seed)
    if outcome is None or outcome.violated is None:
        return Finding(bug.name, None, "", 0, time.monotonic() - started)
    sound = run_seed(outcome.seed)
    assert sound.violated is None, f"seed {outcome.seed} violates {sound.violated} without the bug: {sound.detail}"
    with planted(bug):
        actions = minimised(outcome.seed, outcome.violated)
    return Finding(bug.name, outcome.seed, outcome.violated, len(actions), time.monotonic() - started)


def main(
    parser: argparse.ArgumentParser,
    bugs: Sequence[PlantedBug],
    find_by_name: Callable[[str], Finding],
    arguments: list[str] | None,
) -> int:
    """Search for all bugs over all cores and print a table; return the exit code."""
    parser.add_argument("--only", help="bugs whose name contains this")
    options = parser.parse_args(arguments)
    within = {bug.name: bug.within for bug in bugs if not options.only or options.only in bug.name}
    missed = 0
    print(f"{'planted bug':56} {'seed':>5} {'of':>5}  {'property':40} {'actions':>7} {'s':>6}")
    for finding in spread(find_by_name, within):
        missed += finding.seed is None
        seed = "-" if finding.seed is None else finding.seed
        found = f"{finding.violated or 'NOT FOUND':40} {finding.actions:>7} {finding.seconds:>6.1f}"
        print(f"{finding.bug:56} {seed:>5} {within[finding.bug]:>5}  {found}", flush=True)
    print(f"{len(within) - missed} of {len(within)} planted bugs found")
    return int(missed > 0)
