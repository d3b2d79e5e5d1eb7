"""Real controllers on the other engine: they lead, commit, restart and administer what that engine can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from quorum_load import Controllers, TopicLoad
from typer.testing import CliRunner

from tidelog.testing import LocalCluster
from tidelog_cli.commands import app

CONFIG = {
    "controller.quorum.engine": "pysyncobj",
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.heartbeat.interval.ms": 50,
    "broker.session.timeout.ms": 600_000,
}


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(controllers=3, nodes=0, data_dir=tmp_path, config=CONFIG) as running:
        yield running


@pytest.fixture
def controllers(quorum: LocalCluster) -> Iterator[Controllers]:
    client = Controllers(c.address for c in quorum.controllers.values())
    client.register_broker()
    yield client
    client.close()


def test_quorum_on_pysyncobj_serves_on_when_its_leader_stops_and_after_a_restart_of_all(
    quorum: LocalCluster, controllers: Controllers
) -> None:
    assert "can lose acknowledged commands" in quorum.controllers[1].log_path.read_text()
    with TopicLoad(controllers.addresses) as load:
        load.wait_for_progress()
        wait_for(lambda: controllers.leader() is not None, "a leader")
        leader = controllers.leader()
        assert leader is not None
        assert quorum.controllers[leader].stop() == 0
        load.wait_for_progress()
        quorum.controllers[leader].start()
        wait_for(lambda: controllers.leader_of(quorum.controllers[leader].address) is not None, "it to follow")
    load.assert_nothing_lost(controllers.topics())
    for controller in quorum.controllers.values():
        assert controller.stop() == 0
    for controller in quorum.controllers.values():
        controller.start()
    load.assert_nothing_lost(controllers.topics())


def test_quorum_command_says_what_pysyncobj_cannot_do(quorum: LocalCluster, controllers: Controllers) -> None:
    addresses = ",".join(controllers.addresses)

    def run(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["quorum", *args, "--bootstrap-controller", addresses])
        return result.exit_code, result.output

    assert "MaxFollowerLag" in run("describe")[1]
    code, text = run("remove-voter", "1")
    assert code == 1
    assert text.startswith("tidelog: error: controller.quorum.engine=pysyncobj cannot change its voters")
    controllers.create_topics("flights")
    code, text = run("snapshot")
    # Clients of other tests in this process may warn that they wait.
    lines = [line for line in text.splitlines() if not line.startswith("tidelog: warning: Still waiting")]
    assert (code, len(lines)) == (0, 4)
    controllers.transfer(2)
    assert set(controllers.topics()) == {"flights"}


def test_controller_does_not_take_the_log_of_the_other_engine(quorum: LocalCluster) -> None:
    controller = quorum.controllers[1]
    assert controller.stop() == 0
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tidelog_quorum", str(controller.properties_path)),
            *("--override", "controller.quorum.engine=tidelog"),
            *("--override", "controller.quorum.pysyncobj.voters="),
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 2
    assert "has the log of controller.quorum.engine=pysyncobj: engines cannot be exchanged" in ended.stderr
