"""Runs a script that puts two clusters under faults, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog_chaos import isolation


def outcome_of(script: Path, seed: int, timeout_s: float) -> dict[str, Any]:
    """Run the script for a seed, and return the outcome that it prints, which has no problems.

    Skip the test where namespaces are not available.
    """
    reason = isolation.why_not(network=True)
    if reason is not None:
        pytest.skip(f"needs namespaces: {reason}")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, str(script), "--seed", str(seed), "--seconds", "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert outcome["problems"] == []
    return outcome
