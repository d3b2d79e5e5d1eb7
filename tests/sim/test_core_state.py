"""The state of the quorum's cores is data: it can be dumped, copied and compared in the middle of a run."""

from __future__ import annotations

import copy
import pickle

import pytest
from core_state import state_of
from sim.cluster.cluster import Cluster
from sim.cluster.nemesis import Nemesis
from sim.cluster.schedule import draw_schedule

_MS = 400


def _cores(seed: int) -> dict[str, object]:
    """Return the cores of all controllers of a cluster in the middle of its faults."""
    schedule = draw_schedule(seed)
    cluster = Cluster(schedule, check_every=1 << 30)
    Nemesis(cluster)
    cluster.world.run_until(cluster.world.now_us + _MS * 1000)
    cores: dict[str, object] = {}
    for number, controller in cluster.quorum.controllers.items():
        cores |= {
            f"Raft {number}": controller.node.raft,
            f"controller {number}": controller.terms.core,
            f"feed {number}": controller.feed.core,
            f"connections {number}": controller.connections.core,
        }
    return cores


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_state_of_a_core_is_data_that_can_be_copied_mid_run(seed: int) -> None:
    for name, core in _cores(seed).items():
        state = state_of(core)
        assert state_of(copy.deepcopy(core)) == state, name
        assert state_of(pickle.loads(pickle.dumps(core))) == state, name
