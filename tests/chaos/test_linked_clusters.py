"""Two linked clusters under faults of both sides lose, double and reorder nothing, and end equal byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cluster_script import outcome_of

SCRIPT = Path(__file__).parent / "linked_clusters.py"
ROUNDS = int(os.environ.get("TIDELOG_CHAOS_ROUNDS", "0"))
TIMEOUT_S = 420


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.skipif(not ROUNDS, reason="make chaos runs it; tests/integration/test_cluster_links.py has no faults")
@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_link_loses_nothing_and_is_equal_to_its_source_after_faults_of_both_sides(seed: int) -> None:
    outcome = outcome_of(SCRIPT, seed, TIMEOUT_S)
    assert min(outcome["acknowledged"].values()) > 20
