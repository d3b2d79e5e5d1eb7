"""`tidelog chaos run` from end to end: a good cluster comes out valid, one that loses what it acknowledged does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog_chaos import isolation

FILES = {"history.jsonl", "metrics.jsonl", "replicas.json", "report.html", "run.json", "verdict.json", "logs"}
TIMEOUT_S = 420
"""A run that goes wrong reports what it waited for in less; a good one takes a minute."""
IS_CAMPAIGN = "TIDELOG_CHAOS_ROUNDS" in os.environ
FORKING = str(Path(__file__).parents[1] / "support" / "chaos_command.py")
TIDELOG = [sys.executable, *(["-c", "from tidelog_cli.main import main; main()"] if IS_CAMPAIGN else [FORKING])]
in_campaign = pytest.mark.skipif(not IS_CAMPAIGN, reason="make chaos runs it; the other runs are a share of it")
PACE = ["--interval", "3s..5s", "--duration", "18s"] if IS_CAMPAIGN else ["--interval", "2s..3s", "--duration", "9s"]
MIN_SENDS = 150
"""Of a thousand or more. The machine's load decides how many are late for their run, and not the cluster."""


def chaos(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*TIDELOG, "chaos", "run", "--rate", "100", "--output", str(output), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize(
    ("driver", "faults", "options"),
    [
        (
            "local",
            "kill,stop,pause,slow,disk,clock,reassign,certificates,credentials",
            ["--secure", "--workload", "subscribe", "--crash-interval", "4s"],
        ),
        pytest.param(
            "netns",
            "kill,pause,partition,delay,disk",
            ["--workload", "subscribe", "--crash-interval", "4s"],
            marks=in_campaign,
        ),
        pytest.param(
            "netns",
            "kill,stop,pause,partition,delay",
            ["--client", "confluent-kafka", "--workload", "subscribe", "--crash-interval", "4s", "--duration", "10s"],
            marks=in_campaign,
        ),
    ],
)
def test_chaos_run_finds_nothing_wrong_with_a_cluster_under_mixed_faults(
    tmp_path: Path, driver: str, faults: str, options: list[str]
) -> None:
    reason = isolation.why_not(network=driver == "netns")
    if reason is not None:
        pytest.skip(f"needs namespaces: {reason}")
    output = tmp_path / "run"
    done = chaos(output, "--driver", driver, "--faults", faults, "--seed", "97", *PACE, *options)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert {path.name for path in output.iterdir()} == FILES
    run, verdict = read(output / "run.json"), read(output / "verdict.json")
    assert verdict["valid"] is True
    assert run["seed"] == 97
    assert run["outcome"]["problems"] == []
    assert run["outcome"]["sends"]["ok"] > MIN_SENDS
    assert len({fault["fault"] for fault in run["plan"]}) > 2
    command = [*TIDELOG, "chaos", "check", str(output)]
    again = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert again.returncode == 0, again.stdout
    assert not [path for path in output.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    lines = (output / "metrics.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["sends"]["ok"] for line in lines) == run["outcome"]["sends"]["ok"]
    assert any(json.loads(line)["faults"] for line in lines)
    group = verdict["statistics"]["group"]
    assert "subscribe" not in options or (group["drained"] and group["generations"] > 1), group


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@in_campaign
@pytest.mark.parametrize("client", ["tidelog", "confluent-kafka"])
def test_changed_certificates_and_credentials_disturb_no_client(tmp_path: Path, client: str) -> None:
    output = tmp_path / "run"
    options = [
        "--client",
        client,
        "--faults",
        "certificates,credentials",
        "--interval",
        "1s..2s",
        "--crash-interval",
        "2s",
    ]
    done = chaos(output, "--secure", "--duration", "15s", "--seed", "5", *options)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    run = read(output / "run.json")
    assert run["outcome"]["sends"]["ok"] > MIN_SENDS
    assert run["outcome"]["sends"]["fail"] == 0
    logs = "".join(path.read_text() for path in (output / "logs").iterdir())
    assert "start-credentials" in (output / "history.jsonl").read_text()
    assert "uses the new certificate of" in logs


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize("client", ["tidelog", pytest.param("confluent-kafka", marks=in_campaign)])
def test_chaos_run_finds_every_transaction_whole_and_once_under_mixed_faults(tmp_path: Path, client: str) -> None:
    reason = isolation.why_not(network=True)
    if reason is not None:
        pytest.skip(f"needs namespaces: {reason}")
    output = tmp_path / "run"
    options = ["--workload", "transactions", "--client", client, "--driver", "netns", "--crash-interval", "4s"]
    pace = ["--interval", "2s..3s", "--duration", "7s"]
    done = chaos(output, *options, "--faults", "kill,pause,partition,delay", *pace, "--seed", "6")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    verdict = read(output / "verdict.json")
    assert verdict["valid"] is True
    found = verdict["statistics"]["transactions"]
    assert found["outcomes"]["ok"] > 10
    assert found["outcomes"]["fail"] > 0
    assert found["outputs"] > 0
    assert found["settled"]
    assert found["ended"]


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
@in_campaign
def test_chaos_run_loses_nothing_to_a_majority_of_a_stale_node_and_one_that_lost_records(tmp_path: Path) -> None:
    output = tmp_path / "run"
    faults = ["--faults", "disk-corrupt:stale-majority", "--interval", "5s..6s", "--duration", "16s", "--seed", "8"]
    done = chaos(output, *faults)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert "start-disk-corrupt" in (output / "history.jsonl").read_text()
    assert read(output / "verdict.json")["valid"] is True


@pytest.mark.chaos
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_chaos_run_finds_lost_writes_when_a_leader_alone_acknowledges_them(tmp_path: Path) -> None:
    output = tmp_path / "run"
    unsafe = ["--producer", "acks=1", "--topic", "min.insync.replicas=1"]
    done = chaos(output, "--faults", "kill:ahead", "--seed", "1", *PACE, *unsafe)
    assert done.returncode == 1, f"{done.stdout}{done.stderr}"
    verdict = read(output / "verdict.json")
    assert verdict["valid"] is False
    assert {"lost-write", "unseen"} & set(verdict["anomalies"]), verdict["anomalies"].keys()
    assert "divergent-replicas" not in verdict["anomalies"], "what was lost is lost everywhere"
    assert (output / "cluster" / "node-1" / "data").is_dir(), "the data of a run that went wrong is kept"


@pytest.mark.chaos
def test_chaos_run_refuses_a_directory_that_has_something(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").touch()
    done = chaos(tmp_path, "--faults", "none", "--duration", "1s")
    assert done.returncode == 1
    assert f"{tmp_path} is not empty" in done.stderr


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found
