"""Classic bugs of replication that the simulation of clusters must find: ``python -m sim.cluster.planted_bugs``.

Each leaves out one rule of Kafka's KIPs or of this project. Drawn faults show most of them; a script of faults shows
those of ``SCRIPTED_BUGS``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sim import planting
from sim.cluster.bugs_of_controllers import CONTROLLER_BUGS
from sim.cluster.bugs_of_hosting import HOSTING_BUGS
from sim.cluster.bugs_of_records import RECORD_BUGS
from sim.cluster.bugs_of_replicas import FORGETS_A_REFUSED_EXPAND, REPLICA_BUGS
from sim.cluster.late_expands import LateExpand
from sim.cluster.minimiser import minimise
from sim.cluster.runs import run
from sim.cluster.schedule import draw_schedule
from sim.cluster.scripted import late_expand
from sim.outcome import NEVER, Outcome
from sim.planting import Finding, find

PLANTED_BUGS = (*REPLICA_BUGS, *HOSTING_BUGS, *CONTROLLER_BUGS, *RECORD_BUGS)
SCRIPTED_BUGS = (FORGETS_A_REFUSED_EXPAND,)
BY_NAME = {bug.name: bug for bug in (*PLANTED_BUGS, *SCRIPTED_BUGS)}
_MINIMISING_RUNS = 25


def run_seed(seed: int) -> Outcome:
    """Run a seed without the cores' own invariants."""
    return run(draw_schedule(seed), check_every=NEVER)


def run_script(seed: int) -> Outcome:
    """Play the script of the scripted bugs, without the cores' own invariants."""
    return run(late_expand(seed), check_every=NEVER, on_cluster=LateExpand)


def main(arguments: list[str] | None = None) -> int:
    """Search for all planted bugs and print a table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.cluster.planted_bugs", description=__doc__)
    return planting.main(parser, tuple(BY_NAME.values()), _find_by_name, arguments)


def _find_by_name(name: str) -> Finding:
    bug = BY_NAME[name]
    if bug in SCRIPTED_BUGS:
        # The script has no actions that could be left out.
        return find(bug, run_script, lambda seed, violated: ())
    return find(bug, run_seed, _minimised)


def _minimised(seed: int, violated: str) -> Sequence[object]:
    least, _ = minimise(draw_schedule(seed), violated, run, max_runs=_MINIMISING_RUNS, check_every=NEVER)
    return least.actions


if __name__ == "__main__":
    sys.exit(main())
