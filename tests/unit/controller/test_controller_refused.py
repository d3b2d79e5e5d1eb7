"""A broker at whose address nobody listens is fenced before its session ends; what else may be behind that is not."""

from __future__ import annotations

from typing import Any

from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_quorum.controller.sessions import BrokerRefused

LATER_MS = 100


def refuse(driver: Any, broker_id: int, *, epoch: int | None = None, since_ms: int | None = None) -> bool:
    """Say that a broker refuses connections, from now on; returns whether there is nothing left to ask."""
    broker = driver.image.brokers[broker_id]
    refused = BrokerRefused(
        BrokerId(broker_id),
        broker.broker_epoch if epoch is None else BrokerEpoch(epoch),
        driver.now_ms if since_ms is None else since_ms,
    )
    is_settled: bool = driver.do(driver.controller.handle, refused)
    return is_settled


def three_with_a_topic(driver: Any) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2, 3]])
    driver.now_ms += LATER_MS


def test_refused_broker_is_fenced_and_its_partitions_have_other_leaders(driver: Any) -> None:
    three_with_a_topic(driver)
    assert refuse(driver, 1)
    assert driver.image.brokers[1].fenced
    assert driver.state() == (2, (2, 3))


def test_refused_broker_is_fenced_in_its_controlled_shutdown(driver: Any) -> None:
    three_with_a_topic(driver)
    driver.heartbeat(1, want_shut_down=True)
    assert driver.image.brokers[1].in_controlled_shutdown
    driver.now_ms += LATER_MS
    assert refuse(driver, 1)
    assert driver.image.brokers[1].fenced


def test_refused_broker_may_be_replaced_by_another_process_at_once(driver: Any) -> None:
    three_with_a_topic(driver)
    refuse(driver, 1)
    driver.up(1, incarnation=2)
    assert not driver.image.brokers[1].fenced


def test_refusal_of_an_earlier_registration_says_nothing_of_the_present_one(driver: Any) -> None:
    three_with_a_topic(driver)
    earlier = driver.image.brokers[1].broker_epoch
    refuse(driver, 1)
    driver.up(1, incarnation=2)
    driver.now_ms += LATER_MS
    offset = driver.image.offset
    assert refuse(driver, 1, epoch=earlier)
    assert driver.image.offset == offset


def test_refusal_of_a_broker_that_was_heard_of_since_is_not_believed(driver: Any) -> None:
    three_with_a_topic(driver)
    since_ms = driver.now_ms
    driver.heartbeat(1)
    assert not refuse(driver, 1, since_ms=since_ms)
    assert not driver.image.brokers[1].fenced
    driver.now_ms += 1
    assert refuse(driver, 1), "another look sees that nothing more has come"
    assert driver.image.brokers[1].fenced


def test_refusal_of_a_fenced_broker_leaves_the_registration_its_session(driver: Any) -> None:
    """A process registers before it listens."""
    driver.register(1)
    driver.now_ms += LATER_MS
    offset = driver.image.offset
    assert refuse(driver, 1)
    assert driver.image.offset == offset
    assert not driver.heartbeat(1).is_fenced
    driver.now_ms += LATER_MS
    assert refuse(driver, 1), "the refusal before it served does not count"
    assert driver.image.brokers[1].fenced


def test_refusal_of_an_unknown_broker_changes_nothing(driver: Any) -> None:
    offset = driver.image.offset
    assert driver.do(driver.controller.handle, BrokerRefused(BrokerId(9), BrokerEpoch(1), 0))
    assert driver.image.offset == offset


def test_refused_broker_that_lives_comes_back_and_is_never_fenced_for_it_again(driver: Any) -> None:
    """The controller cannot reach its address, others can: at most one such fence in the life of a process."""
    three_with_a_topic(driver)
    refuse(driver, 1)
    assert not driver.heartbeat(1).is_fenced
    for _ in range(3):
        driver.now_ms += LATER_MS
        assert not refuse(driver, 1)
        assert not driver.image.brokers[1].fenced
    driver.now_ms += 9_000
    driver.heartbeat(2)
    driver.heartbeat(3)
    assert driver.expire() == {1}, "its session ends as ever"


def test_refusal_of_another_process_of_the_same_broker_is_believed(driver: Any) -> None:
    three_with_a_topic(driver)
    refuse(driver, 1)
    driver.heartbeat(1)
    driver.now_ms += 9_000
    driver.up(1, incarnation=2)
    driver.now_ms += LATER_MS
    assert refuse(driver, 1)
    assert driver.image.brokers[1].fenced


def test_last_replica_in_sync_stays_in_the_isr_without_a_leader_when_it_is_refused(driver: Any) -> None:
    driver.up(1)
    driver.create(assignments=[[1]])
    driver.now_ms += LATER_MS
    assert refuse(driver, 1)
    assert driver.state() == (-1, (1,))
