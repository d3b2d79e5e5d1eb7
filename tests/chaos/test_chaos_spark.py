"""The workload ``spark`` from end to end: a query under kills copies exactly once, and a faulty one is found out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from copy_workload import SDK_COPY, run_workload

from tidelog_chaos import isolation
from tidelog_chaos.workload.spark import CopyQuery
from tidelog_chaos.workload.spark import workload as workload_module

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif("TIDELOG_CHAOS_ROUNDS" not in os.environ, reason="make chaos runs it: it starts JVMs"),
]
TIMEOUT_S = 900
"""A run that goes wrong reports what it waited for in less; a good one takes a minute."""
SUPPORT = Path(__file__).parents[1] / "support"
COMMAND = "from tidelog_cli.main import main; main()"
FAULTY = (
    "from pathlib import Path; from tidelog_chaos.workload.spark import CopyQuery; "
    f"CopyQuery.program = Path({str(SUPPORT / 'faulty_copies.py')!r}); {COMMAND}"
)


def chaos(output: Path, command: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", command, "chaos", "run", "--workload", "spark", "--output", str(output)]
    return subprocess.run(
        [*line, "--rate", "100", *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )


def verdict_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "verdict.json").read_text())
    return found


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_chaos_run_finds_every_record_copied_once_under_mixed_faults(tmp_path: Path) -> None:
    reason = isolation.why_not(network=True)
    if reason is not None:
        pytest.skip(f"needs namespaces: {reason}")
    output = tmp_path / "run"
    faults = ["--driver", "netns", "--faults", "kill,stop,pause,slow,partition,delay,disk,clock", "--seed", "11"]
    done = chaos(output, COMMAND, *faults, "--interval", "3s..5s", "--duration", "20s", "--crash-interval", "3s")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    verdict = verdict_of(output)
    assert verdict["valid"] is True
    copies = verdict["statistics"]["copies"]
    assert copies["copied"]
    assert copies["copies"] > 100
    assert verdict["statistics"]["transactions"]["outcomes"]["fail"] > 0
    assert "values copied in" in done.stdout


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize(("bug", "anomaly"), [("SkippingSource", "copy-missing"), ("ForgetfulSink", "duplicate")])
def test_chaos_run_finds_a_faulty_source_and_a_faulty_sink(tmp_path: Path, bug: str, anomaly: str) -> None:
    output = tmp_path / "run"
    environment = {"FAULTY_COPY": bug, "FAULTY_MARK": str(tmp_path / "mark"), "PYTHONPATH": str(SUPPORT)}
    pace = ["--faults", "none", "--duration", "8s", "--crash-interval", "0s", "--seed", "2"]
    done = chaos(output, FAULTY, *pace, **environment)
    assert done.returncode == 1, f"{done.stdout}{done.stderr}"
    assert anomaly in verdict_of(output)["anomalies"], done.stdout


@pytest.mark.parametrize(
    ("bug", "anomaly"),
    [
        ("twice", "duplicate"),
        ("skip", "copy-missing"),
        ("uncommitted", "copy-of-aborted"),
        ("stop", "copy-behind"),
    ],
)
def test_workload_spark_finds_the_bug_of_a_query(
    bug: str, anomaly: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CopyQuery, "program", SDK_COPY)
    monkeypatch.setenv("SDK_COPY_BUG", bug)
    monkeypatch.setattr(workload_module, "_COPIES_S", 15.0)
    assert anomaly in run_workload(tmp_path, 3).anomalies
