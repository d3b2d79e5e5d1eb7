"""Classic bugs of replication, planted into the real cores, that the simulation must find.

``python -m sim.cluster.planted_bugs``. A check that never failed may be one that cannot. Each bug leaves out one rule
of Kafka's KIPs or of this project, as a patch while the simulation runs. The cores' own invariants are not asserted
meanwhile: what is seen must be seen from outside.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from sim.cluster.bugs_of_controllers import CONTROLLER_BUGS
from sim.cluster.bugs_of_records import RECORD_BUGS
from sim.cluster.bugs_of_replicas import REPLICA_BUGS
from sim.cluster.minimiser import minimise
from sim.cluster.planted_bug import PlantedBug, planted
from sim.cluster.runs import NEVER, Outcome, run
from sim.cluster.schedule import draw_schedule

PLANTED_BUGS = (*REPLICA_BUGS, *CONTROLLER_BUGS, *RECORD_BUGS)
BY_NAME = {bug.name: bug for bug in PLANTED_BUGS}
_MINIMISING_RUNS = 25


@dataclass(frozen=True, slots=True)
class Finding:
    """How a planted bug was found; ``seed`` is None when it was not."""

    bug: str
    seed: int | None
    violated: str
    actions: int
    seconds: float


def search(bug: PlantedBug, seeds: range) -> Outcome | None:
    """Return the first violation that the seeds show with a bug planted."""
    with planted(bug):
        for seed in seeds:
            outcome = run(draw_schedule(seed), check_every=NEVER)
            if outcome.violated is not None:
                return outcome
    return None


def find(bug: PlantedBug, *, minimising: bool = True) -> Finding:
    """Search for a planted bug, and minimise what shows it."""
    started = time.monotonic()
    outcome = search(bug, range(bug.within))
    if outcome is None or outcome.violated is None:
        return Finding(bug.name, None, "", 0, time.monotonic() - started)
    least = draw_schedule(outcome.seed)
    if minimising:
        with planted(bug):
            least, _ = minimise(least, outcome.violated, max_runs=_MINIMISING_RUNS, check_every=NEVER)
    return Finding(bug.name, outcome.seed, outcome.violated, len(least.actions), time.monotonic() - started)


def main(arguments: list[str] | None = None) -> int:
    """Search for all planted bugs and print a table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.cluster.planted_bugs", description=__doc__)
    parser.add_argument("--only", help="bugs whose name contains this")
    options = parser.parse_args(arguments)
    names = [bug.name for bug in PLANTED_BUGS if not options.only or options.only in bug.name]
    missed = 0
    print(f"{'planted bug':56} {'seed':>5} {'of':>5}  {'property':30} {'actions':>7} {'s':>6}")
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:
        for finding in pool.map(_find_by_name, names):
            within = BY_NAME[finding.bug].within
            missed += finding.seed is None
            seed = "-" if finding.seed is None else finding.seed
            what = finding.violated or "NOT FOUND"
            print(f"{finding.bug:56} {seed:>5} {within:>5}  {what:30} {finding.actions:>7} {finding.seconds:>6.1f}")
            sys.stdout.flush()
    print(f"{len(names) - missed} of {len(names)} planted bugs found")
    return int(missed > 0)


def _find_by_name(name: str) -> Finding:
    return find(BY_NAME[name])


if __name__ == "__main__":
    sys.exit(main())
