"""Clusters with transactions in simulated time, judged by the checker of chaos; machinery: ``sim/transactions``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sim.planting import PlantedBug, planted, search
from sim.processes import spread
from sim.transactions.planted_bugs import PLANTED_BUGS, run_seed
from sim.transactions.runs import run
from sim.transactions.schedule import draw_transactional_schedule
from sim.transactions.sweep import TRANSACTIONS

SEEDS = 8
FOUND_AT_ONCE = [bug for bug in PLANTED_BUGS if bug.within <= 20]


@pytest.mark.slow
def test_transactions_are_whole_and_once_in_different_histories_and_exercise_the_cores() -> None:
    blocks = [range(start, start + 4) for start in range(0, SEEDS, 4)]
    outcomes = [outcome for of_block in spread(TRANSACTIONS.run_block, blocks) for outcome in of_block]
    broken = [outcome for outcome in outcomes if outcome.violated is not None]
    assert not broken, TRANSACTIONS.describe(broken[0])
    assert len({outcome.fingerprint for outcome in outcomes}) == SEEDS
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    assert all(counts[name] >= SEEDS / 100 for name in TRANSACTIONS.exercised), counts
    assert counts["committed"] > SEEDS * 5


@pytest.mark.slow
def test_history_of_transactions_does_not_depend_on_the_process() -> None:
    def fingerprint(hash_seed: str) -> str:
        tests = Path(__file__).parents[1]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{tests}:{tests / 'support'}"}
        command = [sys.executable, "-m", "sim.transactions", "--seed", "5"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return next(line for line in result.stdout.splitlines() if line.startswith("fingerprint"))

    assert fingerprint("1") == fingerprint("2")


@pytest.mark.parametrize("bug", FOUND_AT_ONCE, ids=lambda bug: bug.name)
def test_simulation_of_transactions_finds_planted_bugs(bug: PlantedBug) -> None:
    assert search(bug, run_seed) is not None


def test_planted_bugs_of_transactions_are_gone_afterwards() -> None:
    expected = run(draw_transactional_schedule(1))
    for bug in PLANTED_BUGS:
        with planted(bug):
            pass
    assert run(draw_transactional_schedule(1)) == expected
    assert expected.violated is None


def test_enough_bugs_are_planted_into_transactions() -> None:
    assert len({bug.name for bug in PLANTED_BUGS}) == len(PLANTED_BUGS) >= 20
    assert len(FOUND_AT_ONCE) >= 15
