"""The command line of a simulation: many seeds, or one of them again."""

from __future__ import annotations

import argparse
import time

from sim.simulation import Simulation, Sweep, sweep

REPORT_EVERY_S = 10
MINIMISED = 3
"""The number of violations that are minimized; the others are only named."""
EXERCISED_WITHIN = 500
"""Fewer seeds than that say nothing about what the simulation exercises."""


def main(simulation: Simulation, parser: argparse.ArgumentParser, seeds: int, arguments: list[str] | None) -> int:
    """Run what the command line says, by default so many seeds; return the exit code."""
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, help="processes; default: one per core")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, even after a violation")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--actions", help="of the seed's actions only these, with a trace: 3,17 or none")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _run_one(simulation, options.seed, options.actions)
    chosen = range(options.first, options.first + options.seeds)
    return _run_many(simulation, chosen, options.jobs, options.keep_going)


def _run_one(simulation: Simulation, seed: int, actions: str | None) -> int:
    outcome = simulation.show(seed, None if actions is None else _numbers(actions))
    for name, count in outcome.counts.items():
        print(f"{name}: {count}")
    print(f"fingerprint: {outcome.fingerprint:016x}")
    if outcome.violated is None:
        print(f"{simulation.name}: seed {seed}: {simulation.holds}")
        return 0
    print(f"{simulation.name}: seed {seed} breaks {outcome.violated}: {outcome.detail}")
    if actions is None:
        print(simulation.describe(outcome))
    return 1


def _numbers(text: str) -> frozenset[int]:
    return frozenset() if text == "none" else frozenset(int(number) for number in text.split(","))


def _run_many(simulation: Simulation, seeds: range, jobs: int | None, keep_going: bool) -> int:
    started = last = time.monotonic()

    def report(result: Sweep) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_EVERY_S:
            last = now
            rate = result.seeds / (now - started)
            left_s = (len(seeds) - result.seeds) / rate
            broken = ", ".join(f"{o.seed} breaks {o.violated}" for o in result.violations[:5])
            progress = f"{result.seeds} of {len(seeds)} seeds, {rate:.1f}/s, {left_s:.0f} s to go {broken}"
            print(f"{simulation.name}: {progress}", flush=True)

    result = sweep(simulation, seeds, jobs=jobs, keep_going=keep_going, report=report)
    _summarise(simulation.name, result, time.monotonic() - started)
    for outcome in result.violations[MINIMISED:]:
        print(f"{simulation.name}: seed {outcome.seed} breaks {outcome.violated}")
    for outcome in result.violations[:MINIMISED]:
        print(simulation.describe(outcome), flush=True)
    enough = result.seeds >= EXERCISED_WITHIN
    idle = [name for name in simulation.exercised if enough and result.counts[name] * 100 < result.seeds]
    if idle and not result.violations:
        print(f"{simulation.name}: the seeds exercise too little of: {', '.join(idle)}")
    return int(bool(result.violations or idle))


def _summarise(simulation: str, result: Sweep, elapsed_s: float) -> None:
    per_thousand_s = elapsed_s * 1000 / max(1, result.seeds)
    print(f"{simulation}: {result.seeds} seeds in {elapsed_s:.0f} s, {per_thousand_s:.1f} s per 1,000;", end=" ")
    print(f"{len(result.violations)} violations")
    done = {name: count for name, count in result.counts.items() if not name.startswith("action ")}
    faults = {name[7:]: count for name, count in result.counts.items() if name.startswith("action ")}
    for title, counts in (("happened", done), ("actions", faults)):
        print(f"  {title}: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))
