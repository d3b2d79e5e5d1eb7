"""The simulation finds bugs that are planted into the core; all of them: ``python -m sim.planted_bugs``, `make sim`."""

from __future__ import annotations

import pytest
from sim.planted_bugs import PLANTED_BUGS, run_seed
from sim.planting import PlantedBug, planted, search
from sim.runs import run
from sim.schedule import draw_schedule

FOUND_AT_ONCE = [bug for bug in PLANTED_BUGS if bug.within <= 60]


@pytest.mark.parametrize("bug", FOUND_AT_ONCE, ids=lambda bug: bug.name)
def test_planted_bug_is_found_within_its_seeds(bug: PlantedBug) -> None:
    assert search(bug, run_seed) is not None


def test_planted_bugs_are_gone_afterwards() -> None:
    for bug in PLANTED_BUGS:
        with planted(bug):
            pass
    assert run(draw_schedule(0)).violated is None


def test_enough_bugs_are_planted() -> None:
    assert len({bug.name for bug in PLANTED_BUGS}) == len(PLANTED_BUGS) >= 20
    assert len(FOUND_AT_ONCE) >= 10
