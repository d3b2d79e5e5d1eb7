"""Many seeds of the cluster's simulation over all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator

from sim.cluster.minimiser import MAX_RUNS, minimise
from sim.cluster.runs import Outcome, run
from sim.cluster.schedule import Schedule, draw_schedule
from sim.sweep import Sweep

BLOCK = 10
TWICE = 5
"""One of so many seeds is run twice."""


def run_block(seeds: range) -> list[Outcome]:
    """Run some seeds, one after the other, and some of them twice: the history must be the same."""
    return [run_again(draw_schedule(seed)) if seed % TWICE == 0 else run(draw_schedule(seed)) for seed in seeds]


def run_again(schedule: Schedule) -> Outcome:
    """Run a schedule twice; another outcome or fingerprint the second time is a violation."""
    first, second = run(schedule), run(schedule)
    if first != second and first.violated is None:
        first.violated, first.detail = "SameHistory", f"{first} and {second}"
    return first


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


def describe_violation(outcome: Outcome, *, max_runs: int = MAX_RUNS) -> str:
    """Minimise a violation, in so many runs at most, and return what a person needs to see of it."""
    started = time.monotonic()
    schedule = draw_schedule(outcome.seed)
    assert outcome.violated is not None
    least, again = minimise(schedule, outcome.violated, max_runs=max_runs)
    numbers = ",".join(str(action.number) for action in least.actions) or "none"
    return "\n".join(
        [
            f"cluster: seed {outcome.seed} breaks {outcome.violated}: {again.detail}",
            f"  {least.topology}",
            f"  minimised in {time.monotonic() - started:.1f} s to {len(least.actions)} actions:",
            *(f"    {action}" for action in least.actions),
            f"  all of it again: make sim SIM=cluster SEED={outcome.seed}",
            f"  these actions alone, with a trace: make sim SIM=cluster SEED={outcome.seed} ACTIONS={numbers}",
        ]
    )


def _outcomes(blocks: list[range], jobs: int) -> Iterator[list[Outcome]]:
    if jobs == 1:
        yield from map(run_block, blocks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_block, blocks)
