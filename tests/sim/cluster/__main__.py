"""``python -m sim.cluster``: many seeds of the simulation of whole clusters, or one of them again. See ``make sim``."""

from __future__ import annotations

import argparse
import sys
import time

from sim.cluster.runs import Outcome, run
from sim.cluster.schedule import Schedule, draw_schedule
from sim.cluster.sweep import describe_violation, sweep
from sim.cluster.trace import Trace
from sim.sweep import Sweep

REPORT_EVERY_S = 10
MINIMISED = 3
"""How many of the violations are minimised; the others are only named."""
EXERCISED = (
    "acknowledged",
    "consumed",
    "elections",
    "leaders",
    "truncated",
    "fetches of a session",
    "full fetches",
    "sent to another replica",
    "positions validated",
    "offsets looked up",
    "latest offset: OFFSET_NOT_AVAILABLE",
    "logs restarted",
    "permitted losses",
    "unclean elections",
    "void promises",
    "recovered",
)
"""What must have happened at least once in a hundred seeds: a simulation that exercises nothing finds nothing."""
EXERCISED_WITHIN = 500
"""Fewer seeds than that say nothing about it."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, help="processes; default: one per core")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, even after a violation")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--actions", help="of the seed's actions only these, with a trace: 3,17 or none")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _run_one(options.seed, options.actions)
    return _run_many(range(options.first, options.first + options.seeds), options.jobs, options.keep_going)


def _run_one(seed: int, actions: str | None) -> int:
    schedule = draw_schedule(seed)
    if actions is not None:
        numbers = frozenset() if actions == "none" else frozenset(int(number) for number in actions.split(","))
        schedule = schedule.only(numbers)
        outcome = _run_with_trace(schedule)
    else:
        outcome = run(schedule)
    for name, count in outcome.counts.items():
        print(f"{name}: {count}")
    print(f"fingerprint: {outcome.fingerprint:016x}")
    if outcome.violated is None:
        print(f"cluster: seed {seed}: all properties of a cluster hold")
        return 0
    print(f"cluster: seed {seed} breaks {outcome.violated}: {outcome.detail}")
    if actions is None:
        print(describe_violation(outcome))
    return 1


def _run_with_trace(schedule: Schedule) -> Outcome:
    trace = Trace()
    outcome = run(schedule, on_cluster=trace.follow)
    print(schedule.topology, *schedule.actions, *trace.lines, sep="\n")
    return outcome


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
            print(
                f"cluster: {result.seeds} of {len(seeds)} seeds, {rate:.1f}/s, {left_s:.0f} s to go {broken}",
                flush=True,
            )

    result = sweep(seeds, jobs=jobs, keep_going=keep_going, report=report)
    _summarise(result, time.monotonic() - started)
    for outcome in result.violations[MINIMISED:]:
        print(f"cluster: seed {outcome.seed} breaks {outcome.violated}")
    for outcome in result.violations[:MINIMISED]:
        print(describe_violation(outcome), flush=True)
    enough = result.seeds >= EXERCISED_WITHIN
    idle = [name for name in EXERCISED if enough and result.counts[name] * 100 < result.seeds]
    if idle and not result.violations:
        print(f"cluster: the seeds exercise too little of: {', '.join(idle)}")
    return int(bool(result.violations or idle))


def _summarise(result: Sweep, elapsed_s: float) -> None:
    per_thousand_s = elapsed_s * 1000 / max(1, result.seeds)
    print(f"cluster: {result.seeds} seeds in {elapsed_s:.0f} s, {per_thousand_s:.0f} s per 1,000;", end=" ")
    print(f"{len(result.violations)} violations")
    done = {name: count for name, count in result.counts.items() if not name.startswith("action ")}
    faults = {name[7:]: count for name, count in result.counts.items() if name.startswith("action ")}
    for title, counts in (("happened", done), ("actions", faults)):
        print(f"  {title}: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))


if __name__ == "__main__":
    sys.exit(main())
