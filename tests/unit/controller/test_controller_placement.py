"""The placement of replicas: spread over racks, even over brokers, on fenced ones last (StripedReplicaPlacer)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.topics import CreateTopicsRequest
from tidelog_quorum.controller.placement import ClusterLoad, place_replicas
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)


def cluster(racks: list[str], fenced: tuple[int, ...] = ()) -> MetadataImage:
    records = [
        RegisterBrokerRecord(i, bytes(16), 1, Endpoint("h", 1), rack=rack, fenced=i in fenced)  # type: ignore[arg-type]
        for i, rack in enumerate(racks)
    ]
    return MetadataImage().apply(1, 1, records)


def spread(counts: Counter[int], brokers: int) -> int:
    values = [counts[b] for b in range(brokers)]
    return max(values) - min(values)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 12), st.integers(1, 60), st.data())
def test_placement_is_even_without_racks(brokers: int, partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place_replicas(cluster([""] * brokers), partitions, factor)
    assert all(len(set(p)) == factor for p in placed)
    assert spread(Counter(b for p in placed for b in p), brokers) <= 1
    assert spread(Counter(p[0] for p in placed), brokers) <= 1


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 40), st.data())
def test_placement_uses_every_rack_and_is_even_with_racks_of_one_size(
    racks: int, size: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, racks * size))
    names = data.draw(st.permutations([f"r{i % racks}" for i in range(racks * size)]))
    placed = place_replicas(cluster(list(names)), partitions, factor)
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = Counter(names[b] for b in replicas)
        assert max(used.values()) - min(used.get(f"r{i}", 0) for i in range(racks)) <= 1
    assert spread(Counter(b for p in placed for b in p), racks * size) <= 1
    assert spread(Counter(p[0] for p in placed), racks * size) <= 1


def test_placement_is_even_where_the_fullest_broker_shares_nothing_with_the_emptiest() -> None:
    racks = [f"r{i % 4}" for i in range(8)]
    placed = place_replicas(cluster(racks), 17, 2)
    assert spread(Counter(p[0] for p in placed), 8) == 1


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 30), st.integers(1, 30), st.data())
def test_partitions_added_later_keep_a_topic_even(
    racks: int, size: int, before: int, added: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, racks * size))
    image = cluster([f"r{i % racks}" for i in range(racks * size)])
    existing = place_replicas(image, before, factor)
    placed = [*existing, *place_replicas(image, added, factor, existing)]
    assert spread(Counter(b for p in placed for b in p), racks * size) <= 1
    # The leaders that are there stay: evening them out would move replicas that have data.
    assert spread(Counter(p[0] for p in placed), racks * size) <= 2


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9), st.integers(1, 20), st.data())
def test_placement_keeps_its_rules_with_racks_of_any_size(
    racks: list[str], partitions: int, data: st.DataObject
) -> None:
    fenced = data.draw(st.sets(st.integers(0, len(racks) - 1), max_size=len(racks) - 1))
    factor = data.draw(st.integers(1, len(racks)))
    image = cluster(racks, tuple(fenced))
    placed = place_replicas(image, partitions, factor)
    assert placed == place_replicas(image, partitions, factor), "not deterministic"
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] not in fenced
        used = Counter(racks[b] for b in replicas)
        for rack, count in Counter(racks).items():
            fuller = max(used.values())
            assert used[rack] == count or used[rack] >= fuller - 1, f"{replicas} could use {rack} more"
            taken = [b for b in replicas if racks[b] == rack]
            if any(b in fenced for b in taken):
                free = {b for b, r in enumerate(racks) if r == rack and b not in fenced} - set(taken)
                assert not free, f"{replicas} has a fenced broker though {free} are not"


def test_placement_uses_fenced_brokers_only_when_it_must() -> None:
    image = cluster([""] * 3, fenced=(1,))
    assert {frozenset(p) for p in place_replicas(image, 5, 2)} == {frozenset({0, 2})}
    assert {p[-1] for p in place_replicas(image, 5, 3)} == {1}


def test_placement_leaves_out_a_broker_that_shuts_down() -> None:
    brokers = [
        RegisterBrokerRecord(i, bytes(16), 1, Endpoint("h", 1), fenced=False, in_controlled_shutdown=i == 1)  # type: ignore[arg-type]
        for i in range(3)
    ]
    image = MetadataImage().apply(1, 1, brokers)
    assert {frozenset(p) for p in place_replicas(image, 5, 2)} == {frozenset({0, 2})}
    with pytest.raises(TidelogError, match=r"only 2 broker\(s\) are registered") as caught:
        place_replicas(image, 1, 3)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def cordoned(image: MetadataImage, *brokers: int) -> MetadataImage:
    records = [ConfigRecord(ConfigResourceType.BROKER, str(b), "cordoned.log.dirs", "*") for b in brokers]
    return image.apply(image.offset + 1, 1, records)


def test_placement_leaves_out_a_cordoned_broker_until_the_cordon_is_lifted() -> None:
    image = cordoned(cluster([""] * 3), 1)
    assert {frozenset(p) for p in place_replicas(image, 5, 2)} == {frozenset({0, 2})}
    with pytest.raises(TidelogError, match=r"only 2 broker\(s\) are registered and not cordoned \(1\)") as caught:
        place_replicas(image, 1, 3)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    lifted = image.apply(3, 1, [ConfigRecord(ConfigResourceType.BROKER, "1", "cordoned.log.dirs", None)])
    assert {b for p in place_replicas(lifted, 5, 2) for b in p} == {0, 1, 2}


def test_placement_is_refused_if_only_fenced_brokers_are_not_cordoned() -> None:
    image = cordoned(cluster([""] * 3, fenced=(0,)), 1, 2)
    with pytest.raises(TidelogError, match="All brokers are currently fenced or cordoned") as caught:
        place_replicas(image, 1, 1)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(2, 9), st.integers(1, 30), st.data())
def test_placement_without_cordoned_brokers_is_even(brokers: int, partitions: int, data: st.DataObject) -> None:
    left_out = data.draw(st.sets(st.integers(0, brokers - 1), max_size=brokers - 1))
    open_to = sorted(set(range(brokers)) - left_out)
    factor = data.draw(st.integers(1, len(open_to)))
    placed = place_replicas(cordoned(cluster([""] * brokers), *left_out), partitions, factor)
    counts = Counter(b for p in placed for b in p)
    assert not left_out & counts.keys()
    assert max(counts[b] for b in open_to) - min(counts[b] for b in open_to) <= 1


def test_placement_with_racks_of_two_sizes_is_in_proportion() -> None:
    placed = place_replicas(cluster(["a", "a", "a", "b"]), 8, 1)
    assert Counter(p[0] for p in placed) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_load_follows_the_image_and_counts_no_topic_twice() -> None:
    load = ClusterLoad()
    image = cluster([""] * 3)
    load.follow(image)
    ids = [bytes([i]) * 16 for i in range(3)]
    for offset, topic_id in enumerate(ids, 2):
        records = [TopicRecord(f"t{offset}", topic_id), PartitionRecord(topic_id, 0, (0, 1), (0, 1), 0)]  # type: ignore[arg-type]
        image = image.apply(offset, 1, records)  # type: ignore[arg-type]
        load.follow(image)
    assert (load.replicas, load.leaders) == ({0: 3, 1: 3}, {0: 3})
    image = image.apply(9, 1, [RemoveTopicRecord(ids[1])])  # type: ignore[arg-type]
    load.follow(image)
    load.follow(image)
    assert (load.replicas[0], load.replicas[1], load.leaders[0]) == (2, 2, 2)  # type: ignore[index]


def test_placement_spreads_the_small_topics_of_one_request(driver: Any) -> None:
    driver.up(1, 2, 3)
    topics = [driver.creatable(f"t{i}", partitions=2, factor=1) for i in range(9)]
    driver.do(driver.controller.handle, CreateTopicsRequest(topics=tuple(topics)))
    assert Counter(p.leader for _, _, p in driver.image.partitions()) == {1: 6, 2: 6, 3: 6}


def test_placement_spreads_small_topics_over_all_brokers(driver: Any) -> None:
    driver.up(1, 2, 3)
    for i in range(9):
        driver.create(f"t{i}", factor=1)
    assert Counter(p.leader for _, _, p in driver.image.partitions()) == {1: 3, 2: 3, 3: 3}
