"""Images as batches of bytes: bounded, cut, framed, the same for equal images, and cheap to keep."""

from __future__ import annotations

import contextlib
import gc
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.lasting_objects import LastingObjects, building_lasting_objects
from tidelog_quorum.metadata.batches import cut_batch, encode_batches, frame_batches, image_from_batches, read_frames
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

some_records = st.lists(st.builds(FeatureLevelRecord, st.text(max_size=300), st.integers(0, 2**31 - 1)), max_size=40)


def records_of(topics: int, partitions: int) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for topic in range(topics):
        topic_id = topic.to_bytes(16, "big")
        records.append(TopicRecord(f"t{topic}", topic_id))  # type: ignore[arg-type]
        for index in range(partitions):
            replicas = tuple((index + k) % 3 + 1 for k in range(3))
            directories = tuple(bytes([r]) * 16 for r in replicas)
            records.append(
                PartitionRecord(topic_id, index, replicas, (*replicas,), replicas[0], directories=directories)  # type: ignore[arg-type]
            )
    return records


@given(some_records, st.integers(1, 2_000))
def test_batches_hold_all_records_in_order_and_keep_to_their_size(
    records: list[MetadataRecord], max_bytes: int
) -> None:
    batches = list(encode_batches(records, max_bytes))
    assert [r for b in batches for r in decode_batch(b)] == records
    assert b"".join(batches) == encode_batch(records)
    assert all(len(b) <= max_bytes or len(decode_batch(b)) == 1 for b in batches)
    assert batches


@given(some_records, st.integers(1, 2_000))
def test_batch_is_cut_as_it_would_have_been_encoded(records: list[MetadataRecord], max_bytes: int) -> None:
    assert list(cut_batch(encode_batch(records), max_bytes)) == list(encode_batches(records, max_bytes))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_batch_are_refused_or_cut_without_loss(garbage: bytes) -> None:
    with contextlib.suppress(TidelogError):
        assert b"".join(cut_batch(garbage, 5)) == garbage


@given(st.lists(st.binary(max_size=50)), st.integers(1, 30))
def test_frames_come_back_however_they_are_cut(batches: list[bytes], chunk: int) -> None:
    payload = b"".join(frame_batches(batches))
    chunks = [payload[i : i + chunk] for i in range(0, len(payload), chunk)]
    assert list(read_frames(chunks)) == batches


def test_payload_that_ends_within_a_frame_is_refused() -> None:
    payload = b"".join(frame_batches([b"abc", b"def"]))
    with pytest.raises(TidelogError) as caught:
        list(read_frames([payload[:-1]]))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_equal_images_have_the_same_bytes() -> None:
    one = MetadataImage().apply(5, 1, records_of(3, 4))
    shuffled = records_of(3, 4)
    groups = [shuffled[i : i + 5] for i in range(0, 15, 5)]
    other = MetadataImage().apply(5, 1, itertools.chain(*reversed(groups)))
    assert one == other
    assert list(encode_batches(one.iterate_records())) == list(encode_batches(other.iterate_records()))
    assert image_from_batches(5, 1, encode_batches(one.iterate_records(), 100)) == one


def test_equal_lists_of_an_image_are_one_object() -> None:
    image = image_from_batches(5, 1, encode_batches(records_of(20, 30)))
    partitions = [p for _, _, p in image.partitions()]
    assert len({id(p.replicas) for p in partitions}) == len({id(p.directories) for p in partitions}) == 3
    assert all(p.isr is p.replicas for p in partitions)


def test_isr_that_is_complete_again_is_the_replicas() -> None:
    image = MetadataImage().apply(1, 1, records_of(1, 1))
    topic_id = image.topics["t0"].topic_id
    image = image.apply(2, 1, [PartitionChangeRecord(topic_id, 0, isr=(1,))])  # type: ignore[arg-type]
    image = image.apply(3, 1, [PartitionChangeRecord(topic_id, 0, isr=(1, 2, 3))])  # type: ignore[arg-type]
    partition = image.partition("t0", 0)
    assert partition is not None
    assert partition.isr is partition.replicas


def test_small_entry_copies_only_the_maps_that_it_touches() -> None:
    image = MetadataImage().apply(1, 1, records_of(50, 20))
    after = image.apply(2, 1, [PartitionChangeRecord(image.topics["t7"].topic_id, 3, leader=2)])  # type: ignore[arg-type]
    changed = [n for n in image.topics if after.topics[n] is not image.topics[n]]
    assert changed == ["t7"]
    before_7, after_7 = image.topics["t7"].partitions, after.topics["t7"].partitions
    assert [i for i in before_7 if after_7[i] is not before_7[i]] == [3]


def test_collector_does_not_look_at_what_lasts() -> None:
    gc.unfreeze()
    try:
        with building_lasting_objects():
            assert not gc.isenabled()
            image = MetadataImage().apply(1, 1, records_of(20, 20))
        assert gc.isenabled()
        assert gc.get_freeze_count() > 400
        frozen = gc.get_freeze_count()
        kept = [[] for _ in range(1_000)]
        LastingObjects().add(10**6)
        assert gc.get_freeze_count() >= frozen + len(kept)
        assert image.topics
    finally:
        gc.unfreeze()
