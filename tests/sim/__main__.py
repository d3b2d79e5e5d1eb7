"""``python -m sim``: many seeds of the Raft simulation, or one of them again. See ``make sim``."""

from __future__ import annotations

import argparse
import sys
import time

from sim.runs import Outcome, run
from sim.schedule import Schedule, draw_schedule
from sim.sweep import Sweep, describe_violation, sweep
from sim.trace import Trace

REPORT_EVERY_S = 10
MINIMISED = 3
"""How many of the violations are minimised; the others are only named."""
EXERCISED = (
    "elections",
    "acknowledged",
    "reads",
    "voter changes",
    "compactions",
    "installs",
    "damaged",
    "transfers",
    "refusals",
    "moves",
    "recovered",
)
"""What must have happened at least once in a hundred seeds: a simulation that exercises nothing finds nothing."""
EXERCISED_WITHIN = 500
"""Fewer seeds than that say nothing about it."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    options = _parse(arguments)
    if options.seed is not None:
        return _run_one(options.seed, options.actions)
    return _run_many(range(options.first, options.first + options.seeds), options.jobs, options.keep_going)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, help="processes; default: one per core")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, even after a violation")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--actions", help="of the seed's actions only these, with a trace: 3,17 or none")
    return parser.parse_args(arguments)


def _run_one(seed: int, actions: str | None) -> int:
    schedule = draw_schedule(seed)
    if actions is not None:
        schedule = schedule.only(_numbers(actions))
        outcome = _run_with_trace(schedule)
        print(*schedule.actions, sep="\n")
    else:
        outcome = run(schedule, check_every=1)
    for name, count in outcome.counts.items():
        print(f"{name}: {count}")
    print(f"fingerprint: {outcome.fingerprint:016x}")
    if outcome.violated is None:
        print(f"raft: seed {seed}: all properties hold")
        return 0
    print(f"raft: seed {seed} breaks {outcome.violated}: {outcome.detail}")
    if actions is None:
        print(describe_violation(outcome))
    return 1


def _run_with_trace(schedule: Schedule) -> Outcome:
    trace = Trace()
    outcome = run(schedule, check_every=1, on_world=trace.follow)
    print(*trace.lines, sep="\n")
    return outcome


def _numbers(text: str) -> frozenset[int]:
    return frozenset() if text == "none" else frozenset(int(number) for number in text.split(","))


def _run_many(seeds: range, jobs: int | None, keep_going: bool) -> int:
    started = last = time.monotonic()

    def report(result: Sweep) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_EVERY_S:
            last = now
            rate = result.seeds / (now - started)
            left_s = (len(seeds) - result.seeds) / rate
            broken = ", ".join(f"{o.seed} breaks {o.violated}" for o in result.violations[:5])
            progress = f"{result.seeds} of {len(seeds)} seeds, {rate:.0f}/s, {left_s:.0f} s to go {broken}"
            print(f"raft: {progress}", flush=True)

    result = sweep(seeds, jobs=jobs, keep_going=keep_going, report=report)
    elapsed_s = time.monotonic() - started
    _summarise(result, elapsed_s)
    for outcome in result.violations[MINIMISED:]:
        print(f"raft: seed {outcome.seed} breaks {outcome.violated}")
    for outcome in result.violations[:MINIMISED]:
        print(describe_violation(outcome), flush=True)
    enough = result.seeds >= EXERCISED_WITHIN
    idle = [name for name in EXERCISED if enough and result.counts[name] * 100 < result.seeds]
    if idle and not result.violations:
        print(f"raft: the seeds exercise too little of: {', '.join(idle)}")
    return int(bool(result.violations or idle))


def _summarise(result: Sweep, elapsed_s: float) -> None:
    per_thousand_s = elapsed_s * 1000 / max(1, result.seeds)
    print(f"raft: {result.seeds} seeds in {elapsed_s:.0f} s, {per_thousand_s:.1f} s per 1,000;", end=" ")
    print(f"{len(result.violations)} violations")
    done = {name: count for name, count in result.counts.items() if not name.startswith("action ")}
    faults = {name[7:]: count for name, count in result.counts.items() if name.startswith("action ")}
    for title, counts in (("happened", done), ("actions", faults)):
        print(f"  {title}: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))


if __name__ == "__main__":
    sys.exit(main())
