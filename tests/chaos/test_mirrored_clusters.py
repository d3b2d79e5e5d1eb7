"""A mirror between two clusters under faults of all three copies every record, exactly once where it says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog_chaos import isolation

SCRIPT = Path(__file__).parent / "mirrored_clusters.py"
ROUNDS = int(os.environ.get("TIDELOG_CHAOS_ROUNDS", "0"))
TIMEOUT_S = 540


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.skipif(not ROUNDS, reason="make chaos runs it; tests/integration/test_mirror.py has crashes alone")
@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_mirror_copies_exactly_once_and_at_least_once_after_faults_of_both_sides_and_its_own(seed: int) -> None:
    reason = isolation.why_not(network=True)
    if reason is not None:
        pytest.skip(f"needs namespaces: {reason}")
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1] / "support")}
    command = [sys.executable, str(SCRIPT), "--seed", str(seed), "--seconds", "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["problems"] == []
    assert min(outcome["acknowledged"].values()) > 10
    assert min(outcome["offsets"].values()) > 0
