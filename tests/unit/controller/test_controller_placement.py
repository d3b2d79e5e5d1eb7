"""The placement of replicas: spread over racks, even over brokers, on fenced ones last (StripedReplicaPlacer)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.topics import CreateTopicsRequest
from tidelog_quorum.controller.placement import ClusterLoad, place_replicas
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord


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
