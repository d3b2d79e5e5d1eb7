"""Real controllers, killed, paused and cut off: what was acknowledged stays, and somebody leads again soon."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from acknowledged import wait_for
from quorum_load import Controllers, TopicLoad
from seeds import environment_number

from tidelog.testing import LocalCluster

# The core draws its timeouts from one to two times this: 300 to 600 ms.
ELECTION_TIMEOUT_MS = 300
KILL_ROUNDS = 3
CHAOS_KILL_ROUNDS = 20


@pytest.fixture
def quorum() -> Iterator[LocalCluster]:
    """Three controllers without nodes; a broker's session outlives the test."""
    config = {
        "controller.quorum.election.timeout.ms": ELECTION_TIMEOUT_MS,
        "controller.quorum.heartbeat.interval.ms": 50,
        "broker.session.timeout.ms": 600_000,
        # Small enough that snapshots are taken and logs are cut during the tests.
        "metadata.log.max.record.bytes.between.snapshots": 5_000,
        "controller.quorum.snapshot.trailing.entries": 20,
    }
    with LocalCluster(controllers=3, nodes=0, config=config) as running:
        yield running


@pytest.fixture
def controllers(quorum: LocalCluster) -> Iterator[Controllers]:
    client = Controllers(addresses(quorum))
    client.register_broker()
    yield client
    client.close()


def addresses(quorum: LocalCluster) -> list[str]:
    return [controller.address for controller in quorum.controllers.values()]


def leader_of(controllers: Controllers) -> int:
    wait_for(lambda: controllers.leader() is not None, "a leader of the quorum")
    leader = controllers.leader()
    assert leader is not None
    return leader


def is_thorough() -> bool:
    """True in `make chaos`."""
    return environment_number("TIDELOG_CHAOS_ROUNDS") is not None


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_quorum_loses_nothing_acknowledged_when_all_controllers_are_killed_under_load(
    quorum: LocalCluster, controllers: Controllers
) -> None:
    rounds = CHAOS_KILL_ROUNDS if is_thorough() else KILL_ROUNDS
    with TopicLoad(addresses(quorum)) as load:
        for _ in range(rounds):
            load.wait_for_progress()
            for controller in quorum.controllers.values():
                controller.kill()
            for controller in quorum.controllers.values():
                controller.start()
        load.wait_for_progress()
    load.assert_nothing_lost(controllers.topics())
    assert len(load.acknowledged) > 30 * rounds
    assert all(list((c.directory / "data").glob("*.checkpoint")) for c in quorum.controllers.values())


def test_quorum_has_a_new_leader_within_a_second_when_the_leader_is_killed(
    quorum: LocalCluster, controllers: Controllers
) -> None:
    with TopicLoad(addresses(quorum)) as load:
        load.wait_for_progress()
        for _ in range(3):
            killed = leader_of(controllers)
            quorum.controllers[killed].kill()
            started = time.monotonic()
            wait_for(lambda gone=killed: controllers.leader() not in (None, gone), "a new leader")  # type: ignore[misc]
            elapsed_s = time.monotonic() - started
            assert elapsed_s < 1.0
            load.wait_for_progress()
            quorum.controllers[killed].start()
            wait_for(lambda gone=killed: follows(quorum, controllers, gone), "it to follow")  # type: ignore[misc]
    load.assert_nothing_lost(controllers.topics())


@pytest.mark.parametrize("pause_s", [2.0, pytest.param(6.0, marks=pytest.mark.chaos)])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_quorum_goes_on_while_a_controller_is_paused_and_takes_it_back(
    quorum: LocalCluster, controllers: Controllers, role: str, pause_s: float
) -> None:
    if pause_s > 2 and not is_thorough():
        pytest.skip("a pause of 6 s is part of make chaos")
    with TopicLoad(addresses(quorum)) as load:
        load.wait_for_progress()
        leader = leader_of(controllers)
        paused = leader if role == "leader" else next(i for i in quorum.controllers if i != leader)
        quorum.controllers[paused].pause()
        deadline = time.monotonic() + pause_s
        try:
            # A worker that waits for an answer of the paused controller asks the next one after two seconds.
            others = Controllers([c.address for i, c in quorum.controllers.items() if i != paused])
            wait_for(lambda: bool(others.topics(5)), "the others to serve")
            others.close()
            time.sleep(max(0.0, deadline - time.monotonic()))
        finally:
            quorum.controllers[paused].resume()
        load.wait_for_progress()
        wait_for(lambda: follows(quorum, controllers, paused) or leader_of(controllers) == paused, "it to come back")
    load.assert_nothing_lost(controllers.topics())


def test_quorum_leader_without_followers_steps_down_and_acknowledges_nothing(
    quorum: LocalCluster, controllers: Controllers
) -> None:
    leader = leader_of(controllers)
    others = [c for i, c in quorum.controllers.items() if i != leader]
    address = quorum.controllers[leader].address
    before = controllers.topics()
    for controller in others:
        controller.pause()
    try:
        assert not controllers.is_acknowledged("alone", address, timeout_s=2)
        wait_for(lambda: controllers.leader_of(address) is None, "the leader to step down", 5)
    finally:
        for controller in others:
            controller.resume()
    wait_for(lambda: controllers.leader() is not None, "a leader again")
    assert before.items() <= controllers.topics().items()


def follows(quorum: LocalCluster, controllers: Controllers, controller_id: int) -> bool:
    """Return whether a controller knows the leader that leads, another one."""
    leader = controllers.leader()
    return (
        leader not in (None, controller_id)
        and controllers.leader_of(quorum.controllers[controller_id].address) == leader
    )
