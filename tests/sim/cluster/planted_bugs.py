"""Classic bugs of replication that the simulation of clusters must find: ``python -m sim.cluster.planted_bugs``.

Each leaves out one rule of Kafka's KIPs or of this project.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sim import planting
from sim.cluster.bugs_of_controllers import CONTROLLER_BUGS
from sim.cluster.bugs_of_hosting import HOSTING_BUGS
from sim.cluster.bugs_of_records import RECORD_BUGS
from sim.cluster.bugs_of_replicas import REPLICA_BUGS
from sim.cluster.minimiser import minimise
from sim.cluster.runs import run
from sim.cluster.schedule import draw_schedule
from sim.outcome import NEVER, Outcome
from sim.planting import Finding, find

PLANTED_BUGS = (*REPLICA_BUGS, *HOSTING_BUGS, *CONTROLLER_BUGS, *RECORD_BUGS)
BY_NAME = {bug.name: bug for bug in PLANTED_BUGS}
_MINIMISING_RUNS = 25


def run_seed(seed: int) -> Outcome:
    """Run a seed without the cores' own invariants."""
    return run(draw_schedule(seed), check_every=NEVER)


def main(arguments: list[str] | None = None) -> int:
    """Search for all planted bugs and print a table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.cluster.planted_bugs", description=__doc__)
    return planting.main(parser, PLANTED_BUGS, _find_by_name, arguments)


def _find_by_name(name: str) -> Finding:
    return find(BY_NAME[name], run_seed, _minimised)


def _minimised(seed: int, violated: str) -> Sequence[object]:
    least, _ = minimise(draw_schedule(seed), violated, max_runs=_MINIMISING_RUNS, check_every=NEVER)
    return least.actions


if __name__ == "__main__":
    sys.exit(main())
