"""Bugs of transactions that their simulation must find: ``python -m sim.transactions.planted_bugs``.

Only what clients and readers of logs see is looked at.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sim import planting
from sim.cluster.minimiser import minimise
from sim.outcome import NEVER, Outcome
from sim.planting import Finding, find
from sim.transactions.bugs_of_coordinators import COORDINATOR_BUGS
from sim.transactions.bugs_of_logs import LOG_BUGS
from sim.transactions.bugs_of_offsets import OFFSET_BUGS
from sim.transactions.runs import run
from sim.transactions.schedule import draw_transactional_schedule

PLANTED_BUGS = (*COORDINATOR_BUGS, *LOG_BUGS, *OFFSET_BUGS)
_MINIMISING_RUNS = 60
BY_NAME = {bug.name: bug for bug in PLANTED_BUGS}


def run_seed(seed: int) -> Outcome:
    """Run a seed without the cores' own invariants."""
    return run(draw_transactional_schedule(seed), check_every=NEVER)


def main(arguments: list[str] | None = None) -> int:
    """Search for all planted bugs and print a table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.transactions.planted_bugs", description=__doc__)
    return planting.main(parser, PLANTED_BUGS, _find_by_name, arguments)


def _find_by_name(name: str) -> Finding:
    return find(BY_NAME[name], run_seed, _minimised)


def _minimised(seed: int, violated: str) -> Sequence[object]:
    schedule = draw_transactional_schedule(seed)
    return minimise(schedule, violated, run, max_runs=_MINIMISING_RUNS, check_every=NEVER)[0].actions


if __name__ == "__main__":
    sys.exit(main())
