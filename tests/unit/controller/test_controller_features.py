"""Features with their levels: a new cluster's, changes, and what changes with eligible leader replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.features import DescribeFeaturesRequest, FeatureUpdate, UpdateFeaturesRequest
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.features import describe_features
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.features import (
    CLUSTER_LINKS_VERSION,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    uses_elr,
)
from tidelog_quorum.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from tidelog_quorum.metadata.topic_config import broker_settings

ELR = ELIGIBLE_LEADER_REPLICAS_VERSION
UPGRADE, SAFE, UNSAFE = 1, 2, 3
KNOWS_ALL = tuple(SUPPORTED_FEATURES.values())


def register(driver: Any, broker_id: int, features: Any = KNOWS_ALL) -> None:
    offset = driver.controller.next_offset
    record = RegisterBrokerRecord(
        broker_id,  # type: ignore[arg-type]
        bytes([broker_id]) * 16,
        offset,
        Endpoint("h", 9092),
        fenced=False,
        features=features,
    )
    write(driver, record)


def write(driver: Any, *records: MetadataRecord) -> None:
    driver.append(Result(records, None))
    driver.commit()


def bootstrap(driver: Any) -> None:
    driver.append(driver.controller.bootstrap())
    driver.commit()


def update(driver: Any, *updates: tuple[str, int, int], validate_only: bool = False) -> None:
    request = UpdateFeaturesRequest(
        updates=tuple(FeatureUpdate(name=n, level=v, upgrade_type=kind) for n, v, kind in updates),  # type: ignore[arg-type]
        validate_only=validate_only,
    )
    driver.do(driver.controller.handle, request)


def refusal(driver: Any, *updates: tuple[str, int, int]) -> tuple[str, str]:
    with pytest.raises(TidelogError) as caught:
        update(driver, *updates)
    return caught.value.code.name, caught.value.message


def test_a_new_cluster_begins_with_the_highest_levels_and_min_insync_replicas_for_all(driver: Any) -> None:
    bootstrap(driver)
    assert driver.image.feature_levels == {METADATA_VERSION: CLUSTER_LINKS_VERSION, ELR: 1, TRANSACTION_VERSION: 2}
    assert broker_settings(driver.image) == {"min.insync.replicas": "1"}
    assert uses_elr(driver.image)
    assert not driver.controller.bootstrap().records, "it has begun"


def test_a_new_cluster_takes_min_insync_replicas_of_the_controllers_file() -> None:
    controller = Controller(ControllerConfig("c1", min_insync_replicas=2), SequentialTopicIds())
    assert ConfigRecord(ConfigResourceType.BROKER, "", "min.insync.replicas", "2") in controller.bootstrap().records


def test_a_cluster_of_a_version_without_features_gets_the_least(driver: Any) -> None:
    driver.up(1)
    bootstrap(driver)
    assert driver.image.feature_levels == {METADATA_VERSION: 1}
    assert not driver.image.configs


def test_describe_features_gives_what_every_process_knows(driver: Any) -> None:
    bootstrap(driver)
    register(driver, 1)
    response = describe_features(driver.image, DescribeFeaturesRequest())
    assert response.finalized_epoch == driver.image.offset
    found = {f.name: (f.min_level, f.max_level, f.finalized_level) for f in response.features}
    assert found == {
        METADATA_VERSION: (1, CLUSTER_LINKS_VERSION, CLUSTER_LINKS_VERSION),
        ELR: (0, 1, 1),
        TRANSACTION_VERSION: (0, 2, 2),
    }
    register(driver, 2, features=(SUPPORTED_FEATURES[METADATA_VERSION],))
    found = {
        f.name: (f.min_level, f.max_level, f.finalized_level)
        for f in describe_features(driver.image, DescribeFeaturesRequest()).features
    }
    assert found[ELR] == (0, 0, 1)


def test_elr_is_turned_on_with_min_insync_replicas_for_all_alone(driver: Any) -> None:
    register(driver, 1)
    write(driver, FeatureLevelRecord(METADATA_VERSION, 1))
    write(driver, ConfigRecord(ConfigResourceType.BROKER, "1", "min.insync.replicas", "2"))
    update(driver, (ELR, 1, UPGRADE), validate_only=True)
    assert not uses_elr(driver.image)
    update(driver, (ELR, 1, UPGRADE))
    assert uses_elr(driver.image)
    assert (broker_settings(driver.image), broker_settings(driver.image, 1)) == ({"min.insync.replicas": "1"}, {})
    entries = len(driver.log)
    update(driver, (ELR, 1, 0))
    assert len(driver.log) == entries, "it has that level"


@pytest.mark.parametrize(
    ("name", "level", "kind", "text"),
    [
        ("kraft.version", 1, UPGRADE, "knows no such feature"),
        (METADATA_VERSION, 6, UPGRADE, "this controller knows 1 to 5"),
        (METADATA_VERSION, 0, UNSAFE, "this controller knows 1 to 5"),
        (ELR, -1, SAFE, "this controller knows 0 to 1"),
        (ELR, 0, UPGRADE, "this is a downgrade and must be requested as one"),
        (ELR, 1, 9, "9 is not a type of change"),
    ],
)
def test_a_level_that_may_not_be_is_refused(driver: Any, name: str, level: int, kind: int, text: str) -> None:
    bootstrap(driver)
    code, message = refusal(driver, (name, level, kind))
    assert (code, text in message) == ("INVALID_UPDATE_VERSION", True), message


def test_transaction_version_goes_up_and_down_one_or_two_levels(driver: Any) -> None:
    register(driver, 1)
    write(driver, FeatureLevelRecord(METADATA_VERSION, 1))
    for level, kind in ((1, UPGRADE), (2, UPGRADE), (0, SAFE), (2, UPGRADE), (1, SAFE), (0, UNSAFE)):
        update(driver, (TRANSACTION_VERSION, level, kind))
        assert driver.image.feature_levels.get(TRANSACTION_VERSION, 0) == level
    assert "this controller knows 0 to 2" in refusal(driver, (TRANSACTION_VERSION, 3, UPGRADE))[1]


def test_an_upgrade_is_not_a_downgrade(driver: Any) -> None:
    write(driver, FeatureLevelRecord(METADATA_VERSION, 1))
    assert "it has 0, so this is not a downgrade" in refusal(driver, (ELR, 1, SAFE))[1]


def test_a_level_that_a_broker_does_not_know_is_refused(driver: Any) -> None:
    register(driver, 7, features=())
    bootstrap(driver)
    assert refusal(driver, (ELR, 1, UPGRADE)) == (
        "INVALID_UPDATE_VERSION",
        f"feature '{ELR}' cannot get level 1: broker 7 knows 0 to 0",
    )


def test_a_request_is_taken_whole_or_not_at_all(driver: Any) -> None:
    bootstrap(driver)
    assert refusal(driver)[0] == "INVALID_REQUEST"
    assert refusal(driver, (ELR, 0, SAFE), (ELR, 0, SAFE))[0] == "INVALID_REQUEST"
    refusal(driver, (ELR, 0, SAFE), (METADATA_VERSION, 6, UPGRADE))
    assert uses_elr(driver.image)


def test_elr_is_turned_off_with_its_replicas_only_while_nothing_depends_on_them(driver: Any) -> None:
    bootstrap(driver)
    register(driver, 1)
    register(driver, 2)
    driver.create("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    topic_id = driver.image.topics["t"].topic_id
    write(driver, PartitionChangeRecord(topic_id, 0, isr=(1,), eligible_leader_replicas=(2,)))
    update(driver, (ELR, 0, SAFE))
    assert not uses_elr(driver.image)
    assert driver.partition().eligible_leader_replicas == ()


def test_elr_is_not_turned_off_safely_while_an_isr_is_empty(driver: Any) -> None:
    bootstrap(driver)
    register(driver, 1)
    register(driver, 2)
    driver.create("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    for broker_id in (1, 2):
        driver.heartbeat(broker_id, want_fence=True)
    assert driver.partition().isr == ()
    code, message = refusal(driver, (ELR, 0, SAFE))
    assert (code, "t-0 has no in-sync replica" in message) == ("FEATURE_UPDATE_FAILED", True)


def test_turning_elr_on_settles_a_partition_whose_last_member_is_away(new_driver: Callable[..., Any]) -> None:
    driver = new_driver()
    driver.set_levels({METADATA_VERSION: 1})
    driver.up(1)
    driver.create("t", assignments=[[1]])
    driver.now_ms = 20_000
    driver.tick()
    assert driver.elr_state() == (-1, (1,), (), ())
    update = FeatureUpdate(name=ELIGIBLE_LEADER_REPLICAS_VERSION, level=1)
    driver.do(driver.controller.handle, UpdateFeaturesRequest(updates=(update,)))
    assert driver.elr_state() == (-1, (), (1,), (1,))
    driver.heartbeat(1)
    assert driver.state() == (1, (1,))
