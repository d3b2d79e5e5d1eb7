"""Processes of a cluster that cannot start say what they wait for."""

from __future__ import annotations

import re
import time

from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle


def test_controller_without_a_quorum_and_its_node_say_what_they_wait_for() -> None:
    cluster = LocalCluster(controllers=3, nodes=1)
    cluster.start()
    try:
        for controller_id in (2, 3):
            cluster.controllers[controller_id].kill()
        await_line(cluster.controllers[1], r"Still waiting after \d+ s for a leader of the quorum: none is elected")
        await_line(
            cluster.nodes[1], r"Still waiting after \d+ s for a controller to register this node, for a controller"
        )
        await_line(cluster.nodes[1], r"Still waiting after \d+ s for the cluster's metadata, which node 1 needs")
    finally:
        cluster.close()


def await_line(process: ProcessHandle, text: str) -> None:
    deadline = time.monotonic() + 30
    while not re.search(text, process.log_path.read_text()):
        assert time.monotonic() < deadline, process.log_tail()
        time.sleep(0.1)
