"""Many seeds over all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from sim.minimiser import minimise
from sim.runs import Outcome, run
from sim.schedule import draw_schedule

BLOCK = 25


@dataclass(slots=True)
class Sweep:
    """What the seeds of a sweep gave so far."""

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


def run_block(seeds: range) -> list[Outcome]:
    """Run some seeds, one after the other."""
    return [run(draw_schedule(seed)) for seed in seeds]


def sweep(
    seeds: range,
    *,
    jobs: int | None = None,
    keep_going: bool = False,
    report: Callable[[Sweep], None] = lambda _: None,
) -> Sweep:
    """Run seeds in parallel; stop soon after the first violation. ``report`` is told after each block."""
    result = Sweep()
    blocks = [seeds[start : start + BLOCK] for start in range(0, len(seeds), BLOCK)]
    for outcomes in _outcomes(blocks, jobs or os.cpu_count() or 1):
        result.take(outcomes)
        report(result)
        if result.violations and not keep_going:
            break
    return result


def describe_violation(outcome: Outcome) -> str:
    """Minimise a violation and return what a person needs to see of it."""
    started = time.monotonic()
    schedule = draw_schedule(outcome.seed)
    # With the core's invariants asserted after every step it may be seen earlier, under another name.
    outcome = run(schedule, check_every=1)
    assert outcome.violated is not None
    least, again = minimise(schedule, outcome.violated)
    numbers = ",".join(str(action.number) for action in least.actions) or "none"
    replicas = f"{least.voters} voters, {least.observers} observers, {least.config}"
    return "\n".join(
        [
            f"raft: seed {outcome.seed} breaks {outcome.violated}: {again.detail}",
            f"  {replicas}",
            f"  minimised in {time.monotonic() - started:.1f} s to {len(least.actions)} actions:",
            *(f"    {action}" for action in least.actions),
            f"  all of it again: make sim SIM=raft SEED={outcome.seed}",
            f"  these actions alone, with a trace: make sim SIM=raft SEED={outcome.seed} ACTIONS={numbers}",
        ]
    )


def _outcomes(blocks: list[range], jobs: int) -> Iterator[list[Outcome]]:
    if jobs == 1:
        yield from map(run_block, blocks)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(partial(run_block), blocks)
