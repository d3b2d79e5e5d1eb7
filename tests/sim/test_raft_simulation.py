"""Raft clusters in simulated time under faults. `make sim` runs many more seeds; machinery: the modules beside this."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from raft_disk import SimulatedDisk
from raft_properties import PropertyViolatedError
from raft_simulation import SimulatedCluster
from random_numbers import LowestNumbers
from sim.minimiser import minimise
from sim.outcome import Outcome
from sim.planted_bugs import BY_NAME
from sim.planting import planted
from sim.runs import run
from sim.schedule import draw_schedule
from sim.simulation import sweep
from sim.sweep import RAFT, describe_violation
from sim.trace import Trace

from tidelog_quorum.raft.core.commands import Persist
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState

SEEDS = 60
CONFIG = RaftConfig(election_timeout_ms=100, heartbeat_interval_ms=20)


@pytest.mark.slow
def test_raft_keeps_all_properties_in_different_histories_and_recovers_and_exercises_the_core() -> None:
    """One test for all that is asked of these seeds: they are run once."""
    outcomes = [run(draw_schedule(seed)) for seed in range(SEEDS)]
    broken = [outcome for outcome in outcomes if outcome.violated is not None]
    assert not broken, describe_violation(broken[0])
    assert len({outcome.fingerprint for outcome in outcomes}) == SEEDS
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    assert all(counts[name] >= SEEDS / 100 for name in RAFT.exercised), counts
    assert counts["events"] > SEEDS * 500
    assert counts["acknowledged"] > SEEDS * 20
    assert counts["recovered"] > SEEDS * 0.9


def test_run_gives_the_same_history_for_the_same_seed() -> None:
    def history() -> tuple[list[str], Outcome]:
        trace = Trace()
        return trace.lines, run(draw_schedule(7), on_world=trace.follow)

    first, second = history(), history()
    assert len(first[0]) > 500
    assert first == second


def test_run_does_not_depend_on_the_process() -> None:
    def fingerprint(hash_seed: str) -> str:
        tests = Path(__file__).parents[1]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{tests}:{tests / 'support'}"}
        command = [sys.executable, "-m", "sim", "--seed", "3"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return next(line for line in result.stdout.splitlines() if line.startswith("fingerprint"))

    assert fingerprint("1") == fingerprint("2")


def test_failure_is_minimised_to_actions_none_of_which_can_be_left_out() -> None:
    with planted(BY_NAME["forgets its term over a restart"]):
        failed = next(o for o in (run(draw_schedule(seed)) for seed in range(200)) if o.violated is not None)
        assert failed.violated is not None
        schedule = draw_schedule(failed.seed)
        failed = run(schedule, check_every=1)
        assert failed.violated is not None
        least, again = minimise(schedule, failed.violated)
        numbers = [action.number for action in least.actions]
        assert again.violated == failed.violated
        assert 0 < len(numbers) < len(schedule.actions) / 3
        for left_out in numbers:
            rest = schedule.only(frozenset(numbers) - {left_out})
            assert run(rest, check_every=1).violated != failed.violated


def test_sweep_stops_at_a_violation_and_tells_how_to_see_it_again() -> None:
    with planted(BY_NAME["begins a change while another is open"]):
        result = sweep(RAFT, range(100), jobs=1)
        [first, *_] = result.violations
        text = describe_violation(first)
    assert result.seeds < 100
    assert f"seed {first.seed} breaks ChangeWhileAnotherIsPending" in text
    assert f"make sim SIM=raft SEED={first.seed} ACTIONS=" in text


def test_sweep_runs_in_processes_what_it_runs_in_one() -> None:
    one, two = (sweep(replace(RAFT, block=4), range(200, 210), jobs=jobs) for jobs in (1, 2))
    assert (one.seeds, one.counts) == (two.seeds, two.counts)
    assert one.seeds == 10


def test_crash_takes_any_suffix_of_the_unsynced_writes() -> None:
    for keep in range(4):
        disk = SimulatedDisk()
        for i in range(3):
            disk.write(Persist(i + 1, HardState(i + 1), None, (Entry(i + 1, i + 1, EntryKind.DATA, b""),)))
        disk.lose_power(keep)
        assert (disk.hard_state.term, disk.last_index, disk.pending) == (keep, keep, [])


def test_disk_that_forgets_a_vote_is_noticed() -> None:
    disk = SimulatedDisk(HardState(3, 1))
    disk.write(Persist(1, HardState(3, 2), None, ()))
    with pytest.raises(PropertyViolatedError, match="VoteForgotten"):
        disk.sync()


def test_read_is_answered_after_a_majority_confirmed_the_leader() -> None:
    cluster = SimulatedCluster(3, CONFIG, LowestNumbers())
    cluster.fire_timer(1)
    cluster.stabilize()
    [(leader, raft)] = cluster.leaders()
    request = cluster.read(leader)
    assert request not in cluster.nodes[leader].reads
    cluster.stabilize()
    assert cluster.nodes[leader].reads[request] == raft.commit_index
