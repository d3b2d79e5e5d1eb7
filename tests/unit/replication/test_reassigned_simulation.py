"""A partition that is moved about under faults loses nothing; machinery: ``tests/support/reassigned_simulation.py``."""

import pytest
from reassigned_simulation import ReassignedSimulation
from seeds import reproducible, seed_blocks

STEPS = 3_000


@pytest.mark.sim
@pytest.mark.parametrize("block", seed_blocks(30, 10), ids=str)
def test_moved_partition_loses_nothing_and_comes_to_its_target_under_faults(block):
    for seed in block:
        with reproducible(seed):
            simulation = ReassignedSimulation(seed)
            for _ in range(STEPS):
                simulation.disturb()
            simulation.heal()
            simulation.check_converged()


@pytest.mark.costly
def test_moved_simulation_completes_and_cancels_and_acknowledges():
    simulations = [ReassignedSimulation(seed) for seed in range(20)]
    for simulation in simulations:
        for _ in range(STEPS):
            simulation.disturb()

    assert {s.uses_elr for s in simulations} == {False, True}
    assert sum(s.completed for s in simulations) > 10
    assert sum(s.cancelled for s in simulations) > 10
    assert sum(len(s.acknowledged) for s in simulations) > 1_000
    assert sum(len(s.leader_of_epoch) for s in simulations) > 100
