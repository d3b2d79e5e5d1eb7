"""Unclean elections, and changes of many partitions: in entries of bounded size, and finished by whoever leads."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from core_state import state_of
from request_values import code_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest
from tidelog_quorum.controller.partition_queue import PartitionQueue

FEW = 5
MANY = 17


@pytest.fixture
def many(driver: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Topic t: 17 partitions on 1 and 2, led by 1; an entry may change 5."""
    driver.controller.queue = PartitionQueue(driver.controller.own, FEW)
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]] * MANY)
    return driver


def leaders(driver: Any) -> set[int]:
    return {p.leader for p in driver.image.topics["t"].partitions.values()}


def changed(driver: Any) -> list[int]:
    """Return the number of records in each of the latest entries."""
    return [len(records) for _, _, records in driver.log]


def test_unclean_election_happens_at_once_where_the_topic_allows_it(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    driver.alter(1, [1])
    driver.heartbeat(1, want_fence=True)
    assert driver.state() == (2, (2,))
    assert (driver.controller.elections, driver.controller.unclean_elections) == (1, 1)


def test_election_from_the_isr_is_counted_as_a_clean_one(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.heartbeat(1, want_fence=True)
    assert driver.state() == (2, (2,))
    assert (driver.controller.elections, driver.controller.unclean_elections) == (1, 0)


def test_unclean_election_does_not_happen_where_the_topic_does_not_allow_it(new_driver: Callable[..., Any]) -> None:
    driver = new_driver(unclean_leader_election_enable=True)
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]], configs={"unclean.leader.election.enable": "false"})
    driver.alter(1, [1])
    driver.heartbeat(1, want_fence=True)
    assert driver.state() == (-1, (1,))


def test_unclean_election_happens_when_a_replica_comes_back(new_driver: Callable[..., Any]) -> None:
    driver = new_driver(unclean_leader_election_enable=True)
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.alter(1, [1])
    driver.heartbeat(2, want_fence=True)
    driver.heartbeat(1, want_fence=True)
    assert driver.state() == (-1, (1,))
    driver.heartbeat(2)
    assert driver.state() == (2, (2,))


@pytest.mark.parametrize("resource", ["", "t"])
def test_unclean_election_happens_when_the_setting_is_switched_on(driver: Any, resource: str) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.alter(1, [1])
    driver.heartbeat(1, want_fence=True)
    driver.tick()
    assert driver.state() == (-1, (1,))
    driver.set_config(resource, "unclean.leader.election.enable", "true")
    assert driver.state() == (-1, (1,))
    driver.tick()
    assert driver.state() == (2, (2,))


def test_fencing_of_many_is_written_in_entries_of_bounded_size(many: Any) -> None:
    entries = len(many.log)
    many.now_ms += 9_000
    many.heartbeat(2)
    many.tick()
    assert leaders(many) == {2}
    assert all(p.isr == (2,) for p in many.image.topics["t"].partitions.values())
    # The first one fences too.
    assert changed(many)[entries:] == [FEW + 1, FEW, FEW, MANY - 3 * FEW]


def test_fencing_of_many_fences_first_so_that_nobody_joins_an_isr_again(many: Any) -> None:
    many.write(many.controller.handle, fencing(many, 1))
    many.commit()
    assert many.image.brokers[1].fenced
    assert leaders(many) == {1, 2}
    result = many.alter(1, [1, 2], index=MANY - 1)
    assert code_of(result.error) is ErrorCode.INELIGIBLE_REPLICA


def test_fencing_of_many_is_finished_by_the_next_leader(many: Any) -> None:
    many.write(many.controller.handle, fencing(many, 1))
    many.commit()
    many.lead()
    assert leaders(many) == {1, 2}
    many.tick()
    assert leaders(many) == {2}


def test_fencing_of_many_looks_at_each_as_it_is_by_then(many: Any) -> None:
    many.write(many.controller.handle, fencing(many, 1))
    many.heartbeat(1)
    many.tick()
    many.controller.check_invariants()
    # Those that were not reached before broker 1 was back are as they were.
    assert leaders(many) == {1, 2}
    assert sum(p.isr == (1, 2) for p in many.image.topics["t"].partitions.values()) == MANY - FEW


def test_shutdown_with_many_leaderships_ends_when_the_others_know_of_the_last(many: Any) -> None:
    assert not many.heartbeat(1, want_shut_down=True).should_shut_down
    many.heartbeat(2)
    assert not many.heartbeat(1, want_shut_down=True).should_shut_down
    many.tick()
    assert leaders(many) == {2}
    assert not many.heartbeat(1, want_shut_down=True).should_shut_down
    many.heartbeat(2)
    assert many.heartbeat(1, want_shut_down=True).should_shut_down


def test_registration_waits_until_many_partitions_are_handed_over(many: Any) -> None:
    many.now_ms += 9_000
    many.heartbeat(2)
    with pytest.raises(TidelogError, match="handed over") as failed:
        many.register(1, 2)
    assert failed.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    many.tick()
    assert leaders(many) == {2}
    many.register(1, 2)
    assert many.image.brokers[1].fenced


def test_registration_after_a_crash_waits_until_many_elrs_are_left(new_driver: Callable[..., Any]) -> None:
    driver = new_driver(min_isr=2)
    driver.controller.queue = PartitionQueue(driver.controller.own, FEW)
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]] * MANY)
    driver.heartbeat(2, want_fence=True, want_shut_down=True)
    driver.tick()
    assert all(p.eligible_leader_replicas == (2,) for p in driver.image.topics["t"].partitions.values())
    with pytest.raises(TidelogError, match="handed over"):
        driver.register(2, 2)
    driver.tick()
    assert all(p.eligible_leader_replicas == () for p in driver.image.topics["t"].partitions.values())
    driver.up(2, incarnation=2)
    driver.tick()
    assert leaders(driver) == {1}


def test_unregistering_a_broker_with_many_replicas_goes_on_in_the_background(many: Any) -> None:
    many.unregister(1)
    assert 1 not in many.image.brokers
    many.tick()
    assert leaders(many) == {2}


def fencing(driver: Any, broker_id: int) -> Any:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=driver.image.brokers[broker_id].broker_epoch,
        current_metadata_offset=driver.image.offset,
        want_fence=True,
    )


def test_queued_partitions_are_data_that_can_be_copied(many: Any) -> None:
    many.unregister(1)
    waiting = many.controller.queue.waiting()
    assert 0 < len(waiting) < MANY, "an entry settles some of them"
    state = state_of(many.controller)
    for copied in (copy.deepcopy(many.controller), pickle.loads(pickle.dumps(many.controller))):
        assert state_of(copied) == state
        assert copied.queue.waiting() == waiting
