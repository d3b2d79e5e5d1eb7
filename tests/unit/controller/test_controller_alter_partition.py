"""AlterPartition: compare-and-set on both epochs, and who may join an ISR (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from request_values import code_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.replicas import (
    AlterPartitionItem,
    AlterPartitionItemResult,
    AlterPartitionRequest,
    AlterPartitionTopic,
    IsrMember,
)
from tidelog_quorum.metadata.records import PartitionChangeRecord


@pytest.fixture
def led(driver: Any) -> Any:
    """Topic t, partition 0: replicas 1, 2, 3, led by 1; the partition epoch is 1."""
    driver.up(1, 2, 3, 4)
    driver.create(assignments=[[1, 2, 3]])
    driver.alter(1, [1, 2])
    return driver


def code(result: AlterPartitionItemResult) -> ErrorCode:
    return code_of(result.error)


def test_alter_partition_answers_the_new_state(led: Any) -> None:
    result = led.alter(1, [1, 2, 3])
    assert result.error is None
    assert (result.leader_id, result.leader_epoch, result.partition_epoch) == (1, 0, 2)
    assert list(result.isr) == [1, 2, 3]
    assert led.state() == (1, (1, 2, 3))


def test_alter_partition_to_the_same_isr_refuses_every_earlier_proposal_from_then_on(led: Any) -> None:
    """A leader withdraws by it what it has proposed and may be stored late."""
    before = led.partition()
    assert led.alter(1, [1, 2]).partition_epoch == before.partition_epoch + 1
    assert (led.partition().isr, led.partition().leader_epoch) == (before.isr, before.leader_epoch)
    assert code(led.alter(1, [1], partition_epoch=before.partition_epoch)) is ErrorCode.INVALID_UPDATE_VERSION


def test_alter_partition_is_refused_with_an_old_partition_epoch(led: Any) -> None:
    assert code(led.alter(1, [1], partition_epoch=0)) is ErrorCode.INVALID_UPDATE_VERSION


def test_alter_partition_is_refused_with_an_old_leader_epoch(led: Any) -> None:
    led.heartbeat(1, want_fence=True)
    led.heartbeat(1)
    assert code(led.alter(1, [1], leader_epoch=0)) is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("epochs", [{"leader_epoch": 1}, {"partition_epoch": 2}])
def test_alter_partition_with_a_future_epoch_means_another_controller(led: Any, epochs: dict[str, int]) -> None:
    assert code(led.alter(1, [1], **epochs)) is ErrorCode.NOT_CONTROLLER


def test_alter_partition_is_refused_from_another_than_the_leader(led: Any) -> None:
    assert code(led.alter(2, [1, 2])) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("isr", [[], [2], [1, 1], [1, 4]])
def test_alter_partition_is_refused_with_an_impossible_isr(led: Any, isr: list[int]) -> None:
    result = led.alter(1, isr)
    assert code(result) is ErrorCode.INVALID_REQUEST
    assert str(isr) in result.error.message


def test_alter_partition_keeps_fenced_brokers_out(led: Any) -> None:
    led.heartbeat(3, want_fence=True)
    result = led.alter(1, [1, 2, 3])
    assert code(result) is ErrorCode.INELIGIBLE_REPLICA
    assert "broker 3 is fenced" in result.error.message


def test_alter_partition_keeps_brokers_out_that_shut_down(led: Any) -> None:
    led.create("u", assignments=[[3, 1]])
    led.heartbeat(3, want_shut_down=True)
    result = led.alter(1, [1, 2, 3])
    assert code(result) is ErrorCode.INELIGIBLE_REPLICA
    assert "broker 3 is shutting down" in result.error.message


def test_alter_partition_keeps_out_a_broker_that_was_restarted_meanwhile(led: Any) -> None:
    epoch = led.image.brokers[3].broker_epoch
    led.heartbeat(3, want_shut_down=True)
    led.up(3, incarnation=2)
    assert code(led.alter(1, [1, 2, 3], epochs={3: epoch})) is ErrorCode.INELIGIBLE_REPLICA
    assert led.alter(1, [1, 2, 3], epochs={3: led.image.brokers[3].broker_epoch}).error is None


def test_alter_partition_names_an_unknown_partition(led: Any) -> None:
    item = AlterPartitionItem(9, 0, 0, (IsrMember(broker_id=1, broker_epoch=-1),))
    topic = AlterPartitionTopic(topic_id=led.image.topics["t"].topic_id, partitions=(item,))
    request = AlterPartitionRequest(broker_id=1, broker_epoch=led.image.brokers[1].broker_epoch, topics=(topic,))
    answer = led.do(led.controller.handle, request)
    assert code(answer.topics[0].partitions[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = dataclasses.replace(topic, topic_id=b"?" * 16)
    request = AlterPartitionRequest(broker_id=1, broker_epoch=led.image.brokers[1].broker_epoch, topics=(topic,))
    answer = led.do(led.controller.handle, request)
    assert code(answer.topics[0].partitions[0]) is ErrorCode.UNKNOWN_TOPIC_ID


def test_alter_partition_is_refused_whole_with_an_old_broker_epoch(led: Any) -> None:
    with pytest.raises(TidelogError) as caught:
        led.alter(1, [1], broker_epoch=1)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_alter_partition_is_refused_whole_when_a_partition_is_named_twice(led: Any) -> None:
    topic = AlterPartitionTopic(
        topic_id=led.image.topics["t"].topic_id, partitions=(AlterPartitionItem(0, 0, 0, ()),) * 2
    )
    request = AlterPartitionRequest(broker_id=1, broker_epoch=led.image.brokers[1].broker_epoch, topics=(topic,))
    with pytest.raises(TidelogError, match="twice"):
        led.controller.handle(request, 0)


def test_alter_partition_names_an_unknown_topic(led: Any) -> None:
    topic = AlterPartitionTopic(topic_id=bytes(16), partitions=(AlterPartitionItem(0, 0, 0, ()),))
    epoch = led.image.brokers[1].broker_epoch
    request = AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=(topic,))
    response = led.do(led.controller.handle, request)
    assert code(response.topics[0].partitions[0]) is ErrorCode.UNKNOWN_TOPIC_ID


def test_alter_partition_does_not_check_an_epoch_of_minus_one(led: Any) -> None:
    assert led.alter(1, [1, 2, 3], epochs={3: -1}).error is None


@pytest.mark.parametrize("difference", [-1, 1])
def test_alter_partition_keeps_out_a_member_of_another_broker_epoch(led: Any, difference: int) -> None:
    epoch = led.image.brokers[3].broker_epoch
    assert code(led.alter(1, [1, 2, 3], epochs={3: epoch + difference})) is ErrorCode.INELIGIBLE_REPLICA
    assert led.alter(1, [1, 2, 3], epochs={3: epoch}).error is None


def test_alter_partition_keeps_out_a_broker_that_is_not_registered_any_more(led: Any) -> None:
    led.unregister(3)
    assert code(led.alter(1, [1, 2, 3])) is ErrorCode.INELIGIBLE_REPLICA


def test_alter_partition_keeps_out_a_replica_whose_directory_failed(driver: Any) -> None:
    good, bad = b"g" * 16, b"b" * 16
    driver.up(1, 2, log_dirs=[good, bad])
    driver.create(assignments=[[1, 2]])
    driver.assign(2, bad)
    driver.heartbeat(2, offline_log_dirs=[bad])
    assert code(driver.alter(1, [1, 2])) is ErrorCode.INELIGIBLE_REPLICA


def test_alter_partition_is_refused_from_a_fenced_leader(led: Any) -> None:
    led.heartbeat(2, want_fence=True)
    led.heartbeat(1, want_fence=True)
    assert led.state() == (-1, (1,))
    assert code(led.alter(1, [1], leader_epoch=0)) is ErrorCode.FENCED_LEADER_EPOCH


def reassigning(driver: Any, adding: tuple[int, ...], removing: tuple[int, ...]) -> None:
    topic_id = driver.image.topics["t"].topic_id
    replicas = tuple(dict.fromkeys((*driver.partition().replicas, *adding)))
    driver.put(
        PartitionChangeRecord(topic_id, 0, replicas=replicas, adding_replicas=adding, removing_replicas=removing)
    )


def test_alter_partition_completes_a_reassignment(led: Any) -> None:
    reassigning(led, (4,), (3,))
    result = led.alter(1, [1, 2, 4])
    assert (result.leader_id, result.leader_epoch, list(result.isr)) == (1, 1, [1, 2, 4])
    after = led.partition()
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == ((1, 2, 4), (), ())


def test_alter_partition_does_not_complete_a_reassignment_before_all_targets_are_in_sync(led: Any) -> None:
    reassigning(led, (3, 4), (2,))
    assert led.alter(1, [1, 2, 4]).error is None
    assert led.partition().is_reassigning
    led.alter(1, [1, 3, 4])
    assert not led.partition().is_reassigning


def test_alter_partition_tells_a_leader_that_the_change_took_it_away(led: Any) -> None:
    reassigning(led, (4,), (1, 3))
    result = led.alter(1, [1, 2, 4])
    assert code(result) is ErrorCode.NEW_LEADER_ELECTED
    assert led.state() == (2, (2, 4))
    assert (led.partition().replicas, led.partition().leader_epoch) == ((2, 4), 1)


def test_changes_of_many_partitions_may_be_split_into_entries(led: Any) -> None:
    """Each is right without the others, and a leader of many has them all at once when a follower lags."""
    request = AlterPartitionRequest(broker_id=1, broker_epoch=led.image.brokers[1].broker_epoch)
    assert not led.controller.handle(request, 0).atomic
