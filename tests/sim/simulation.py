"""Many seeds of a simulation over all cores, and what a person needs to see of a seed that broke a property."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sim.outcome import Outcome
from sim.processes import spread


@dataclass(frozen=True, slots=True)
class Simulation:
    """The differences between the simulations of Raft and of clusters, for runs over many seeds.

    ``run_block`` runs some seeds, one after the other; a child process gets ``block`` of them at a time. ``show`` runs
    one seed with the given actions and prints a trace. ``describe`` minimizes a violation. Every event in ``exercised``
    must happen at least once in a hundred seeds: a simulation that exercises nothing finds nothing.
    """

    name: str
    holds: str
    run_block: Callable[[range], list[Outcome]]
    block: int
    show: Callable[[int, frozenset[int] | None], Outcome]
    describe: Callable[[Outcome], str]
    exercised: tuple[str, ...]


@dataclass(slots=True)
class Sweep:
    """The results of a sweep's seeds so far."""

    seeds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Outcome] = field(default_factory=list)

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of a block of seeds."""
        for outcome in outcomes:
            self.seeds += 1
            self.counts.update(outcome.counts)
            if outcome.violated is not None:
                self.violations.append(outcome)


def sweep(
    simulation: Simulation,
    seeds: range,
    *,
    jobs: int | None = None,
    keep_going: bool = False,
    report: Callable[[Sweep], None] = lambda _: None,
) -> Sweep:
    """Run seeds in parallel; stop soon after the first violation. ``report`` is told after each block."""
    result = Sweep()
    blocks = [seeds[start : start + simulation.block] for start in range(0, len(seeds), simulation.block)]
    for outcomes in _outcomes(simulation.run_block, blocks, jobs):
        result.take(outcomes)
        report(result)
        if result.violations and not keep_going:
            break
    return result


def _outcomes(
    run_block: Callable[[range], list[Outcome]], blocks: list[range], jobs: int | None
) -> Iterator[list[Outcome]]:
    return map(run_block, blocks) if jobs == 1 else spread(run_block, blocks, jobs)


class Action(Protocol):
    """An action of a schedule: its number names it on the command line, as text it says what it does."""

    @property
    def number(self) -> int: ...


def describe_minimised(
    simulation: str, setting: object, actions: Sequence[Action], outcome: Outcome, elapsed_s: float
) -> str:
    """Return what a person needs to see of a violation: the actions that are left, and how to see it again."""
    numbers = ",".join(str(action.number) for action in actions) or "none"
    again = f"make sim SIM={simulation} SEED={outcome.seed}"
    return "\n".join(
        [
            f"{simulation}: seed {outcome.seed} breaks {outcome.violated}: {outcome.detail}",
            f"  {setting}",
            f"  minimised in {elapsed_s:.1f} s to {len(actions)} actions:",
            *(f"    {action}" for action in actions),
            f"  all of it again: {again}",
            f"  these actions alone, with a trace: {again} ACTIONS={numbers}",
        ]
    )
