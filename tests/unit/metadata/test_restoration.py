"""The image of a new quorum: nothing lost returns as something new, and the longest log leads."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import NO_BROKER, BrokerEpoch, BrokerId, TopicId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_quorum.metadata.batches import encode_batches, image_from_batches
from tidelog_quorum.metadata.generation import (
    EPOCHS_PER_GENERATION,
    MAX_EPOCH,
    first_epoch_after,
    generation_of,
)
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tidelog_quorum.metadata.replica_inventory import (
    LogEnd,
    ReplicaInventory,
    StoredReplica,
    inventory_document,
    parse_inventory,
)
from tidelog_quorum.metadata.restoration import listed, restored

TOPIC = TopicId(b"t" * 16)
LATER = TopicId(b"u" * 16)
IDS = [BrokerId(i) for i in (1, 2, 3)]


def broker(number: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        BrokerId(number), b"i" * 16, BrokerEpoch(number), Endpoint("h", 9000 + number), fenced=False
    )


def image(*partitions: PartitionRecord, extra: tuple[MetadataRecord, ...] = ()) -> MetadataImage:
    records = [broker(i) for i in (1, 2, 3)]
    return MetadataImage().apply(100, 7, [*records, TopicRecord("t", TOPIC), *partitions, *extra])


def partition(index: int = 0, isr: tuple[int, ...] = (1, 2, 3), leader_epoch: int = 4) -> PartitionRecord:
    record = PartitionRecord(TOPIC, index, tuple(IDS), tuple(map(BrokerId, isr)), BrokerId(isr[0]))
    return dataclasses.replace(record, leader_epoch=leader_epoch, partition_epoch=9)  # type: ignore[arg-type]


def inventory(
    node: int, ends: dict[int, LogEnd], epoch: int | None = None, topic_id: TopicId = TOPIC
) -> ReplicaInventory:
    replicas = tuple(StoredReplica("t", topic_id, index, end) for index, end in ends.items())
    return ReplicaInventory("c", BrokerId(node), None if epoch is None else BrokerEpoch(epoch), replicas)


def test_new_quorum_begins_above_all_that_the_lost_one_gave_out() -> None:
    before = image(partition(), extra=(ProducerIdsRecord(BrokerId(1), BrokerEpoch(1), 5_000),))
    after = restored(before, None).image
    after.check_invariants()
    assert generation_of(after.epoch) == 1 > generation_of(before.epoch)
    assert after.offset > before.offset + 10**9
    assert after.next_producer_id > before.next_producer_id + 10**6
    [(_, _, now)], [(_, _, then)] = after.partitions(), before.partitions()
    assert now.leader_epoch > then.leader_epoch + 10**5
    assert now.partition_epoch > now.leader_epoch
    assert now.leader == NO_BROKER
    assert now.isr == then.isr
    for each in after.brokers.values():
        assert each.fenced
        assert each.incarnation_id != b"i" * 16
    second = restored(after, None).image
    assert generation_of(second.epoch) == 2


def test_longest_log_is_the_isr_whatever_the_recorded_isr_says() -> None:
    # Since the backup, nodes 2 and 3 went on without 1, which has fewer records of a later epoch.
    ends = [{0: LogEnd(4, 900)}, {0: LogEnd(6, 500)}, {0: LogEnd(6, 500)}]
    [(_, _, now)] = restored(image(partition()), [inventory(i, e) for i, e in enumerate(ends, 1)]).image.partitions()
    assert now.isr == (2, 3)
    assert now.leader == NO_BROKER


def test_clean_shutdown_keeps_a_broker_in_the_isr_when_it_returns() -> None:
    inventories = [inventory(i, {0: LogEnd(4, 9)}, epoch=50 + i if i < 3 else None) for i in (1, 2, 3)]
    after = restored(image(partition()), inventories).image
    assert [after.brokers[i].broker_epoch for i in IDS] == [51, 52, 3]


def test_leader_epochs_on_disks_count_too() -> None:
    inventories = [inventory(i, {0: LogEnd(2_500_000, 9)}) for i in (1, 2, 3)]
    [(_, _, now)] = restored(image(partition()), inventories).image.partitions()
    assert now.leader_epoch > 3_000_000


def test_partition_that_moved_since_the_backup_is_found_where_its_logs_are() -> None:
    moved = PartitionRecord(TOPIC, 0, (IDS[0], IDS[1]), (IDS[0],), IDS[0])
    inventories = [inventory(1, {}), inventory(2, {0: LogEnd(4, 7)}), inventory(3, {0: LogEnd(5, 8)})]
    found = restored(image(moved), inventories)
    found.image.check_invariants()
    assert found.moved == ("t-0",)
    [(_, _, now)] = found.image.partitions()
    assert (now.replicas, now.isr) == ((3, 2), (3,))


def test_differences_between_metadata_and_disks_are_reported() -> None:
    later = StoredReplica("later", LATER, 0, LogEnd(0, 5))
    inventories = [inventory(i, {0: LogEnd(4, 7), 8: LogEnd(4, 1)}) for i in (1, 2)]
    inventories.append(dataclasses.replace(inventory(3, {}), replicas=(later,)))
    found = restored(image(partition(0), partition(1)), inventories)
    assert found.empty == ("t-1",)
    assert found.strays == ("later-0", "t-8")
    assert found.moved == ()
    assert listed([str(i) for i in range(12)]).endswith("9 and 2 more")


@pytest.mark.parametrize(
    ("inventories", "absent", "text"),
    [
        ([inventory(1, {}), inventory(2, {})], (), "nodes without an inventory: 3"),
        ([inventory(1, {}), inventory(1, {})], (), "node 1 has 2 inventories"),
        ([inventory(1, {}), inventory(2, {})], (BrokerId(2),), "node 2 has an inventory, but counts as lost"),
    ],
)
def test_incomplete_inventories_are_refused(
    inventories: list[ReplicaInventory], absent: tuple[BrokerId, ...], text: str
) -> None:
    with pytest.raises(TidelogError, match=text):
        restored(image(partition()), inventories, absent)


def test_lost_node_needs_no_inventory() -> None:
    inventories = [inventory(i, {0: LogEnd(4, 7)}) for i in (1, 2)]
    [(_, _, now)] = restored(image(partition()), inventories, [IDS[2]]).image.partitions()
    assert now.isr == (1, 2)


def test_level_of_a_later_version_is_refused() -> None:
    with pytest.raises(TidelogError, match=r"level 99.*start the version that the cluster was upgraded to") as refused:
        restored(image(extra=(FeatureLevelRecord("metadata.version", 99),)), None)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_epochs_that_run_out_are_refused() -> None:
    with pytest.raises(TidelogError, match="leaves no room"):
        first_epoch_after(MAX_EPOCH - EPOCHS_PER_GENERATION)
    with pytest.raises(TidelogError, match="leaves no room"):
        restored(image(dataclasses.replace(partition(), leader_epoch=MAX_EPOCH - 5, partition_epoch=MAX_EPOCH)), None)  # type: ignore[arg-type]


ends = st.builds(LogEnd, st.integers(-1, 5), st.integers(0, 9))


@given(st.dictionaries(st.sampled_from([1, 2, 3]), ends), st.sets(st.sampled_from([1, 2, 3]), min_size=1))
def test_restored_images_are_valid_snapshots_in_which_no_longer_log_is_left_out(
    logs: dict[int, LogEnd], isr: set[int]
) -> None:
    before = image(partition(isr=tuple(sorted(isr))))
    found = restored(before, [inventory(i, {0: logs[i]} if i in logs else {}) for i in (1, 2, 3)])
    after = found.image
    after.check_invariants()
    assert image_from_batches(after.offset, after.epoch, encode_batches(after.iterate_records())) == after
    [(_, _, now)] = after.partitions()
    assert now.isr
    if logs:
        assert {logs[b] for b in now.isr} == {max(logs.values())}
    assert MappingProxyType(dict(before.configs)) == after.configs


def test_inventory_survives_its_json() -> None:
    import json

    written = inventory(3, {0: LogEnd(-1, 0), 4: LogEnd(7, 99)}, epoch=12)
    assert parse_inventory(json.dumps(inventory_document(written)), "f") == written
    for text in ("", "[]", '{"format": 2}', '{"format": 1}'):
        with pytest.raises(TidelogError, match="f is not an inventory"):
            parse_inventory(text, "f")
