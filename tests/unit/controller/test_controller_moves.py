"""Reassignments, elections and the balance of leaders through the whole controller, with its log and its successors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from request_values import code_of

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectionType,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from tidelog_foundation.requests.topics import DeleteTopicsRequest

Driver = Any
NewDriver = Callable[..., Driver]


def reassign(driver: Driver, target: Sequence[int] | None, name: str = "t", index: int = 0, commit: bool = True) -> int:
    replicas = None if target is None else tuple(target)
    topic = ReassignableTopic(name=name, partitions=(ReassignablePartition(index=index, replicas=replicas),))
    request = AlterPartitionReassignmentsRequest(topics=(topic,))
    response = (driver.do if commit else driver.write)(driver.controller.handle, request)
    code: int = code_of(response.topics[0].partitions[0].error).code
    return code


def elect(driver: Driver, kind: int, name: str = "t") -> dict[int, int]:
    request = ElectLeadersRequest(election_type=kind, topics=(TopicPartitions(name=name, partitions=(0,)),))
    response = driver.do(driver.controller.handle, request)
    return {p.index: code_of(p.error).code for t in response.topics for p in t.partitions}


def test_move_completes_when_the_leader_brings_the_new_replica_into_the_isr(driver: Driver) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]])

    assert reassign(driver, [1, 3]) == 0
    result = driver.alter(1, [1, 2, 3])

    assert result.error is None
    assert (result.leader_id, list(result.isr)) == (1, [1, 3])
    assert result.leader_epoch == 1
    assert driver.partition().replicas == (1, 3)


def test_leader_that_a_completed_move_takes_away_is_told_that_there_is_another(driver: Driver) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]])
    reassign(driver, [3, 2])

    result = driver.alter(1, [1, 2, 3])

    assert code_of(result.error) is ErrorCode.NEW_LEADER_ELECTED
    assert driver.state() == (3, (2, 3))
    assert driver.partition().replicas == (3, 2)


def test_move_is_continued_by_the_next_controller(driver: Driver) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]])
    reassign(driver, [1, 3])

    driver.lead()

    assert driver.partition().is_reassigning
    driver.alter(1, [1, 2, 3])
    assert driver.partition().replicas == (1, 3)


def test_move_that_was_not_committed_is_lost_with_its_controller(driver: Driver) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]])
    assert reassign(driver, [1, 3], commit=False) == 0
    assert reassign(driver, None, commit=False) == 0, "the next request sees it already"
    assert reassign(driver, [1, 3], commit=False) == 0

    driver.lead()

    assert driver.partition().replicas == (1, 2)
    assert reassign(driver, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.code


def test_move_ends_with_its_topic_and_a_new_one_of_the_name_knows_nothing_of_it(driver: Driver) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]])
    reassign(driver, [1, 3])

    driver.do(driver.controller.handle, DeleteTopicsRequest(topic_names=("t",)))
    assert reassign(driver, None) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    driver.create(assignments=[[1, 2]])

    assert reassign(driver, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.code


def test_move_waits_for_a_target_that_is_away_and_completes_when_it_is_back(driver: Driver) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]])
    reassign(driver, [1, 3])
    driver.heartbeat(3, want_fence=True)
    assert code_of(driver.alter(1, [1, 2, 3]).error) is ErrorCode.INELIGIBLE_REPLICA
    driver.heartbeat(3)

    driver.alter(1, [1, 2, 3])

    assert driver.partition().replicas == (1, 3)


def test_move_away_from_a_dead_leader_has_one_of_the_others_lead(driver: Driver) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]])
    reassign(driver, [3, 2])
    driver.heartbeat(1, want_fence=True)
    assert driver.state()[0] == 2

    driver.alter(2, [2, 3])

    assert driver.partition().replicas == (3, 2)
    assert driver.state() == (2, (2, 3))


def test_topic_s_setting_decides_whether_a_cancellation_may_lose_records(new_driver: NewDriver) -> None:
    for allowed in ("false", "true"):
        driver = new_driver()
        driver.up(1, 2, 3)
        driver.create(assignments=[[1]], configs={"unclean.leader.election.enable": allowed})
        reassign(driver, [2, 3])
        driver.alter(1, [1, 2])
        driver.heartbeat(1, want_fence=True)
        assert driver.state() == (2, (2,))

        code = reassign(driver, None)

        if allowed == "true":
            assert code == 0
            assert driver.partition().replicas == (1,)
        else:
            assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT.code
            assert driver.partition().replicas == (2, 3, 1)


def test_election_brings_the_preferred_leader_back(driver: Driver) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.heartbeat(1, want_fence=True)
    assert elect(driver, ElectionType.PREFERRED) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE.code}
    driver.heartbeat(1)
    assert elect(driver, ElectionType.PREFERRED) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE.code}
    driver.alter(2, [1, 2])

    assert elect(driver, ElectionType.PREFERRED) == {0: 0}

    assert driver.state()[0] == 1


def test_unclean_election_is_made_by_hand_where_the_topic_forbids_it_otherwise(driver: Driver) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.alter(1, [1])
    driver.heartbeat(1, want_fence=True)
    assert driver.state()[0] == -1

    assert elect(driver, ElectionType.UNCLEAN) == {0: 0}

    assert driver.state() == (2, (2,))


@pytest.mark.parametrize("enabled", [True, False])
def test_leaderships_return_by_themselves_unless_that_is_switched_off(new_driver: NewDriver, enabled: bool) -> None:
    driver = new_driver(
        auto_leader_rebalance_enable=enabled,
        leader_imbalance_check_interval_seconds=1,
        leader_imbalance_per_broker_percentage=0,
    )
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.heartbeat(1, want_fence=True)
    driver.heartbeat(1)
    driver.alter(2, [1, 2])
    driver.tick()
    assert driver.state()[0] == 2, "not yet"
    driver.now_ms = 1_000
    for _ in range(3):
        driver.tick()

    assert driver.state()[0] == (1 if enabled else 2)


def test_balance_begins_again_with_the_next_controller(new_driver: NewDriver) -> None:
    driver = new_driver(leader_imbalance_check_interval_seconds=1, leader_imbalance_per_broker_percentage=0)
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.heartbeat(1, want_fence=True)
    driver.heartbeat(1)
    driver.alter(2, [1, 2])
    driver.now_ms = 900
    driver.lead()
    driver.now_ms = 1_800
    for _ in range(3):
        driver.tick()
    assert driver.state()[0] == 2
    driver.now_ms = 1_900
    for _ in range(3):
        driver.tick()

    assert driver.state()[0] == 1
