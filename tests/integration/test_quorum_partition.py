"""A leader that the network cuts off from the other controllers, while its clients still reach it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from isolated_controllers import IsolatedControllers, why_not
from quorum_load import Controllers, TopicLoad

CONFIG = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.heartbeat.interval.ms": 50,
    "broker.session.timeout.ms": 600_000,
}


@pytest.fixture
def isolated(tmp_path: Path) -> Iterator[IsolatedControllers]:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"needs network namespaces: {reason}")
    with IsolatedControllers(tmp_path, 3, CONFIG) as running:
        yield running


def test_quorum_leader_that_is_cut_off_steps_down_and_acknowledges_nothing(isolated: IsolatedControllers) -> None:
    controllers = Controllers(isolated.addresses)
    controllers.register_broker()
    wait_for(lambda: controllers.leader() is not None, "a leader")
    cut = controllers.leader()
    assert cut is not None
    address = isolated.addresses[cut - 1]
    others = Controllers(a for a in isolated.addresses if a != address)
    with TopicLoad(isolated.addresses) as load:
        load.wait_for_progress()
        isolated.cut_off(cut)
        started = time.monotonic()
        wait_for(lambda: controllers.leader_of(address) is None, "the old leader to step down")
        stepped_down_s = time.monotonic() - started
        assert not controllers.is_acknowledged("alone", address, timeout_s=1.0)
        assert "alone" not in others.topics()
        load.wait_for_progress()
        isolated.heal(cut)
        wait_for(lambda: controllers.leader_of(address) is not None, "it to follow the new leader")
        load.wait_for_progress()
    load.assert_nothing_lost(controllers.topics())
    # Check-quorum looks once per election timeout, so two of them may pass.
    assert stepped_down_s < 2.0
    controllers.close()
    others.close()


def test_quorum_follower_that_is_cut_off_deposes_nobody_when_it_returns(isolated: IsolatedControllers) -> None:
    controllers = Controllers(isolated.addresses)
    controllers.register_broker()
    wait_for(lambda: controllers.leader() is not None, "a leader")
    leader = controllers.leader()
    cut = next(i for i in isolated.ids if i != leader)
    address = isolated.addresses[cut - 1]
    with TopicLoad(isolated.addresses) as load:
        load.wait_for_progress()
        wait_for(lambda: controllers.leader_of(address) == leader, "the third controller to follow the leader")
        isolated.cut_off(cut)
        wait_for(lambda: controllers.leader_of(address) is None, "it to miss its leader")
        # Several of its election timeouts pass, in each of which it asks in vain whether it would be elected.
        time.sleep(1.5)
        isolated.heal(cut)
        wait_for(lambda: controllers.leader_of(address) == leader, "it to follow the same leader")
        load.wait_for_progress()
    load.assert_nothing_lost(controllers.topics())
    assert isolated.log(cut).count("the quorum is led by") >= 2
    assert len({line.rpartition("epoch ")[2] for line in isolated.log(cut).splitlines() if "is led by" in line}) == 1
    controllers.close()
