"""A mirror between two clusters under faults of all three copies every record, exactly once where it says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cluster_script import outcome_of

SCRIPT = Path(__file__).parent / "mirrored_clusters.py"
ROUNDS = int(os.environ.get("TIDELOG_CHAOS_ROUNDS", "0"))
TIMEOUT_S = 540


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.skipif(not ROUNDS, reason="make chaos runs it; tests/integration/test_mirror.py has crashes alone")
@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_mirror_copies_exactly_once_and_at_least_once_after_faults_of_both_sides_and_its_own(seed: int) -> None:
    outcome = outcome_of(SCRIPT, seed, TIMEOUT_S)
    assert min(outcome["acknowledged"].values()) > 10
    assert min(outcome["offsets"].values()) > 0
