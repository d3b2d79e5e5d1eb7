"""The effects of the faults of ``--driver netns`` on packets and disks, and the complete cleanup after a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import netns_probe
import pytest
from acknowledged import wait_for

from tidelog_chaos.isolation import why_not

TIDELOG = [sys.executable, "-c", "from tidelog_cli.main import main; main()"]
RUN = [*TIDELOG, "chaos", "run", "--driver", "netns", "--interval", "1s..2s"]
FAULTS = ["--faults", "pause,slow,partition,delay,disk-full", "--duration", "60s", "--rate", "50", "--seed", "3"]

in_campaign = pytest.mark.skipif("TIDELOG_CHAOS_ROUNDS" not in os.environ, reason="make chaos runs it")

AS_ROOT = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
WITHOUT_NAMES = [
    *("unshare", *AS_ROOT, "--mount", "--propagation", "private", "--"),
    *("sh", "-c", 'mount -t tmpfs -o ro none /run && exec "$@"', "sh"),
]
"""Runs a command where nobody has ever named a network namespace, and nobody may make the folder for the names."""


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    reason = why_not(network=True)
    if reason is not None:
        pytest.skip(f"needs namespaces: {reason}")


@pytest.mark.chaos
@pytest.mark.parametrize("wrapper", [[], pytest.param(WITHOUT_NAMES, marks=in_campaign)], ids=["", "without-names"])
def test_netns_faults_stop_delay_and_lose_packets_in_the_direction_that_was_asked_for(
    tmp_path: Path, wrapper: list[str]
) -> None:
    command = [*wrapper, sys.executable, netns_probe.__file__, str(tmp_path / "cluster")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    everything = ["node 1 to node 2", "node 2 to node 1", "clients to node 1", "node 1 to clients"]
    assert seen["calm"] == seen["healed"] == everything
    assert seen["one way"] == everything[1:]
    assert seen["clients"] == everything[:2]
    assert seen["lost"] == ["node 2 to node 1", "clients to node 1"]
    assert 80 <= seen["delayed ms"] <= 1000
    assert seen["not delayed ms"] < 80
    assert seen["full"] == [False, True]
    assert seen["freed"] is True
    assert (tmp_path / "cluster" / "node-2" / "data" / "meta.properties").exists(), "what was on its disk is kept"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run among whose faults are stopped processes, mounts, delays and cuts."""
    command = [*RUN, *FAULTS, "--output", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        seen = ""
        while not all(word in seen for word in ("slow", "partition", "delay")):
            line = process.stdout.readline()
            assert line, f"the run ended: {seen}"
            seen += line
        yield process
        process.kill()


def test_netns_run_that_is_killed_leaves_no_process_no_mount_and_no_network(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    before = len(processes(tmp_path))
    assert before >= 6
    running.kill()
    wait_for(lambda: not processes(tmp_path), "every process of the run to be gone", 10)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert "chaos" not in os.listdir("/sys/class/net")


@pytest.mark.chaos
@in_campaign
def test_netns_run_that_is_interrupted_heals_checks_what_was_done_and_leaves_nothing(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    running.send_signal(signal.SIGINT)
    output = running.communicate(timeout=100)[0]
    assert running.returncode == 0, output
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["outcome"]["interrupted"] is True
    assert json.loads((tmp_path / "run" / "verdict.json").read_text())["valid"] is True
    assert not processes(tmp_path)


def processes(directory: Path) -> list[str]:
    """Return the commands of processes that name the directory, but for this one's child."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command and int(path.parent.name) != os.getpid():
            found.append(command)
    return found


def test_netns_refuses_a_fault_that_it_cannot_do_before_anything_starts(tmp_path: Path) -> None:
    command = [*TIDELOG, "chaos", "run", "--driver", "local"]
    done = subprocess.run(
        [*command, "--faults", "kill,partition", "--output", str(tmp_path / "run")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "partition: all processes share this machine's loopback: use --driver netns" in done.stderr
    assert not (tmp_path / "run").exists()
