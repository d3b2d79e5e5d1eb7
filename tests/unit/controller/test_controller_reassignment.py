"""Reassignments: each rule of the module's docstring, then any sequence of them against a model."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from request_values import code_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import UNASSIGNED_DIRECTORY
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from tidelog_quorum.controller.partition_change import ElectionRules, PartitionTarget, partition_change
from tidelog_quorum.controller.reassignment import (
    MAX_PARTITIONS_PER_REQUEST,
    alter_partition_reassignments,
    list_partition_reassignments,
)
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tidelog_quorum.metadata.registrations import PartitionRegistration

TOPIC_ID = b"0123456789abcdef"
BROKERS = (1, 2, 3, 4, 5)
CANCEL = None


def directory(number: int) -> bytes:
    return bytes([number]) * 16


class Topic:
    """A topic ``t`` on five brokers, of which 5 has two log directories."""

    def __init__(self, *partitions: Sequence[int], rules: ElectionRules | None = None) -> None:
        self.rules = rules or ElectionRules()
        self.image = MetadataImage()
        self.apply(
            *(
                RegisterBrokerRecord(
                    b,
                    b"i" * 16,
                    0,
                    Endpoint("h", b),
                    fenced=False,
                    log_dirs=(directory(b), *([directory(50)] * (b == 5))),
                )
                for b in BROKERS
            ),
            TopicRecord("t", TOPIC_ID),
            *(
                PartitionRecord(TOPIC_ID, i, tuple(r), tuple(r), r[0], directories=tuple(directory(b) for b in r))
                for i, r in enumerate(partitions or [(1, 2, 3)])
            ),
        )

    def apply(self, *records) -> None:
        self.image = self.image.apply(self.image.offset + 1, 1, records)
        self.image.check_invariants()

    def partition(self, index: int = 0) -> PartitionRegistration:
        partition = self.image.partition("t", index)
        assert partition is not None
        assert {*partition.adding_replicas, *partition.removing_replicas} <= set(partition.replicas)
        return partition

    def request(self, targets, **fields) -> AlterPartitionReassignmentsResponse:
        partitions = [ReassignablePartition(index=i, replicas=None if t is CANCEL else tuple(t)) for i, t in targets]
        request = AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=fields.pop("name", "t"), partitions=tuple(partitions)),), **fields
        )
        state: Any = SimpleNamespace(latest=self.image, rules_of=lambda _: self.rules)
        result = alter_partition_reassignments(state, request, 0)
        self.apply(*result.records)
        return result.response

    def alter(self, target: Sequence[int] | None, index: int = 0, **fields) -> ErrorCode | None:
        result = self.request([(index, target)], **fields).topics[0].partitions[0]
        return code_of(result.error) if result.error is not None else None

    def set_isr(self, *isr: int, index: int = 0) -> None:
        """Change the ISR as AlterPartition does."""
        target = PartitionTarget(isr=isr)
        change = partition_change(self.image.brokers, self.rules, TOPIC_ID, index, self.partition(index), target)
        if change is not None:
            self.apply(change)

    def fence(self, *broker_ids: int, fenced: bool = True) -> None:
        self.apply(*(BrokerRegistrationChangeRecord(b, 0, fenced=fenced) for b in broker_ids))

    def unseat(self, broker_id: int) -> None:
        """A broker is fenced: it leaves every ISR."""
        self.fence(broker_id)
        for _, index, partition in list(self.image.partitions()):
            self.set_isr(*(b for b in partition.isr if b != broker_id), index=index)

    def state(self, index: int = 0):
        p = self.partition(index)
        return p.replicas, p.isr, p.leader, p.adding_replicas, p.removing_replicas

    def ongoing(self, *indexes: int):
        named = [TopicPartitions(name="t", partitions=tuple(indexes))] if indexes else []
        response = list_partition_reassignments(self.image, ListPartitionReassignmentsRequest(topics=tuple(named)))
        return {
            p.index: (tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas))
            for t in response.topics
            for p in t.partitions
        }


def test_reassignment_adds_the_new_replicas_and_waits_for_them():
    topic = Topic()

    assert topic.alter([4, 2, 3]) is None

    assert topic.state() == ((4, 2, 3, 1), (1, 2, 3), 1, (4,), (1,))
    assert topic.partition().leader_epoch == 0, "nobody has gone, so nobody needs to know"
    assert topic.ongoing() == topic.ongoing(0) == {0: ((4, 2, 3, 1), (4,), (1,))}


def test_reassignment_is_complete_when_the_last_new_replica_joins_the_isr():
    topic = Topic()
    topic.alter([4, 5, 3])

    topic.set_isr(1, 2, 3, 4)
    assert topic.state() == ((4, 5, 3, 1, 2), (1, 2, 3, 4), 1, (4, 5), (1, 2))
    topic.set_isr(1, 2, 3, 4, 5)

    assert topic.state() == ((4, 5, 3), (3, 4, 5), 4, (), ())
    assert topic.partition().leader_epoch == 1
    assert topic.ongoing() == {}


def test_reassignment_keeps_a_leader_that_stays_and_fences_the_replica_that_goes():
    topic = Topic()
    topic.alter([1, 2, 4])

    topic.set_isr(1, 2, 3, 4)

    assert topic.state() == ((1, 2, 4), (1, 2, 4), 1, (), ())
    assert topic.partition().leader_epoch == 1, "a replica that has gone must not be counted any more"


def test_reassignment_that_drops_replicas_of_the_isr_is_complete_at_once():
    topic = Topic()

    assert topic.alter([2, 3]) is None

    assert topic.state() == ((2, 3), (2, 3), 2, (), ())


def test_reassignment_that_drops_a_replica_waits_for_one_that_is_behind():
    topic = Topic()
    topic.set_isr(1, 3)

    topic.alter([1, 2])
    assert topic.state() == ((1, 2, 3), (1, 3), 1, (), (3,))
    topic.set_isr(1, 2, 3)

    assert topic.state() == ((1, 2), (1, 2), 1, (), ())


def test_reassignment_that_only_reorders_is_complete_at_once_and_changes_no_leader():
    topic = Topic()
    topic.set_isr(1)

    assert topic.alter([3, 2, 1]) is None

    assert topic.state() == ((3, 2, 1), (1,), 1, (), ())
    assert topic.partition().leader_epoch == 0


def test_reassignment_to_the_present_replicas_changes_nothing():
    topic = Topic()
    before = topic.partition()

    assert topic.alter([1, 2, 3]) is None

    assert topic.partition() == before


def test_reassignment_asked_for_again_changes_nothing():
    topic = Topic()
    topic.alter([5, 4, 3])
    before = topic.partition()

    assert topic.alter([5, 4, 3]) is None

    assert topic.partition() == before


def test_reassignment_gives_new_replicas_their_only_directory_and_others_none():
    topic = Topic()

    topic.alter([5, 4, 1])

    known = dict(zip(topic.partition().replicas, topic.partition().directories, strict=True))
    assert known == {5: UNASSIGNED_DIRECTORY, 4: directory(4), 1: directory(1), 2: directory(2), 3: directory(3)}
    topic.set_isr(1, 2, 3, 4, 5)
    assert topic.partition().directories == (UNASSIGNED_DIRECTORY, directory(4), directory(1))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, -1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CANCEL, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_reassignment_refuses_a_bad_target_and_changes_nothing(target, code):
    topic = Topic()
    before = topic.partition()

    assert topic.alter(target) is code

    assert topic.partition() == before


def test_reassignment_adds_no_replica_on_a_cordoned_broker_and_leaves_those_it_has():
    topic = Topic()
    topic.apply(*(ConfigRecord(ConfigResourceType.BROKER, str(b), "cordoned.log.dirs", "*") for b in (1, 4)))
    assert topic.alter([2, 3, 4]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not topic.partition().is_reassigning
    assert topic.alter([1, 2, 5]) is None
    assert topic.alter(CANCEL) is None


@pytest.mark.parametrize(("name", "index"), [("t", 1), ("t", -1), ("u", 0)])
def test_reassignment_of_an_unknown_partition_is_refused(name, index):
    topic = Topic()

    assert topic.alter([1, 2, 3], index, name=name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.alter(CANCEL, index, name=name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_reassignment_answers_each_partition_and_does_what_it_can():
    topic = Topic((1, 2), (2, 3), (3, 1), (1, 3))

    response = topic.request([(0, [4, 2]), (1, [9]), (2, CANCEL), (3, [5, 3]), (7, [1])])

    codes = {p.index: code_of(p.error).code for p in response.topics[0].partitions}
    assert codes == {
        0: 0,
        1: ErrorCode.INVALID_REPLICA_ASSIGNMENT.code,
        2: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.code,
        3: 0,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
    }
    assert topic.ongoing().keys() == {0, 3}
    assert topic.ongoing(3, 2, 9) == {3: ((5, 3, 1), (5,), (1,))}


def test_reassignment_of_a_partition_named_twice_is_refused_for_that_one():
    topic = Topic((1, 2), (2, 3))

    response = topic.request([(0, [3, 2]), (1, [1, 3]), (0, [4, 2])])

    codes = [code_of(p.error).code for p in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST.code, 0, ErrorCode.INVALID_REQUEST.code]


def test_reassignment_of_too_many_partitions_at_once_is_refused():
    topic = Topic()

    with pytest.raises(TidelogError) as raised:
        topic.request([(i, [1]) for i in range(MAX_PARTITIONS_PER_REQUEST + 1)])

    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_reassignment_may_name_a_fenced_broker_and_waits_for_it():
    topic = Topic()
    topic.fence(4)

    assert topic.alter([4, 1, 2]) is None

    assert topic.state() == ((4, 1, 2, 3), (1, 2, 3), 1, (4,), (3,))


def test_reassignment_refuses_another_replication_factor_only_when_asked_to():
    topic = Topic()

    refused = topic.alter([1, 2], refuse_replication_factor_change=True)
    assert refused is ErrorCode.INVALID_REPLICATION_FACTOR
    assert topic.alter([1, 2, 3, 4]) is None
    # What is under way leads to four.
    assert topic.alter([1, 2, 5], refuse_replication_factor_change=True) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert topic.alter([1, 2, 3, 5], refuse_replication_factor_change=True) is None
    assert topic.alter(CANCEL, refuse_replication_factor_change=True) is None


def test_replication_factor_grows_and_shrinks():
    topic = Topic((1,))

    topic.alter([1, 2, 3])
    assert topic.state() == ((1, 2, 3), (1,), 1, (2, 3), ())
    topic.set_isr(1, 2, 3)
    assert topic.state() == ((1, 2, 3), (1, 2, 3), 1, (), ())
    topic.alter([3])

    assert topic.state() == ((3,), (3,), 3, (), ())


def test_cancellation_brings_the_original_replicas_back():
    topic = Topic()
    topic.alter([4, 5, 3])
    topic.set_isr(1, 2, 3, 4)

    assert topic.alter(CANCEL) is None

    replicas, isr, leader, adding, removing = topic.state()
    assert set(replicas) == {1, 2, 3}
    assert (isr, leader, adding, removing) == ((1, 2, 3), 1, (), ())
    assert topic.partition().leader_epoch == 1, "the replica that was being added must be fenced off"


def test_cancellation_passes_the_leadership_from_an_added_replica_to_an_original_one():
    topic = Topic()
    topic.alter([4, 5, 3])
    topic.set_isr(1, 2, 3, 4)
    topic.unseat(1)
    topic.apply(
        partition_change(topic.image.brokers, topic.rules, TOPIC_ID, 0, topic.partition(), PartitionTarget(isr=(4, 2)))
    )
    topic.unseat(2)
    assert topic.partition().isr == (4,)
    topic.set_isr(4, 3)

    assert topic.alter(CANCEL) is None

    assert topic.partition().leader == 3
    assert set(topic.partition().replicas) == {1, 2, 3}


def only_the_added_one_is_left(rules: ElectionRules) -> Topic:
    topic = Topic((1, 2), rules=rules)
    topic.alter([4, 5])
    topic.set_isr(1, 2, 4)
    topic.set_isr(4)
    topic.fence(1, 2)
    topic.set_isr(4)
    return topic


def test_cancellation_is_refused_when_only_added_replicas_have_the_records():
    topic = only_the_added_one_is_left(ElectionRules())
    before = topic.partition()

    assert topic.alter(CANCEL) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    assert topic.partition() == before


def test_cancellation_loses_records_only_where_the_topic_allows_it():
    topic = only_the_added_one_is_left(ElectionRules(allows_unclean=True))
    topic.fence(2, fenced=False)

    assert topic.alter(CANCEL) is None

    replicas, isr, leader, _, _ = topic.state()
    assert (set(replicas), isr, leader) == ({1, 2}, (2,), 2)


def test_unclean_cancellation_waits_for_an_original_replica_when_none_lives():
    topic = only_the_added_one_is_left(ElectionRules(allows_unclean=True))

    assert topic.alter(CANCEL) is None

    assert topic.state() == ((1, 2), (1,), -1, (), ())


def test_cancellation_does_not_rely_on_an_eligible_replica_that_is_away():
    topic = Topic((1, 2), rules=ElectionRules(min_isr=2, uses_elr=True))
    topic.alter([4, 5])
    topic.set_isr(1, 2, 4)
    topic.set_isr(4, 2)
    topic.unseat(2)
    assert topic.partition().isr == (4,)
    assert topic.partition().eligible_leader_replicas == (2,)

    assert topic.alter(CANCEL) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    topic.fence(2, fenced=False)
    topic.set_isr(4, 2)
    assert topic.alter(CANCEL) is None
    assert topic.partition().isr == (2,)


def test_new_target_replaces_the_one_under_way_and_drops_what_is_not_in_sync():
    topic = Topic()
    topic.alter([4, 2, 3])

    assert topic.alter([5, 2, 3]) is None

    assert topic.state() == ((5, 2, 3, 1), (1, 2, 3), 1, (5,), (1,))
    assert topic.partition().leader_epoch == 1, "4 is a replica no more"


def test_new_target_drops_nothing_that_is_in_sync_before_it_is_itself():
    topic = Topic()
    topic.alter([4, 5, 3])
    topic.set_isr(1, 2, 3, 4)

    assert topic.alter([1, 2, 5]) is None

    assert topic.state() == ((1, 2, 5, 3, 4), (1, 2, 3, 4), 1, (4, 5), (3, 4))
    assert topic.partition().leader_epoch == 0
    topic.set_isr(1, 2, 3, 4, 5)
    assert topic.state() == ((1, 2, 5), (1, 2, 5), 1, (), ())


def test_cancellation_leads_back_to_the_original_replicas_after_several_targets():
    topic = Topic()
    topic.alter([4, 2, 3])
    topic.alter([5, 2, 4])

    assert topic.alter(CANCEL) is None

    assert set(topic.partition().replicas) == {1, 2, 3}
    assert topic.ongoing() == {}


def test_new_target_keeps_the_only_replica_that_has_the_records():
    topic = only_the_added_one_is_left(ElectionRules())

    assert topic.alter([5, 1]) is None

    assert topic.state() == ((5, 1, 2, 4), (4,), 4, (4, 5), (2, 4))
    topic.fence(1, fenced=False)
    topic.set_isr(4, 5, 1)
    assert topic.state() == ((5, 1), (5, 1), 5, (), ())


def test_new_target_keeps_what_the_earlier_one_was_adding_already():
    topic = Topic()
    topic.alter([4, 5, 3])
    topic.set_isr(1, 2, 3, 4)

    topic.alter([4, 2, 3])

    assert topic.state() == ((4, 2, 3), (2, 3, 4), 4, (), ()), "complete: 4 was there already"


def test_new_target_that_is_the_original_one_ends_the_reassignment():
    topic = Topic()
    topic.alter([4, 5, 3])

    topic.alter([1, 2, 3])

    assert topic.state() == ((1, 2, 3), (1, 2, 3), 1, (), ())


def test_reassignment_ends_with_its_topic():
    topic = Topic()
    topic.alter([4, 2, 3])

    topic.apply(RemoveTopicRecord(TOPIC_ID))

    assert topic.ongoing() == {}
    assert topic.alter(CANCEL) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_reassignment_to_a_broker_that_is_forgotten_can_be_cancelled_or_led_elsewhere():
    for way_out in (CANCEL, [5, 2, 3]):
        topic = Topic()
        topic.alter([4, 2, 3])
        topic.apply(UnregisterBrokerRecord(4, 0))

        assert topic.ongoing().keys() == {0}
        assert topic.alter(way_out) is None

        assert 4 not in topic.partition().replicas


def test_reassignment_away_from_a_broker_that_is_forgotten_completes():
    topic = Topic()
    topic.unseat(1)
    topic.alter([2, 3, 4])
    topic.apply(UnregisterBrokerRecord(1, 0))

    topic.set_isr(2, 3, 4)

    assert topic.state() == ((2, 3, 4), (2, 3, 4), 2, (), ())


def test_reassignment_survives_in_a_snapshot():
    topic = Topic()
    topic.alter([4, 5, 3])

    restored = MetadataImage().apply(topic.image.offset, topic.image.epoch, topic.image.to_records())

    assert restored == topic.image
    topic.image = restored
    topic.set_isr(1, 2, 3, 4, 5)
    assert topic.state() == ((4, 5, 3), (3, 4, 5), 4, (), ())


@st.composite
def events(draw):
    kind = draw(st.sampled_from(["alter", "alter", "cancel", "isr", "isr", "fence", "unfence"]))
    if kind == "alter":
        return kind, tuple(draw(st.permutations(BROKERS))[: draw(st.integers(1, 4))])
    if kind == "isr":
        return kind, frozenset(draw(st.sets(st.sampled_from(BROKERS))))
    return kind, draw(st.sampled_from(BROKERS))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(events(), max_size=25), st.booleans())
def test_any_sequence_of_reassignments_keeps_the_records_and_leads_back(steps, uses_elr):
    """Whoever is in the ISR has all records; a change of the ISR by the leader may add whom it likes."""
    topic = Topic(rules=ElectionRules(min_isr=2, uses_elr=uses_elr))
    original, holders = {1, 2, 3}, {1, 2, 3}
    for kind, value in steps:
        before = topic.partition()
        if kind == "alter":
            topic.alter(value)
        elif kind == "cancel":
            if topic.alter(CANCEL) is None:
                assert set(topic.partition().replicas) == original
        elif kind == "isr" and before.leader != -1:
            up = {b for b in value if not topic.image.brokers[b].fenced} & set(before.replicas)
            isr = tuple(sorted(up | {before.leader}))
            # The leader lets in only who has fetched everything.
            holders |= set(isr)
            topic.set_isr(*isr)
        elif kind == "fence":
            topic.unseat(value)
        elif kind == "unfence":
            topic.fence(value, fenced=False)
            topic.set_isr(*topic.partition().isr)
        after = topic.partition()
        holders &= set(after.replicas)
        assert set(after.isr) <= holders, "only who has the records"
        assert holders, "somebody has them"
        if after.leader != -1 and len(after.isr) >= (min(2, len(after.replicas)) if uses_elr else 1):
            # What is written from now on is committed when these have it; with ELR not by fewer.
            holders = set(after.isr)
        if not after.is_reassigning:
            original = set(after.replicas)
        assert set(after.replicas) - set(after.adding_replicas) == original
        if set(after.replicas) - set(after.removing_replicas) <= set(after.isr):
            assert not after.is_reassigning, "it would be complete"
        assert after == before or after.partition_epoch > before.partition_epoch
        if not set(before.replicas) <= set(after.replicas):
            assert after.leader_epoch > before.leader_epoch
