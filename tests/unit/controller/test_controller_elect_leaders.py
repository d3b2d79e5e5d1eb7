"""Elections that are asked for, and leaderships that return by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_values import code_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.partitions import ElectionType, ElectLeadersRequest, TopicPartitions
from tidelog_quorum.controller import elect_leaders as elections
from tidelog_quorum.controller import leader_balance
from tidelog_quorum.controller.elect_leaders import elect_leaders, election_slices
from tidelog_quorum.controller.leader_balance import LeaderBalance
from tidelog_quorum.controller.partition_change import ElectionRules
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

TOPIC_ID = b"0123456789abcdef"
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


class Cluster:
    """Brokers 1 to 4; ``add`` gives topic ``t`` a partition."""

    def __init__(self, rules: ElectionRules | None = None) -> None:
        self.rules = rules or ElectionRules()
        self.image = MetadataImage()
        self.apply(*(RegisterBrokerRecord(b, b"i" * 16, 0, Endpoint("h", b), fenced=False) for b in range(1, 5)))
        self.apply(TopicRecord("t", TOPIC_ID))
        self.count = 0

    def state(self) -> Any:
        return SimpleNamespace(latest=self.image, rules_of=lambda _: self.rules)

    def apply(self, *records) -> None:
        self.image = self.image.apply(self.image.offset + 1, 1, records)
        self.image.check_invariants()

    def add(
        self, replicas: Sequence[int], leader: int, isr: Sequence[int] | None = None, elr: Sequence[int] = ()
    ) -> int:
        self.apply(
            PartitionRecord(
                TOPIC_ID,
                self.count,
                tuple(replicas),
                tuple(replicas if isr is None else isr),
                leader,
                eligible_leader_replicas=tuple(elr),
            )
        )
        self.count += 1
        return self.count - 1

    def fence(self, *broker_ids: int, fenced: bool = True) -> None:
        self.apply(*(BrokerRegistrationChangeRecord(b, 0, fenced=fenced) for b in broker_ids))

    def elect(self, kind: int, *indexes: int, name: str = "t", all_partitions: bool = False) -> dict[int, ErrorCode]:
        request = ElectLeadersRequest(
            election_type=kind,
            topics=() if all_partitions else (TopicPartitions(name=name, partitions=tuple(indexes)),),
            all_partitions=all_partitions,
        )
        result = elect_leaders(self.state(), request, 0)
        self.apply(*result.records)
        return {p.index: code_of(p.error) for t in result.response.topics for p in t.partitions}

    def leader(self, index: int = 0) -> int:
        partition = self.image.partition("t", index)
        assert partition is not None
        return partition.leader

    def leaders(self) -> list[int]:
        return [self.leader(i) for i in range(self.count)]


def test_preferred_election_returns_the_leadership_to_the_first_replica():
    cluster = Cluster()
    cluster.add([1, 2, 3], leader=2)

    assert cluster.elect(PREFERRED, 0) == {0: ErrorCode.NONE}

    assert cluster.leader() == 1
    assert cluster.image.partition("t", 0).leader_epoch == 1
    assert cluster.image.partition("t", 0).isr == (1, 2, 3)


@pytest.mark.parametrize("kind", [PREFERRED, ElectionType.UNSPECIFIED])
def test_preferred_election_is_not_needed_where_the_first_replica_leads(kind):
    cluster = Cluster()
    cluster.add([1, 2, 3], leader=1)

    assert cluster.elect(kind, 0) == {0: ErrorCode.ELECTION_NOT_NEEDED}


def test_preferred_election_fails_where_the_first_replica_is_not_in_sync():
    cluster = Cluster()
    cluster.add([1, 2, 3], leader=2, isr=[2, 3])

    assert cluster.elect(PREFERRED, 0) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    assert cluster.leader() == 2


def test_preferred_election_fails_where_the_first_replica_is_not_alive():
    cluster = Cluster()
    cluster.add([1, 2], leader=-1, isr=[1])
    cluster.fence(1)

    assert cluster.elect(PREFERRED, 0) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}

    assert cluster.leader() == -1


def test_unclean_election_gives_a_partition_without_a_leader_the_first_replica_that_lives():
    cluster = Cluster()
    cluster.add([1, 2, 3], leader=-1, isr=[1])
    cluster.fence(1, 2)

    assert cluster.elect(UNCLEAN, 0) == {0: ErrorCode.NONE}

    assert cluster.leader() == 3
    assert cluster.image.partition("t", 0).isr == (3,)


def test_unclean_election_is_not_needed_where_somebody_leads():
    cluster = Cluster()
    cluster.add([1, 2], leader=2)

    assert cluster.elect(UNCLEAN, 0) == {0: ErrorCode.ELECTION_NOT_NEEDED}

    assert cluster.leader() == 2


def test_unclean_election_fails_where_nobody_lives():
    cluster = Cluster()
    cluster.add([1, 2], leader=-1, isr=[1])
    cluster.fence(1, 2)

    assert cluster.elect(UNCLEAN, 0) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_election_answers_each_partition_that_is_named():
    cluster = Cluster()
    cluster.add([1, 2], leader=2)
    cluster.add([1, 2], leader=1)

    assert cluster.elect(PREFERRED, 0, 0, 1, 7) == {
        0: ErrorCode.NONE,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.elect(PREFERRED, 0, name="u") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_election_of_all_partitions_leaves_out_those_that_need_none():
    cluster = Cluster()
    cluster.add([1, 2], leader=2)
    cluster.add([1, 2], leader=1)
    cluster.add([3, 2], leader=2, isr=[2])

    answered = cluster.elect(PREFERRED, all_partitions=True)

    assert answered == {0: ErrorCode.NONE, 2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.leaders() == [1, 1, 2]


def test_election_of_an_unknown_type_is_refused():
    with pytest.raises(TidelogError) as raised:
        Cluster().elect(9, 0)

    assert raised.value.code is ErrorCode.INVALID_REQUEST


class Balanced:
    """A balance with a clock and a cluster; ``run`` ticks until it has nothing more to do."""

    def __init__(self, cluster: Cluster, percentage: int = 10) -> None:
        self.cluster = cluster
        self.balance = LeaderBalance(1_000, percentage)
        self.balance.restart(0)

    def step(self, now_ms: int) -> list[PartitionChangeRecord]:
        changes = self.balance.step(self.cluster.image, lambda _: self.cluster.rules, now_ms)
        if changes:
            self.cluster.apply(*changes)
        return changes

    def run(self, now_ms: int) -> int:
        """Returns how many leaders were elected."""
        elected = len(self.step(now_ms))
        while self.balance.is_under_way:
            elected += len(self.step(now_ms))
        return elected


def named(part):
    return [(t.name, list(t.partitions)) for t in part.topics]


def test_election_of_named_partitions_is_split_and_names_each_once(monkeypatch):
    monkeypatch.setattr(elections, "PARTITIONS_PER_SLICE", 2)
    topics = [TopicPartitions(name="t", partitions=(2, 0, 2, 1)), TopicPartitions(name="u", partitions=(5, 6))]
    request = ElectLeadersRequest(election_type=UNCLEAN, topics=tuple(topics))

    parts = list(election_slices(MetadataImage(), request))

    assert [named(p) for p in parts] == [[("t", [2, 0])], [("t", [1]), ("u", [5])], [("u", [6])]]
    assert {(p.election_type, p.all_partitions) for p in parts} == {(UNCLEAN, False)}


def test_election_of_all_partitions_is_split_and_answers_those_alone_that_need_one(monkeypatch):
    monkeypatch.setattr(elections, "PARTITIONS_PER_SLICE", 2)
    cluster = Cluster()
    for leader in (1, 2, 1, 2, 2):
        cluster.add([1, 2], leader=leader)

    parts = list(election_slices(cluster.image, ElectLeadersRequest(all_partitions=True)))
    answers = [elect_leaders(cluster.state(), p, 0) for p in parts]

    assert [named(p) for p in parts] == [[("t", [0, 1])], [("t", [2, 3])], [("t", [4])]]
    assert [[r.index for t in a.response.topics for r in t.partitions] for a in answers] == [[1], [3], [4]]
    assert [len(a.records) for a in answers] == [1, 1, 1]


def test_election_of_nothing_is_one_request_whose_type_is_checked():
    [part] = election_slices(MetadataImage(), ElectLeadersRequest(election_type=99, all_partitions=True))
    with pytest.raises(TidelogError, match="no election type 99"):
        elect_leaders(Cluster().state(), part, 0)


def test_election_that_names_too_many_partitions_is_refused():
    topics = [TopicPartitions(name="t", partitions=tuple(range(elections.MAX_PARTITIONS_PER_REQUEST + 1)))]
    with pytest.raises(TidelogError, match="10001 partitions in one request, more than 10000") as refusal:
        list(election_slices(MetadataImage(), ElectLeadersRequest(topics=tuple(topics))))
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION


def test_balance_returns_leaderships_when_the_interval_is_over_and_not_before():
    cluster = Cluster()
    cluster.add([1, 2], leader=2)
    balanced = Balanced(cluster)

    assert balanced.run(999) == 0
    assert cluster.leader() == 2
    assert balanced.run(1_000) == 1
    assert cluster.leader() == 1
    cluster.apply(PartitionChangeRecord(TOPIC_ID, 0, leader=2))
    assert balanced.run(1_999) == 0
    assert balanced.run(2_000) == 1


def test_balance_leaves_a_broker_alone_that_lacks_few_of_its_leaderships():
    cluster = Cluster()
    for _ in range(9):
        cluster.add([1, 2], leader=1)
    cluster.add([1, 2], leader=2)
    cluster.add([3, 4], leader=4)
    for _ in range(4):
        cluster.add([3, 4], leader=3)

    assert Balanced(cluster, percentage=10).run(1_000) == 1

    assert cluster.leaders() == [1] * 9 + [2] + [3] * 5, "1 lacks 10 % and not more, 3 lacked 20 %"
    assert Balanced(cluster, percentage=9).run(1_000) == 1
    assert cluster.leader(9) == 1


def test_balance_elects_nobody_who_may_not_lead():
    cluster = Cluster()
    cluster.add([1, 2], leader=2, isr=[2])
    cluster.add([3, 2], leader=2)
    cluster.fence(3)

    assert Balanced(cluster).run(1_000) == 0


def test_balance_takes_many_small_steps(monkeypatch):
    monkeypatch.setattr(leader_balance, "PARTITIONS_PER_STEP", 4)
    monkeypatch.setattr(leader_balance, "ELECTIONS_PER_STEP", 3)
    cluster = Cluster()
    for _ in range(10):
        cluster.add([1, 2], leader=2)
    balanced = Balanced(cluster)

    elected = [len(balanced.step(1_000)) for _ in range(7)]

    assert elected == [0, 0, 0, 3, 3, 3, 1]
    assert not balanced.balance.is_under_way
    assert cluster.leaders() == [1] * 10


def test_balance_looks_at_each_partition_again_before_it_elects():
    cluster = Cluster()
    cluster.add([1, 2], leader=2)
    cluster.add([1, 2], leader=2)
    balanced = Balanced(cluster)
    balanced.step(1_000)
    assert balanced.balance.is_under_way
    cluster.apply(PartitionChangeRecord(TOPIC_ID, 0, isr=(2,)))

    assert balanced.run(1_000) == 1
    assert cluster.leaders() == [2, 1]


def test_balance_forgets_what_is_gone():
    cluster = Cluster()
    cluster.add([1, 2], leader=2)
    balanced = Balanced(cluster)
    balanced.step(1_000)
    cluster.apply(RemoveTopicRecord(TOPIC_ID))

    assert balanced.step(1_000) == []
    assert not balanced.balance.is_under_way


def test_balance_begins_again_with_another_leadership():
    cluster = Cluster()
    cluster.add([1, 2], leader=2)
    balanced = Balanced(cluster)
    balanced.step(1_000)

    balanced.balance.restart(1_500)

    assert not balanced.balance.is_under_way
    assert balanced.run(2_499) == 0
    assert balanced.run(2_500) == 1


partitions = st.lists(
    st.tuples(st.permutations([1, 2, 3, 4]), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)), max_size=12
)


@settings(deadline=None)
@given(partitions, st.sets(st.integers(1, 4)), st.integers(0, 100))
def test_balance_leaves_no_broker_with_more_than_its_percentage_that_could_have_it(made, fenced, percentage):
    cluster = Cluster()
    for order, count, leader, isr_size in made:
        replicas = order[:count]
        isr = [*dict.fromkeys([replicas[leader % count], *replicas])][:isr_size]
        cluster.add(replicas, leader=isr[0], isr=isr)
    cluster.fence(*fenced)
    before = cluster.leaders()

    Balanced(cluster, percentage).run(1_000)

    for broker_id in range(1, 5):
        mine = [(i, p) for _, i, p in cluster.image.partitions() if p.replicas[0] == broker_id]
        lost = [i for i, _ in mine if before[i] != broker_id]
        exceeds = len(lost) * 100 > percentage * len(mine)
        for i, partition in mine:
            may_lead = broker_id in partition.isr and broker_id not in fenced
            wanted = broker_id if exceeds and may_lead and i in lost else before[i]
            assert partition.leader == wanted
