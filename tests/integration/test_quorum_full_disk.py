"""A controller whose disk is full stops with a clear line; the others go on, and it comes back when there is room."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from acknowledged import wait_for
from quorum_load import Controllers, TopicLoad
from small_disk import SmallDisk

from tidelog.testing import LocalCluster


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_controller_with_a_full_disk_stops_with_one_line_and_the_others_go_on(
    disk: SmallDisk, start_on_disk: Callable[..., LocalCluster], role: str
) -> None:
    config = {"controller.quorum.election.timeout.ms": 300, "broker.session.timeout.ms": 600_000}
    quorum = start_on_disk("controller-1/data", 3, 0, config)
    full = quorum.controllers[1]
    controllers = Controllers(c.address for c in quorum.controllers.values())
    controllers.register_broker()
    controllers.transfer(1 if role == "leader" else 2)
    with TopicLoad(controllers.addresses) as load:
        load.wait_for_progress()
        disk.fill()
        wait_for(lambda: not full.is_running, "the controller to stop")
        assert full.wait() == 1
        load.wait_for_progress()
    last = full.log_tail().splitlines()[-1]
    assert last.startswith("tidelog-quorum: cannot write")
    assert "No space left on device" in last
    assert "Traceback" not in full.log_path.read_text()
    disk.make_room()
    full.start()
    wait_for(lambda: controllers.leader_of(full.address) is not None, "it to follow again")
    load.assert_nothing_lost(controllers.topics())
    controllers.transfer(1)
    load.assert_nothing_lost(controllers.topics())
    controllers.close()
