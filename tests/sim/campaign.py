"""``make sim``: all simulations, one after the other, with one summary; or one seed of them again.

The parts: ``raft``, ``cluster`` and ``transactions`` run their seeds, ``bugs`` searches for what is planted into the
cores of all of them, ``tests`` are the tests that are marked ``sim``, ``properties`` those of Hypothesis, with all of
their examples. ``--seeds`` are Raft's; the others get a share, or all when run alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import sim.__main__
import sim.cluster.__main__
import sim.cluster.planted_bugs
import sim.planted_bugs
import sim.transactions.__main__
import sim.transactions.planted_bugs

PARTS = ("raft", "cluster", "transactions", "bugs", "tests", "properties")
_SEEDS = 20_000
_DIVISORS = {"raft": 1, "cluster": 4, "transactions": 20, "tests": 10}
"""A seed of a cluster, or of the tests, takes many times as long as one of Raft."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something to run, and what it is called in the summary; it returns an exit code."""

    name: str
    run: Callable[[], int]


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sim.campaign", description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="only this one")
    parser.add_argument("--seeds", type=int, help="how many seeds of Raft, or of the part")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--actions", help="of the seed's actions only these, with a trace: 3,17 or none")
    parser.add_argument("pytest", nargs="*", help="what else pytest is given")
    options = parser.parse_args(arguments)
    if options.actions is not None and (options.seed is None or options.part not in PARTS[:3]):
        parser.error("ACTIONS are those of one seed: say SEED=, and SIM=raft, SIM=cluster or SIM=transactions")
    if options.seed is not None and options.part == "bugs":
        parser.error("bugs are searched for over seeds from 0: leave SEED out")
    if options.part == "properties" and (options.seed is not None or options.seeds is not None):
        parser.error("properties have no seeds: leave SEED and SEEDS out")
    return run(_steps(options))


def _steps(options: argparse.Namespace) -> list[Step]:
    raft, cluster = sim.__main__.main, sim.cluster.__main__.main
    transactions = sim.transactions.__main__.main
    if options.seed is not None:
        one = ["--seed", str(options.seed), *([] if options.actions is None else ["--actions", options.actions])]
        steps = {
            "raft": [Step(f"Raft, seed {options.seed}", lambda: raft(one))],
            "cluster": [Step(f"clusters, seed {options.seed}", lambda: cluster(one))],
            "transactions": [Step(f"transactions, seed {options.seed}", lambda: transactions(one))],
            "tests": [Step(f"tests, seed {options.seed}", lambda: _run_tests(options, "sim", str(options.seed), ""))],
        }
    else:
        shares = [_share(options, part) for part in ("raft", "cluster", "tests", "transactions")]
        steps = {
            "raft": [Step(f"Raft, {shares[0]:,} seeds", lambda: raft(["--seeds", str(shares[0])]))],
            "cluster": [Step(f"clusters, {shares[1]:,} seeds", lambda: cluster(["--seeds", str(shares[1])]))],
            "transactions": [
                Step(f"transactions, {shares[3]:,} seeds", lambda: transactions(["--seeds", str(shares[3])]))
            ],
            "bugs": [
                Step("bugs planted into Raft", lambda: sim.planted_bugs.main([])),
                Step("bugs planted into clusters", lambda: sim.cluster.planted_bugs.main([])),
                Step("bugs planted into transactions", lambda: sim.transactions.planted_bugs.main([])),
            ],
            "tests": [Step(f"tests, {shares[2]:,} seeds", lambda: _run_tests(options, "sim", "", str(shares[2])))],
            "properties": [Step("properties", lambda: _run_tests(options, "hypothesis and not sim", "", ""))],
        }
    return [step for part, found in steps.items() if options.part in (None, part) for step in found]


def _share(options: argparse.Namespace, part: str) -> int:
    if options.part == part and options.seeds is not None:
        return int(options.seeds)
    return max(1, (options.seeds or _SEEDS) // _DIVISORS[part])


def _run_tests(options: argparse.Namespace, marked: str, seed: str, seeds: str) -> int:
    many = ["--timeout", "3600", "--hypothesis-profile=thorough"]
    command = [sys.executable, "-m", "pytest", "-m", marked, *many, *options.pytest]
    environment = os.environ | {"TIDELOG_SIM_SEED": seed, "TIDELOG_SIM_SEEDS": seeds}
    return subprocess.run(command, env=environment, check=False).returncode


def run(steps: list[Step]) -> int:
    """Run all steps, whatever comes of them, and sum up; return the exit code."""
    results: list[tuple[Step, int, float]] = []
    for step in steps:
        print(f"--- {step.name}", flush=True)
        started = time.monotonic()
        code = step.run()
        results.append((step, code, time.monotonic() - started))
    failed = sum(code != 0 for _, code, _ in results)
    total_s = sum(elapsed_s for _, _, elapsed_s in results)
    print(f"--- {'all is well' if not failed else f'{failed} of {len(steps)} failed'}, {total_s:.0f} s")
    for step, code, elapsed_s in results:
        print(f"  {'FAILED' if code else 'ok':6}  {step.name:40} {elapsed_s:8.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
