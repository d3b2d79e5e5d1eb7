"""The image: what records add up to, snapshots, what differs between two images."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.quotas import entity_of
from tidelog_foundation.sasl.scram_credentials import ScramMechanism
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.delta import delta_between
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

TOPIC = b"t" * 16
brokers = st.integers(0, 4)
offsets = st.integers(-1, 2**62)
directory_ids = st.binary(min_size=16, max_size=16)
broker_lists = st.lists(brokers, unique=True, max_size=4).map(tuple)
names = st.sampled_from(["a", "b", "c.d", "ü"])
topic_ids = st.sampled_from([bytes([i]) * 16 for i in range(4)])
indexes = st.integers(0, 3)
mechanisms = st.sampled_from([ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512])
acls = st.builds(
    AclBinding,
    st.sampled_from(ResourceType),
    names,
    st.sampled_from(PatternType),
    names,
    names,
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermissionType),
)
quota_entities = st.dictionaries(names, st.none() | names, min_size=1, max_size=2).map(entity_of)

any_record: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(
        RegisterBrokerRecord,
        brokers,
        st.binary(min_size=16, max_size=16),
        offsets,
        st.builds(Endpoint, st.text(max_size=5), st.integers(0, 65_535)),
        st.text(max_size=3),
        st.lists(directory_ids, max_size=2).map(tuple),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(UnregisterBrokerRecord, brokers, offsets),
    st.builds(
        BrokerRegistrationChangeRecord,
        brokers,
        offsets,
        st.none() | st.booleans(),
        st.none() | st.booleans(),
        st.none() | st.lists(directory_ids, max_size=2).map(tuple),
    ),
    st.builds(TopicRecord, names, topic_ids),
    st.builds(
        PartitionRecord,
        topic_ids,
        indexes,
        broker_lists,
        broker_lists,
        st.integers(-1, 4),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**31 - 1),
        broker_lists,
        broker_lists,
        st.lists(directory_ids, max_size=3).map(tuple),
    ),
    st.builds(
        PartitionChangeRecord,
        topic_ids,
        indexes,
        st.none() | st.integers(-1, 4),
        st.none() | broker_lists,
        st.none() | broker_lists,
        st.none() | broker_lists,
        st.none() | broker_lists,
        st.none() | st.lists(directory_ids, max_size=3).map(tuple),
    ),
    st.builds(RemoveTopicRecord, topic_ids),
    st.builds(ConfigRecord, st.sampled_from(ConfigResourceType), names, names, st.none() | st.text(max_size=3)),
    st.builds(FeatureLevelRecord, names, st.integers(0, 3)),
    st.builds(ProducerIdsRecord, brokers, offsets, st.integers(0, 2**62)),
    st.builds(NoOpRecord),
    st.builds(AccessControlEntryRecord, topic_ids, acls),
    st.builds(RemoveAccessControlEntryRecord, topic_ids),
    st.builds(
        UserScramCredentialRecord, names, mechanisms, st.binary(max_size=2), st.binary(), st.binary(), st.just(4_096)
    ),
    st.builds(RemoveUserScramCredentialRecord, names, mechanisms),
    st.builds(ClientQuotaRecord, quota_entities, names, st.floats(allow_nan=False), st.booleans()),
)
entries = st.lists(st.lists(any_record, max_size=4), max_size=25)


def applied(history: list[list[MetadataRecord]]) -> list[MetadataImage]:
    """The images after each entry; an entry that does not fit is left out, as a controller never writes it."""
    images = [MetadataImage()]
    for offset, records in enumerate(history):
        with contextlib.suppress(TidelogError):
            images.append(images[-1].apply(offset, 1, records))
    return images


@given(st.lists(any_record, max_size=8))
def test_codec_round_trips_for_any_records(records: list[MetadataRecord]) -> None:
    assert decode_batch(encode_batch(records)) == records


def test_codec_refuses_an_unknown_record() -> None:
    unknown = b"\x0a\x04\xfa\x06\x01\x00"
    with pytest.raises(TidelogError, match="unknown kind"):
        decode_batch(unknown)


def test_codec_refuses_a_credential_for_an_unknown_mechanism() -> None:
    record = UserScramCredentialRecord("alice", 9, b"s", b"k", b"k", 4_096)
    with pytest.raises(TidelogError, match="unknown SCRAM mechanism 9"):
        decode_batch(encode_batch([record]))


def test_codec_refuses_bytes_that_are_no_batch() -> None:
    with pytest.raises(TidelogError) as caught:
        decode_batch(b"\xff\xff")
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(entries)
def test_image_round_trips_through_its_records(history: list[list[MetadataRecord]]) -> None:
    image = applied(history)[-1]
    records = decode_batch(encode_batch(image.to_records()))
    assert MetadataImage().apply(image.offset if image.offset >= 0 else 0, image.epoch, records) == (
        image if image.offset >= 0 else MetadataImage(0, -1)
    )


@given(entries)
def test_image_is_never_changed_by_later_entries(history: list[list[MetadataRecord]]) -> None:
    images = applied(history)
    records = [i.to_records() for i in images]
    assert applied(history) == images
    assert [i.to_records() for i in images] == records


@given(entries, st.data())
def test_delta_names_exactly_what_differs(history: list[list[MetadataRecord]], data: st.DataObject) -> None:
    images = applied(history)
    before, after = (data.draw(st.sampled_from(images)) for _ in range(2))
    if data.draw(st.booleans()):
        # What an observer has after a snapshot shares nothing with what it had before.
        after = MetadataImage().apply(after.offset + 1, 1, after.to_records())
    delta = delta_between(before, after)

    def partitions(image: MetadataImage) -> dict[tuple[bytes, int], object]:
        return {(t.topic_id, i): p for t, i, p in image.partitions()}

    old, new = partitions(before), partitions(after)
    renamed = {t.topic_id for t in before.topics.values()} & {
        t.topic_id for t in after.topics.values() if before.topics.get(t.name) is None
    }
    if not renamed:
        differing = {key: (old.get(key), new.get(key)) for key in old | new if old.get(key) != new.get(key)}
        assert {(c.topic_id, c.index): (c.before, c.after) for c in delta.changed_partitions} == differing
    assert {t.topic_id for t in delta.deleted_topics} == set(before.topic_names) - set(after.topic_names)
    assert {t.topic_id for t in delta.created_topics} == set(after.topic_names) - set(before.topic_names)
    assert (delta.changed_brokers is None) == (before.brokers == after.brokers)
    for name in delta.topics_with_changed_config:
        assert before.config_of_topic(name) != after.config_of_topic(name)


def test_delta_is_empty_for_a_no_op() -> None:
    image = MetadataImage().apply(1, 1, [TopicRecord("a", TOPIC)])
    assert delta_between(image, image.apply(2, 1, [NoOpRecord()])).is_empty


def test_delta_tells_a_topic_from_its_predecessor_of_the_same_name() -> None:
    other = b"o" * 16
    before = MetadataImage().apply(1, 1, [TopicRecord("a", TOPIC), PartitionRecord(TOPIC, 0, (1,), (1,), 1)])
    recreate = [RemoveTopicRecord(TOPIC), TopicRecord("a", other), PartitionRecord(other, 0, (1,), (1,), 1)]
    delta = delta_between(before, before.apply(2, 1, recreate))
    assert [(c.topic_id, c.after is None) for c in delta.changed_partitions] == [(TOPIC, True), (other, False)]
    assert [t.topic_id for t in delta.deleted_topics] == [TOPIC]
    assert [t.topic_id for t in delta.created_topics] == [other]


def test_apply_shares_what_an_entry_does_not_touch() -> None:
    image = MetadataImage().apply(1, 1, [TopicRecord("a", TOPIC), PartitionRecord(TOPIC, 0, (1,), (1,), 1)])
    after = image.apply(2, 1, [ConfigRecord(ConfigResourceType.TOPIC, "a", "segment.bytes", "100")])
    assert after.topics is image.topics
    assert after.topic_names is image.topic_names


def test_apply_gives_all_of_an_entry_or_nothing() -> None:
    image = MetadataImage().apply(1, 1, [])
    with pytest.raises(TidelogError, match="no topic"):
        image.apply(2, 1, [FeatureLevelRecord("a", 1), PartitionRecord(TOPIC, 0, (1,), (1,))])
    assert image == MetadataImage().apply(1, 1, [])


def test_apply_refuses_an_entry_that_it_has() -> None:
    image = MetadataImage().apply(5, 1, [])
    with pytest.raises(TidelogError, match="entry 5 after entry 5"):
        image.apply(5, 1, [])


@pytest.mark.parametrize(("leader", "leader_epoch"), [(None, 4), (1, 5), (2, 5), (-1, 5)])
def test_partition_change_bumps_the_leader_epoch_only_when_it_names_a_leader(
    leader: int | None, leader_epoch: int
) -> None:
    image = MetadataImage().apply(1, 1, [TopicRecord("a", TOPIC), PartitionRecord(TOPIC, 0, (1, 2), (1, 2), 1, 4, 7)])
    partition = image.apply(2, 1, [PartitionChangeRecord(TOPIC, 0, leader=leader)]).partition("a", 0)
    assert partition is not None
    assert (partition.leader_epoch, partition.partition_epoch) == (leader_epoch, 8)


def test_removed_topic_takes_its_configuration_along() -> None:
    config = ConfigRecord(ConfigResourceType.TOPIC, "a", "segment.bytes", "100")
    image = MetadataImage().apply(1, 1, [TopicRecord("a", TOPIC), config])
    assert MetadataImage(2, 1) == image.apply(2, 1, [RemoveTopicRecord(TOPIC)])
