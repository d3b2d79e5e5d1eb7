"""Registration, heartbeats, fencing, controlled shutdown (KIP-631, KIP-841)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest, RegisterBrokerRequest
from tidelog_foundation.requests.features import FeatureRange
from tidelog_quorum.controller.sessions import BrokerProgress


def error_of(call: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(TidelogError) as caught:
        call(*args, **kwargs)
    return caught.value.code


def test_registration_gives_its_own_offset_as_broker_epoch(driver: Any) -> None:
    assert driver.register(1) == driver.image.offset == 2
    assert driver.image.brokers[1].broker_epoch == 2


def test_registration_starts_fenced(driver: Any) -> None:
    driver.register(1)
    assert driver.image.brokers[1].fenced


def test_registration_is_refused_for_another_cluster(driver: Any) -> None:
    assert error_of(driver.register, 1, cluster_id="c2") is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_registration_is_refused_without_a_port(driver: Any) -> None:
    assert error_of(driver.register, 1, port=0) is ErrorCode.INVALID_REQUEST


def test_registration_is_refused_while_another_incarnation_is_alive(driver: Any) -> None:
    driver.up(1)
    driver.now_ms = 8_999
    assert error_of(driver.register, 1, incarnation=2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_registration_of_another_incarnation_is_accepted_when_the_session_has_ended(driver: Any) -> None:
    driver.up(1)
    first = driver.image.brokers[1].broker_epoch
    driver.now_ms = 9_000
    assert driver.register(1, incarnation=2) > first
    assert driver.image.brokers[1].fenced


def test_registration_is_refused_by_a_quorum_that_has_lost_the_log_of_the_one_before(driver: Any) -> None:
    epoch = driver.register(1)
    with pytest.raises(
        TidelogError, match=r"registered with epoch 9000, but the metadata log of this quorum"
    ) as refusal:
        driver.register(2, previous=9_000)
    assert refusal.value.code is ErrorCode.INVALID_REGISTRATION
    assert driver.register(2, previous=epoch) > epoch


def test_registration_asked_for_twice_by_one_process_keeps_epoch_and_state(driver: Any) -> None:
    driver.up(1)
    epoch, offset = driver.image.brokers[1].broker_epoch, driver.image.offset
    assert driver.register(1) == epoch
    assert not driver.image.brokers[1].fenced
    assert driver.image.offset == offset


def test_registration_of_a_new_incarnation_leaves_the_isr_and_the_leadership(driver: Any) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2, 3]])
    driver.now_ms = 9_000
    driver.heartbeat(2)
    driver.heartbeat(3)
    driver.register(1, incarnation=2)
    assert driver.state() == (2, (2, 3))
    assert (driver.partition().leader_epoch, driver.partition().partition_epoch) == (1, 1)


def test_registration_of_a_new_incarnation_stays_in_the_isr_as_its_last_member(driver: Any) -> None:
    driver.up(1)
    driver.create(assignments=[[1]])
    driver.now_ms = 9_000
    driver.register(1, incarnation=2)
    assert driver.state() == (-1, (1,))
    driver.heartbeat(1)
    assert driver.state() == (1, (1,))
    assert driver.partition().leader_epoch == 2


def test_heartbeat_leaves_a_broker_fenced_until_it_has_its_own_registration(driver: Any) -> None:
    epoch = driver.register(1)
    behind = driver.heartbeat(1, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = driver.heartbeat(1, offset=epoch)
    assert (there.is_caught_up, there.is_fenced) == (True, False)


def test_heartbeat_leaves_a_broker_fenced_that_wants_to_be(driver: Any) -> None:
    driver.register(1)
    assert driver.heartbeat(1, want_fence=True).is_fenced


def test_heartbeat_fences_a_broker_that_wants_to_be(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    assert driver.heartbeat(1, want_fence=True).is_fenced
    assert driver.state() == (2, (2,))


def test_heartbeat_of_an_unfenced_broker_writes_nothing(driver: Any) -> None:
    driver.up(1)
    offset = driver.image.offset
    driver.heartbeat(1)
    assert driver.image.offset == offset


def test_heartbeat_says_how_long_a_session_is_and_what_came_before_it(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.now_ms += 9_000
    driver.heartbeat(2)
    driver.expire()
    fenced_at = driver.image.offset
    assert driver.image.brokers[1].fenced
    answer = driver.heartbeat(1)
    assert (answer.is_fenced, answer.session_timeout_ms, answer.metadata_offset) == (False, 9_000, fenced_at)


@pytest.mark.parametrize("epoch", [1, 99])
def test_heartbeat_is_refused_with_another_broker_epoch(driver: Any, epoch: int) -> None:
    driver.up(1)
    assert error_of(driver.heartbeat, 1, epoch=epoch) is ErrorCode.STALE_BROKER_EPOCH


def test_heartbeat_is_refused_from_an_unknown_broker(driver: Any) -> None:
    assert error_of(driver.heartbeat, 7, epoch=1) is ErrorCode.STALE_BROKER_EPOCH


def test_expiry_fences_and_elects_in_the_order_of_the_replicas(driver: Any) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 3, 2]])
    driver.now_ms = 9_000
    driver.heartbeat(2)
    driver.heartbeat(3)
    assert driver.expire() == {1}
    assert driver.image.brokers[1].fenced
    assert driver.state() == (3, (3, 2))


def test_expiry_of_a_follower_shrinks_the_isr_without_a_new_leader_epoch(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.now_ms = 9_000
    driver.heartbeat(1)
    driver.expire()
    partition = driver.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_expiry_of_all_at_once_keeps_the_leader_as_the_last_isr_member(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[2, 1]])
    driver.now_ms = 9_000
    assert driver.expire() == {1, 2}
    assert driver.state() == (-1, (2,))


def test_expiry_never_elects_outside_of_the_isr(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.alter(1, [1])
    driver.now_ms = 9_000
    driver.heartbeat(2)
    driver.expire()
    assert driver.state() == (-1, (1,))
    driver.heartbeat(2)
    assert driver.state() == (-1, (1,))
    driver.heartbeat(1)
    assert driver.state() == (1, (1,))


def test_expiry_waits_a_full_session_after_a_change_of_controller(driver: Any) -> None:
    driver.up(1)
    driver.now_ms = 20_000
    driver.lead()
    driver.now_ms = 28_999
    assert driver.expire() == frozenset()
    driver.now_ms = 29_000
    assert driver.expire() == {1}


def test_expiry_waits_a_full_session_after_this_process_was_paused(driver: Any) -> None:
    driver.up(1)
    driver.now_ms = 20_000
    driver.controller.sessions.prolong(driver.now_ms)
    assert driver.expire() == frozenset()


def test_shutdown_moves_the_leadership_first_and_waits_for_the_others(driver: Any) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2, 3]])
    before = driver.image.offset
    answer = driver.heartbeat(1, want_shut_down=True)
    assert not answer.should_shut_down
    assert driver.image.brokers[1].in_controlled_shutdown
    assert driver.state() == (2, (2, 3))
    driver.heartbeat(2, offset=before)
    driver.heartbeat(3)
    assert not driver.heartbeat(1, want_shut_down=True).should_shut_down
    driver.heartbeat(2)
    answer = driver.heartbeat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert driver.image.brokers[1].fenced


def test_shutdown_waits_for_a_replica_that_catches_up_if_it_may(driver: Any) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2, 3]])
    driver.set_config("", "min.insync.replicas", "2")
    driver.alter(1, [1, 2])
    answer = driver.heartbeat(1, want_shut_down=True, shutdown_may_wait=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert driver.state() == (1, (1, 2))
    assert not driver.image.brokers[1].in_controlled_shutdown
    driver.alter(1, [1, 2, 3])
    driver.heartbeat(1, want_shut_down=True, shutdown_may_wait=True)
    assert driver.state() == (2, (2, 3))


def test_shutdown_does_not_wait_when_it_may_not_or_nobody_catches_up(driver: Any) -> None:
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2, 3]])
    driver.set_config("", "min.insync.replicas", "2")
    driver.alter(1, [1, 2])
    driver.heartbeat(3, want_shut_down=True, shutdown_may_wait=True)
    driver.heartbeat(2, want_shut_down=True, shutdown_may_wait=True)
    # The only other replicas are stopping, as when a whole cluster stops.
    assert not driver.image.brokers[2].is_active
    driver.heartbeat(1, want_shut_down=True, shutdown_may_wait=True)
    assert not driver.image.brokers[1].is_active


def test_shutdown_goes_on_after_a_change_of_controller(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.heartbeat(1, want_shut_down=True)
    driver.lead()
    assert not driver.heartbeat(1, want_shut_down=True).should_shut_down
    driver.heartbeat(2)
    assert driver.heartbeat(1, want_shut_down=True).should_shut_down


def test_shutdown_is_granted_at_once_to_a_broker_that_leads_nothing(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[2, 1]])
    assert driver.heartbeat(1, want_shut_down=True).should_shut_down
    assert driver.state() == (2, (2,))


def test_shutdown_is_granted_at_once_to_a_fenced_broker(driver: Any) -> None:
    driver.register(1)
    offset = driver.image.offset
    assert driver.heartbeat(1, want_shut_down=True).should_shut_down
    assert driver.image.offset == offset


def test_shutdown_lets_the_next_process_register_at_once(driver: Any) -> None:
    driver.up(1)
    driver.heartbeat(1, want_shut_down=True)
    driver.up(1, incarnation=2)


def test_shutdown_begun_lets_the_next_process_register_at_once(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    assert not driver.heartbeat(1, want_shut_down=True).should_shut_down
    driver.up(1, incarnation=2)


def test_shutdown_is_not_taken_back_but_by_a_new_registration(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.heartbeat(1, want_shut_down=True)
    driver.heartbeat(2)
    driver.heartbeat(1, want_shut_down=True)
    assert driver.heartbeat(1).is_fenced


def feature(name: str, low: int, high: int) -> FeatureRange:
    return FeatureRange(name=name, min_level=low, max_level=high)


@pytest.mark.parametrize(
    "features",
    [
        [],
        [feature("metadata.version", 1, 1)],
        [feature("metadata.version", 1, 1), feature("x.version", 0, 1)],
        [feature("metadata.version", 1, 1), feature("x.version", 3, 4)],
    ],
)
def test_registration_is_refused_when_it_cannot_do_the_cluster_s_level(driver: Any, features: list[Any]) -> None:
    driver.set_levels({"metadata.version": 1, "x.version": 2})
    assert error_of(driver.register, 1, features=features) is ErrorCode.UNSUPPORTED_VERSION


def test_registration_keeps_the_ranges_of_features_and_may_know_more(driver: Any) -> None:
    driver.set_levels({"x.version": 2})
    driver.register(1, features=[feature("x.version", 1, 3), feature("new.version", 0, 1)])
    assert driver.image.brokers[1].features == (FeatureRange("x.version", 1, 3), FeatureRange("new.version", 0, 1))


def test_registration_is_refused_with_a_range_that_cannot_be(driver: Any) -> None:
    for features in ([feature("x.version", 2, 1)], [feature("x.version", 1, 1), feature("x.version", 1, 2)]):
        assert error_of(driver.register, 1, features=features) is ErrorCode.INVALID_REQUEST


def test_registration_is_refused_while_a_fenced_process_still_sends_heartbeats(driver: Any) -> None:
    driver.up(1)
    driver.heartbeat(1, want_fence=True)
    assert error_of(driver.register, 1, 2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_heartbeat_waits_for_the_entry_of_the_registration_where_that_came_later(driver: Any) -> None:
    controller = driver.controller
    request = RegisterBrokerRequest(
        broker_id=1, cluster_id="c1", incarnation_id=bytes(16), endpoint=Endpoint(host="h", port=1)
    )
    result = controller.handle(request, 0)
    # The engine wrote two entries of its own in between.
    controller.append(controller.next_offset + 2, 1, result.records)
    epoch = result.response.broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
    assert controller.handle(beat, 0).response.is_fenced
    beat = dataclasses.replace(beat, current_metadata_offset=epoch + 2)
    assert not controller.handle(beat, 0).response.is_fenced


def test_heartbeat_of_a_fenced_broker_must_reach_what_earlier_controllers_wrote(driver: Any) -> None:
    driver.register(1)
    epoch = driver.image.brokers[1].broker_epoch
    driver.lead()
    assert driver.heartbeat(1, offset=epoch).is_fenced
    assert not driver.heartbeat(1).is_fenced


def test_unregistering_leaves_the_replicas_without_leadership_and_isr(driver: Any) -> None:
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    driver.unregister(1)
    assert 1 not in driver.image.brokers
    assert driver.state() == (2, (2,))
    assert driver.partition().replicas == (1, 2)


def test_unregistering_is_refused_for_an_unknown_broker(driver: Any) -> None:
    assert error_of(driver.unregister, 7) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_unregistered_broker_that_lives_is_told_and_registers_again(driver: Any) -> None:
    driver.up(1)
    epoch = driver.image.brokers[1].broker_epoch
    driver.unregister(1)
    assert error_of(driver.heartbeat, 1, epoch=epoch) is ErrorCode.STALE_BROKER_EPOCH
    driver.up(1)
    assert driver.image.brokers[1].broker_epoch > epoch


@pytest.mark.parametrize(
    "fields",
    [
        {"rack": "r" * 256},
        {"host": "h" * 256},
        {"log_dirs": [i.to_bytes(16, "big") for i in range(1_001)]},
        {"features": [feature(f"f{i}", 0, 1) for i in range(101)]},
    ],
)
def test_registration_is_refused_that_would_swell_the_metadata(driver: Any, fields: dict[str, Any]) -> None:
    assert error_of(driver.register, 1, **fields) is ErrorCode.INVALID_REQUEST
    assert not driver.image.brokers


def test_shutdown_waits_for_the_entry_that_moved_the_leaderships_wherever_it_is_in_the_log(driver: Any) -> None:
    """The Raft engine may write entries of its own between the controller's."""
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=driver.image.brokers[1].broker_epoch,
        current_metadata_offset=driver.image.offset,
        want_shut_down=True,
    )
    before = driver.image.offset
    result = driver.controller.handle(request, driver.now_ms)
    driver.controller.append(before + 5, driver.epoch, result.records)
    driver.controller.replay(before + 5, driver.epoch, result.records)
    driver.heartbeat(2, offset=before + 4)
    assert not driver.heartbeat(1, want_shut_down=True).should_shut_down
    driver.heartbeat(2, offset=before + 5)
    assert driver.heartbeat(1, want_shut_down=True).should_shut_down


def test_progress_of_brokers_is_what_their_last_heartbeats_said(driver: Any) -> None:
    driver.up(1)
    driver.register(2)
    epoch = driver.image.brokers[1].broker_epoch
    assert driver.controller.sessions.progress(driver.now_ms + 40) == [BrokerProgress(1, epoch, 40)]
    driver.heartbeat(1, offset=driver.image.offset)
    assert driver.controller.sessions.progress(driver.now_ms) == [BrokerProgress(1, driver.image.offset, 0)]
    driver.lead()
    assert driver.controller.sessions.progress(driver.now_ms) == []
