"""Eligible leader replicas (KIP-966) as brokers come, go and crash; min.insync.replicas is 2 unless said otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.v1.metadata_record_pb2 import CONFIG_RESOURCE_TYPE_BROKER
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY
from tidelog_foundation.requests.configs import (
    ConfigOperation,
    ConfigOperationType,
    ConfigResourceChange,
    ConfigResourceName,
    ConfigResourceType,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.features import FeatureUpdate, FeatureUpgradeType, UpdateFeaturesRequest
from tidelog_quorum.controller import configs
from tidelog_quorum.controller.elections import changes_by_rules
from tidelog_quorum.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from tidelog_quorum.metadata.records import ConfigRecord

GOOD, BAD = b"g" * 16, b"b" * 16


@pytest.fixture
def elr(new_driver: Callable[..., Any]) -> Any:
    """Topic t, partition 0: replicas 1, 2, 3, led by 1, all in sync."""
    driver = new_driver(min_isr=2)
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2, 3]])
    return driver


def fence(driver: Any, *broker_ids: int) -> None:
    """End the sessions of brokers, which need not have stopped."""
    for broker_id in broker_ids:
        driver.heartbeat(broker_id, want_fence=True, want_shut_down=True)


def test_elr_is_empty_while_the_isr_is_large_enough(elr: Any) -> None:
    fence(elr, 3)
    assert elr.elr_state() == (1, (1, 2), (), ())


def test_elr_gets_who_leaves_an_isr_that_is_too_small_then(elr: Any) -> None:
    fence(elr, 3, 2)
    assert elr.elr_state() == (1, (1,), (2,), ())


def test_elr_keeps_who_is_taken_out_by_the_leader(elr: Any) -> None:
    elr.alter(1, [1])
    assert elr.elr_state() == (1, (1,), (2, 3), ())
    elr.alter(1, [1, 3])
    assert elr.elr_state() == (1, (1, 3), (), ())


def test_elr_holds_all_when_the_isr_is_empty(elr: Any) -> None:
    fence(elr, 3, 2, 1)
    assert elr.elr_state() == (-1, (), (1, 2), (1,))


def test_elr_member_leads_when_it_is_back_and_a_stranger_to_it_does_not(elr: Any) -> None:
    fence(elr, 3, 2, 1)
    elr.heartbeat(3)
    assert elr.elr_state() == (-1, (), (1, 2), (1,))
    elr.heartbeat(2)
    assert elr.elr_state() == (2, (2,), (1,), ())
    assert elr.partition().leader_epoch == 2


def test_elr_survives_a_clean_restart(elr: Any) -> None:
    fence(elr, 3, 2, 1)
    elr.restart(2)
    assert elr.elr_state() == (-1, (), (1, 2), (1,))
    elr.heartbeat(2)
    assert elr.state() == (2, (2,))


@pytest.mark.parametrize(("keeps_logs", "eligible"), [(True, (1,)), (False, ())], ids=["full-disk", "new-log"])
def test_elr_keeps_who_was_lost_only_where_it_has_kept_its_log(
    elr: Any, keeps_logs: bool, eligible: tuple[int, ...]
) -> None:
    elr.alter(1, [1, 2])
    elr.assign(1, LOST_DIRECTORY)
    assert elr.elr_state() == (2, (2,), (1,), ())
    elr.assign(1, GOOD, keeps_logs=keeps_logs)
    assert elr.elr_state() == (2, (2,), eligible, ())


def test_elr_member_on_a_full_disk_leads_when_it_has_room_and_the_last_of_the_isr_has_crashed(elr: Any) -> None:
    elr.alter(1, [1, 2])
    elr.assign(1, LOST_DIRECTORY)
    fence(elr, 2)
    elr.restart(2, clean=False)
    elr.heartbeat(2)
    assert elr.elr_state() == (-1, (), (1,), (2,)), "what 2 has after its crash is not all that is committed"
    elr.assign(1, GOOD, keeps_logs=True)
    assert elr.elr_state() == (1, (1,), (), ())


def test_elr_loses_who_was_not_shut_down_cleanly(elr: Any) -> None:
    fence(elr, 3, 2, 1)
    elr.restart(2, clean=False)
    assert elr.elr_state() == (-1, (), (1,), (1,))
    elr.heartbeat(2)
    assert elr.state() == (-1, ())
    elr.restart(1)
    elr.heartbeat(1)
    assert elr.state() == (1, (1,))


def test_elr_does_not_get_an_isr_member_that_was_not_shut_down_cleanly(elr: Any) -> None:
    fence(elr, 3)
    elr.now_ms += 9_000
    elr.heartbeat(1)
    # Nobody has noticed yet that the session of broker 2 is over.
    elr.restart(2, clean=False)
    assert elr.elr_state() == (1, (1,), (), ())


def test_elr_does_not_trust_the_epoch_of_an_earlier_clean_stop(elr: Any) -> None:
    fence(elr, 3, 2)
    before = elr.image.brokers[2].broker_epoch
    elr.restart(2)
    fence(elr, 2)
    elr.register(2, 3, previous=before)
    assert elr.elr_state() == (1, (1,), (), ())


def test_last_known_leader_leads_when_nobody_is_eligible_and_no_other(elr: Any) -> None:
    fence(elr, 3, 2, 1)
    elr.restart(2, clean=False)
    elr.restart(1, clean=False)
    assert elr.elr_state() == (-1, (), (), (1,))
    elr.heartbeat(2)
    elr.heartbeat(3)
    assert elr.state() == (-1, ())
    elr.heartbeat(1)
    assert elr.elr_state() == (1, (1,), (), ())


def test_elr_of_all_at_once_is_the_whole_isr(elr: Any) -> None:
    elr.now_ms += 9_000
    elr.expire()
    assert elr.elr_state() == (-1, (), (1, 2, 3), (1,))


def test_elr_is_not_used_without_the_feature(driver: Any) -> None:
    driver.up(1, 2)
    driver.set_config("", "min.insync.replicas", "2")
    driver.create(assignments=[[1, 2]])
    fence(driver, 2, 1)
    assert driver.elr_state() == (-1, (1,), (), ())
    driver.restart(1, clean=False)
    assert driver.elr_state() == (-1, (1,), (), ())


def test_unregistering_ends_eligibility(elr: Any) -> None:
    fence(elr, 3, 2, 1)
    elr.unregister(2)
    assert elr.elr_state() == (-1, (), (1,), (1,))
    assert elr.partition().replicas == (1, 2, 3)
    elr.up(2, incarnation=2)
    assert elr.state() == (-1, ())


def test_elr_loses_a_replica_that_begins_anew_in_another_directory(new_driver: Callable[..., Any]) -> None:
    elr = new_driver(min_isr=2)
    elr.up(1, 2, log_dirs=[GOOD, BAD])
    elr.create(assignments=[[1, 2]])
    assert elr.assign(2, BAD) is None
    elr.heartbeat(2, offline_log_dirs=[BAD])
    assert elr.elr_state() == (1, (1,), (2,), ())
    assert elr.assign(2, GOOD) is None
    assert elr.elr_state() == (1, (1,), (), ())


def test_elr_keeps_a_replica_that_was_moved_between_directories(new_driver: Callable[..., Any]) -> None:
    elr = new_driver(min_isr=2)
    elr.up(1, 2, log_dirs=[GOOD, BAD])
    elr.create(assignments=[[1, 2]])
    elr.assign(2, BAD)
    elr.alter(1, [1])
    assert elr.assign(2, GOOD) is None
    assert elr.elr_state() == (1, (1,), (2,), ())


def test_elr_member_whose_directory_failed_does_not_lead(new_driver: Callable[..., Any]) -> None:
    elr = new_driver(min_isr=2)
    elr.up(1, 2, log_dirs=[GOOD, BAD])
    elr.create(assignments=[[1, 2]])
    elr.assign(2, BAD)
    elr.heartbeat(2, offline_log_dirs=[BAD])
    fence(elr, 1)
    assert elr.elr_state() == (-1, (), (1, 2), (1,))


@pytest.mark.parametrize(("value", "elr_after"), [("1", ()), ("2", (2, 3)), ("3", (2, 3))])
def test_elr_ends_in_the_entry_that_lowers_the_minimum(elr: Any, value: str, elr_after: tuple[int, ...]) -> None:
    elr.alter(1, [1])
    change = ConfigRecord(ConfigResourceType.TOPIC, "t", "min.insync.replicas", value)
    after = elr.image.apply(elr.image.offset + 1, 1, [change])
    elr.put(change, *changes_by_rules(after, TopicConfig(), ["t"]))
    assert elr.partition().eligible_leader_replicas == elr_after


def set_minimum(value: str) -> IncrementalAlterConfigsRequest:
    resource = ConfigResourceName(type=CONFIG_RESOURCE_TYPE_BROKER, name="")
    operation = ConfigOperation(name="min.insync.replicas", type=ConfigOperationType.SET, value=value)
    change = ConfigResourceChange(resource=resource, operations=(operation,))
    return IncrementalAlterConfigsRequest(resources=(change,))


@pytest.fixture
def shrunk(new_driver: Callable[..., Any]) -> Any:
    """Topic t: three partitions with an ELR, and one without."""
    driver = new_driver(min_isr=2)
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2, 3]] * 4)
    for index in range(3):
        driver.alter(1, [1], index=index)
    return driver


def written(driver: Any, since: int) -> list[list[str]]:
    return [[type(r).__name__ for r in records] for _, _, records in driver.log[since:]]


def test_lowering_the_minimum_is_one_entry_with_the_elrs_that_end(shrunk: Any) -> None:
    before = len(shrunk.log)
    shrunk.do(shrunk.controller.handle, set_minimum("1"))
    assert written(shrunk, before) == [["ConfigRecord", *["PartitionChangeRecord"] * 3]]


def test_raising_the_minimum_writes_no_partition(shrunk: Any) -> None:
    before = len(shrunk.log)
    shrunk.do(shrunk.controller.handle, set_minimum("3"))
    assert written(shrunk, before) == [["ConfigRecord"]]


def test_elrs_that_are_too_many_for_an_entry_end_before_the_minimum_is_lowered(
    shrunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "MAX_CHANGES", 2)
    before = len(shrunk.log)
    shrunk.write(shrunk.controller.handle, set_minimum("1"))
    assert written(shrunk, before) == [["PartitionChangeRecord"] * 3, ["ConfigRecord"]]
    shrunk.commit(1)
    shrunk.lead()
    assert shrunk.elr_state() == (1, (1,), (), ()), "the leadership ended in between"
    shrunk.alter(1, [1, 2])
    shrunk.alter(1, [1])
    assert shrunk.elr_state() == (1, (1,), (2,), ()), "the minimum is 2 still"


@pytest.mark.parametrize("max_changes", [1, 100])
def test_elrs_end_with_the_feature_however_many_there_are(
    shrunk: Any, monkeypatch: pytest.MonkeyPatch, max_changes: int
) -> None:
    monkeypatch.setattr(configs, "MAX_CHANGES", max_changes)
    update = FeatureUpdate(
        name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=0, upgrade_type=FeatureUpgradeType.SAFE_DOWNGRADE
    )
    shrunk.do(shrunk.controller.handle, UpdateFeaturesRequest(updates=(update,)))
    assert [shrunk.elr_state(index=i) for i in range(4)] == [(1, (1,), (), ())] * 3 + [(1, (1, 2, 3), (), ())]


def test_change_of_rules_is_refused_that_changes_too_many_partitions_nobody_leads(
    shrunk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "MAX_CHANGES", 1)
    monkeypatch.setattr(configs, "MAX_PARTITIONS_IN_ENTRY", 3)
    fence(shrunk, 3, 2, 1)
    update = FeatureUpdate(
        name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=0, upgrade_type=FeatureUpgradeType.UNSAFE_DOWNGRADE
    )
    request = UpdateFeaturesRequest(updates=(update,))
    with pytest.raises(TidelogError, match="4 partitions that nobody leads would") as refusal:
        shrunk.do(shrunk.controller.handle, request)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    shrunk.heartbeat(1)
    shrunk.do(shrunk.controller.handle, request)
    assert shrunk.elr_state() == (1, (1,), (), ())


def test_unclean_election_is_last_and_only_where_it_is_allowed(elr: Any) -> None:
    fence(elr, 3, 2, 1)
    elr.heartbeat(3)
    elr.set_config("t", "unclean.leader.election.enable", "true")
    elr.tick()
    assert elr.elr_state() == (3, (3,), (), ())


def test_unclean_election_prefers_who_is_eligible(elr: Any) -> None:
    elr.set_config("t", "unclean.leader.election.enable", "true")
    fence(elr, 3, 2, 1)
    # Broker 1 was the last one, so it is fenced with nobody left; 2 is eligible, 3 is not.
    elr.heartbeat(2)
    assert elr.elr_state() == (2, (2,), (1,), ())
