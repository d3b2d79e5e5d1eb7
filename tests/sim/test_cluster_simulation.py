"""Whole clusters in simulated time under faults. `make sim` runs many more seeds; machinery: ``sim/cluster``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sim.cluster.__main__ import main
from sim.cluster.planted_bugs import BY_NAME, PLANTED_BUGS, SCRIPTED_BUGS, run_seed
from sim.cluster.runs import run
from sim.cluster.schedule import draw_schedule
from sim.cluster.sweep import CLUSTERS
from sim.cluster.sweep import SEEDS as CLUSTER_SEEDS
from sim.outcome import Outcome
from sim.planting import PlantedBug, planted, search
from sim.processes import spread
from sim.simulation import sweep

SEEDS = 20
RARE = {"offsets looked up", "logs restarted"}
"""The events that happen in too few seeds for a share of them. `make sim` requires them as well."""
FOUND_AT_ONCE = [bug for bug in PLANTED_BUGS if bug.within <= 20]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cluster_keeps_all_invariants_in_different_histories_and_becomes_whole_and_exercises_the_cores() -> None:
    """One test for all that is asked of these seeds: they are run once, over all cores."""
    blocks = [range(start, start + 10) for start in range(0, SEEDS, 10)]
    outcomes = [outcome for of_block in spread(CLUSTERS.run_block, blocks) for outcome in of_block]
    broken = [outcome for outcome in outcomes if outcome.violated is not None]
    assert not broken, CLUSTERS.describe(broken[0])
    assert [outcome.seed for outcome in outcomes] == [*range(SEEDS)]
    assert len({outcome.fingerprint for outcome in outcomes}) == SEEDS
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    assert {*CLUSTERS.exercised} > RARE
    assert all(counts[name] >= SEEDS / 100 for name in {*CLUSTERS.exercised} - RARE), counts
    assert counts["acknowledged"] > SEEDS * 20
    assert counts["recovered"] == SEEDS


def test_another_history_of_the_same_seed_is_a_violation() -> None:
    fingerprints = iter((1, 2))
    seeds = replace(CLUSTER_SEEDS, run=lambda schedule: Outcome(schedule.seed, fingerprint=next(fingerprints)))
    assert seeds.run_again(1).violated == "SameHistory"


def test_cluster_history_does_not_depend_on_the_process() -> None:
    def fingerprint(hash_seed: str) -> str:
        tests = Path(__file__).parents[1]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{tests}:{tests / 'support'}"}
        command = [sys.executable, "-m", "sim.cluster", "--seed", "5"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return next(line for line in result.stdout.splitlines() if line.startswith("fingerprint"))

    assert fingerprint("1") == fingerprint("2")


@pytest.mark.parametrize("bug", FOUND_AT_ONCE, ids=lambda bug: bug.name)
def test_cluster_simulation_finds_planted_bugs(bug: PlantedBug) -> None:
    assert search(bug, run_seed) is not None


def test_planted_bugs_of_clusters_are_gone_afterwards() -> None:
    expected = run(draw_schedule(1))
    for bug in PLANTED_BUGS:
        with planted(bug):
            pass
    assert run(draw_schedule(1)) == expected
    assert expected.violated is None


def test_enough_bugs_are_planted_into_clusters() -> None:
    assert len(BY_NAME) - len(SCRIPTED_BUGS) == len(PLANTED_BUGS) >= 25
    assert len(FOUND_AT_ONCE) >= 10


def test_failure_of_a_cluster_is_minimised_and_seen_again_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    bug = BY_NAME["high watermark goes back"]
    with planted(bug):
        outcome = search(bug, run_seed)
        assert outcome is not None
        assert outcome.violated is not None
        schedule = draw_schedule(outcome.seed)
        text = CLUSTER_SEEDS.describe(outcome, max_runs=6)
        command, _, actions = text.rpartition(" ACTIONS=")
        assert command.endswith(f"make sim SIM=cluster SEED={outcome.seed}")
        assert len(actions.split(",")) < len(schedule.actions)
        assert main(["--seed", str(outcome.seed), "--actions", actions]) == 1
    [told] = [line for line in text.splitlines() if line.startswith("cluster: seed")]
    assert told in capsys.readouterr().out


def test_sweep_of_clusters_runs_in_processes_what_it_runs_in_one() -> None:
    one_by_one = replace(CLUSTERS, block=1)
    one, two = (sweep(one_by_one, range(301, 303), jobs=jobs) for jobs in (1, 2))
    assert (one.seeds, one.counts) == (two.seeds, two.counts)
    assert one.seeds == 2
