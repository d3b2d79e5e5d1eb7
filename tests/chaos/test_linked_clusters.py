"""Two linked clusters under faults of both sides lose, double and reorder nothing, and end equal byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog_chaos import isolation

SCRIPT = Path(__file__).parent / "linked_clusters.py"
ROUNDS = int(os.environ.get("TIDELOG_CHAOS_ROUNDS", "0"))
TIMEOUT_S = 420


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.skipif(not ROUNDS, reason="make chaos runs it; tests/integration/test_cluster_links.py has no faults")
@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_link_loses_nothing_and_is_equal_to_its_source_after_faults_of_both_sides(seed: int) -> None:
    reason = isolation.why_not(network=True)
    if reason is not None:
        pytest.skip(f"needs namespaces: {reason}")
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1] / "support")}
    command = [sys.executable, str(SCRIPT), "--seed", str(seed), "--seconds", "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["problems"] == []
    assert min(outcome["acknowledged"].values()) > 20
