"""Three replicas of one partition lose nothing under faults; machinery: ``tests/support/partition_simulation.py``."""

import pytest
from partition_simulation import Simulation
from seeds import reproducible, seed_blocks


@pytest.mark.sim
@pytest.mark.parametrize("block", seed_blocks(150, 30), ids=str)
def test_partition_loses_nothing_and_converges_under_faults(block):
    for seed in block:
        with reproducible(seed):
            simulation = Simulation(seed)
            for _ in range(1_500):
                simulation.disturb()
            simulation.heal()
            simulation.check_converged()


def test_simulation_exercises_elections_truncations_and_acknowledgements():
    simulations = [Simulation(seed) for seed in range(20)]
    for simulation in simulations:
        for _ in range(1_500):
            simulation.disturb()

    assert sum(len(s.leader_of_epoch) for s in simulations) > 40
    assert sum(len(s.acknowledged) for s in simulations) > 1_000
    assert sum(s.next_value - len(s.acknowledged) for s in simulations) > 200


def test_simulation_is_deterministic_for_a_seed():
    def run():
        simulation = Simulation(7)
        for _ in range(1_000):
            simulation.disturb()
        return [n.log.records for n in simulation.nodes.values()], simulation.acknowledged

    assert run() == run()
