"""The units and sample properties for servers: systemd accepts the units, and the processes the properties."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog_foundation.config.process import load_properties
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_quorum.server.config import parse_quorum_config

FOLDER = Path(__file__).parents[3] / "deploy" / "systemd"
UNITS = {"tidelog-controller.service": "tidelog-quorum", "tidelog-node@.service": "tidelog-node"}


def test_controller_accepts_its_sample() -> None:
    config = parse_quorum_config(load_properties(FOLDER / "controller.properties"))
    assert config.voters.get(config.node_id) is not None
    assert [e.port for e in config.advertised] == [9093]


def test_node_accepts_its_sample() -> None:
    properties = load_properties(FOLDER / "node.properties")
    config = DynamicNodeConfig(properties).current
    assert sorted(x.port for x in config.advertised_endpoints({})) == [9092, 9094]
    of_controller = load_properties(FOLDER / "controller.properties")
    for key in ("cluster.id", "controller.quorum.voters", "min.insync.replicas"):
        assert properties[key] == of_controller[key]
    assert properties["metrics.listeners"] != of_controller["metrics.listeners"], "both may run on one machine"


@pytest.mark.parametrize("name", UNITS)
def test_unit_runs_the_command_and_lets_it_stop_in_time(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert f"ExecStart=/opt/tidelog/bin/{UNITS[name]} /etc/tidelog/" in text
    assert (Path(sys.executable).parent / UNITS[name]).exists()
    assert "RestartPreventExitStatus=2" in text
    seconds = int(text.partition("TimeoutStopSec=")[2].split()[0])
    shutdown_ms = DynamicNodeConfig(load_properties(FOLDER / "node.properties")).current.controlled_shutdown_timeout_ms
    assert seconds * 1000 > shutdown_ms


@pytest.mark.costly
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    # The command must exist; here it is elsewhere.
    unit = tmp_path / name.replace("@.", "@1.")
    unit.write_text((FOLDER / name).read_text().replace("/opt/tidelog/bin", str(Path(sys.executable).parent)))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, []), done.stderr
