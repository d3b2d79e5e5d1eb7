"""The common guarantee of assignors (each partition once, to a subscriber), and the particular ones of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import permutations
from time import process_time

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from tidelog.consumer.assignors import Assignment, Key, KnownTopic, Member, Subscription, assignor_named
from tidelog_foundation.errors import TidelogError

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
STICKY = ("sticky", "cooperative-sticky")
TOPICS = ("a", "b", "c", "d")
clusters = st.dictionaries(st.sampled_from(TOPICS[:3]), st.integers(1, 6))
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=5)


def topics_of(partitions: Mapping[str, int]) -> dict[str, KnownTopic]:
    return {name: KnownTopic(b"", count) for name, count in partitions.items()}


def member(
    name: str,
    topics: frozenset[str],
    owned: frozenset[Key] = frozenset(),
    generation: int = 1,
    assignor: str = "sticky",
) -> Member:
    """A member as it would join: eager ones have given up what they say in their user data."""
    user_data = assignor_named(assignor).user_data(owned, generation)
    claimed = owned if assignor_named(assignor).is_cooperative else frozenset()
    return Member(name, Subscription(topics, user_data, claimed, generation))


def assign(assignor: str, partitions: Mapping[str, int], members: list[Member]) -> dict[str, frozenset[Key]]:
    assignment = assignor_named(assignor).assign(topics_of(partitions), members)
    assert all(len(set(each)) == len(each) for each in assignment.values())
    return {name: frozenset(each) for name, each in assignment.items()}


def settled(assignor: str, partitions: Mapping[str, int], members: list[Member]) -> dict[str, frozenset[Key]]:
    """Return the members' partitions when no member has to give up any more."""
    assignment = assign(assignor, partitions, members)
    for generation in range(2, 6):
        again = [
            member(m.member_id, m.subscription.topics, assignment[m.member_id], generation, assignor) for m in members
        ]
        before, assignment = assignment, assign(assignor, partitions, again)
        if assignment == before:
            return assignment
    raise AssertionError(f"{assignor} does not come to rest: {before}, {assignment}")


def check_complete(
    partitions: Mapping[str, int], members: list[Member], assignment: Mapping[str, frozenset[Key]]
) -> None:
    wanted = {(t, p) for m in members for t in m.subscription.topics for p in range(partitions.get(t, 0))}
    owners = Counter(key for each in assignment.values() for key in each)
    assert set(owners) == wanted
    assert set(owners.values()) <= {1}
    for each in members:
        assert all(topic in each.subscription.topics for topic, _ in assignment[each.member_id])


def check_balanced(members: list[Member], assignment: Mapping[str, frozenset[Key]]) -> None:
    """KIP-54: who has two more than another has nothing that the other could take."""
    for rich in members:
        for poor in members:
            if len(assignment[rich.member_id]) >= len(assignment[poor.member_id]) + 2:
                assert not {topic for topic, _ in assignment[rich.member_id]} & poor.subscription.topics


def least_moves(before: Mapping[str, frozenset[Key]], count: int, members: list[str]) -> int:
    """The least number of partitions that live members must lose so that all have as many, or one more."""
    least, more = divmod(count, len(members))
    held = sorted((len(before.get(name, ())) for name in members), reverse=True)
    return sum(max(0, has - least - (row < more)) for row, has in enumerate(held))


@pytest.mark.parametrize("assignor", NAMES)
@given(partitions=clusters, topics=subscriptions)
def test_assignment_gives_every_partition_to_one_subscriber(
    assignor: str, partitions: dict[str, int], topics: list[frozenset[str]]
) -> None:
    members = [member(f"m{index}", each, assignor=assignor) for index, each in enumerate(topics)]
    assignment = assign(assignor, partitions, members)
    check_complete(partitions, members, assignment)
    if assignor in STICKY:
        check_balanced(members, assignment)


@pytest.mark.parametrize(
    ("ours", "theirs"), [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)]
)
@given(partitions=clusters, count=st.integers(1, 5), static=st.integers(0, 5))
def test_assignment_is_kafka_pythons_when_subscriptions_are_equal(
    ours: str, theirs: type[RangePartitionAssignor], partitions: dict[str, int], count: int, static: int
) -> None:
    instance_ids = [f"i{9 - index}" if index < static else None for index in range(count)]
    subscription = Subscription(frozenset(TOPICS))
    members = [Member(f"m{index}", subscription, instance_id) for index, instance_id in enumerate(instance_ids)]
    expected = theirs.assign(_Cluster(partitions), [_TheirMember(each) for each in members])
    assignment = assign(ours, partitions, members)
    for each in members:
        found = {(topic, p) for topic, indexes in expected[each.member_id].assigned_partitions for p in indexes}
        assert assignment[each.member_id] == found


class _Cluster:
    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._partitions[topic])) if topic in self._partitions else None


class _TheirMember:
    def __init__(self, ours: Member) -> None:
        self.member_id = ours.member_id
        self.group_instance_id = ours.instance_id
        self.metadata = ConsumerProtocolSubscription(0, sorted(ours.subscription.topics), b"")


def test_range_gives_equal_partitions_of_like_topics_to_the_same_member() -> None:
    members = [member(f"m{index}", frozenset("ab")) for index in range(3)]
    assignment = assign("range", {"a": 7, "b": 7}, members)
    for each in assignment.values():
        assert {p for topic, p in each if topic == "a"} == {p for topic, p in each if topic == "b"}
    assert assignment["m0"] == {(topic, p) for topic in "ab" for p in (0, 1, 2)}


def test_roundrobin_passes_over_who_does_not_subscribe() -> None:
    """KIP-54's second example."""
    members = [member("c0", frozenset("a")), member("c1", frozenset("ab")), member("c2", frozenset("abc"))]
    assignment = assign("roundrobin", {"a": 1, "b": 2, "c": 3}, members)
    assert assignment["c0"] == {("a", 0)}
    assert assignment["c1"] == {("b", 0)}
    assert assignment["c2"] == {("b", 1), ("c", 0), ("c", 1), ("c", 2)}


def test_sticky_balances_kips_second_example_and_keeps_five_of_five() -> None:
    members = [member("c0", frozenset("a")), member("c1", frozenset("ab")), member("c2", frozenset("abc"))]
    partitions = {"a": 1, "b": 2, "c": 3}
    first = assign("sticky", partitions, members)
    assert [len(first[name]) for name in ("c0", "c1", "c2")] == [1, 2, 3]
    rest = [member(each.member_id, each.subscription.topics, first[each.member_id]) for each in members[1:]]
    second = assign("sticky", partitions, rest)
    assert first["c1"] < second["c1"]
    assert first["c2"] == second["c2"]


@pytest.mark.parametrize("assignor", STICKY)
@given(
    partitions=clusters,
    before=st.integers(1, 6),
    gone=st.sets(st.integers(0, 5)),
    joined=st.integers(0, 3),
    grown=st.integers(0, 4),
)
def test_sticky_moves_are_the_fewest_when_subscriptions_are_equal(
    assignor: str, partitions: dict[str, int], before: int, gone: set[int], joined: int, grown: int
) -> None:
    everything = frozenset(TOPICS)
    had = settled(assignor, partitions, [member(f"m{index}", everything, assignor=assignor) for index in range(before)])
    live = [f"m{index}" for index in range(before + joined) if index not in gone]
    if not live:
        return
    changed = {**partitions, "d": grown} if grown else partitions
    members = [member(name, everything, had.get(name, frozenset()), 1, assignor) for name in live]
    has = settled(assignor, changed, members)
    check_complete(changed, members, has)
    check_balanced(members, has)
    lost = sum(len(had.get(name, frozenset()) - has[name]) for name in live)
    assert lost == least_moves(had, sum(changed.values()), live)


@given(
    partitions=clusters,
    topics=subscriptions,
    owners=st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)), st.integers(0, 4)),
)
@settings(max_examples=examples(200))
def test_sticky_gives_nothing_away_that_it_could_give_back(
    partitions: dict[str, int], topics: list[frozenset[str]], owners: dict[Key, int]
) -> None:
    """From any assignment: balanced, and no single move can be undone without making it less balanced."""
    had = {f"m{index}": frozenset(k for k, who in owners.items() if who == index) for index in range(len(topics))}
    members = [member(f"m{index}", each, had[f"m{index}"]) for index, each in enumerate(topics)]
    has = assign("sticky", partitions, members)
    check_complete(partitions, members, has)
    check_balanced(members, has)
    for loser, gainer in permutations(members, 2):
        moved = (had[loser.member_id] & has[gainer.member_id]) - had[gainer.member_id]
        if any(topic in loser.subscription.topics for topic, _ in moved):
            assert len(has[gainer.member_id]) <= len(has[loser.member_id])


def test_sticky_gives_back_what_it_moved_on_the_way() -> None:
    """m3 comes down by b's partition first; once a's has gone as well that move turns out to be one too many."""
    had = {"m1": frozenset({("b", 1)}), "m3": frozenset({("a", 0), ("a", 1), ("b", 0)})}
    topics = {"m0": frozenset[str](), "m1": frozenset("ab"), "m2": frozenset("a"), "m3": frozenset("ab")}
    members = [member(name, each, had.get(name, frozenset())) for name, each in topics.items()]
    has = assign("sticky", {"a": 2, "b": 2}, members)
    assert sum(len(owned - has[name]) for name, owned in had.items()) == 1


@given(partitions=clusters, topics=subscriptions)
def test_sticky_moves_nothing_when_nothing_has_changed(
    partitions: dict[str, int], topics: list[frozenset[str]]
) -> None:
    members = [member(f"m{index}", each) for index, each in enumerate(topics)]
    had = assign("sticky", partitions, members)
    assert (
        assign("sticky", partitions, [member(m.member_id, m.subscription.topics, had[m.member_id]) for m in members])
        == had
    )


def test_sticky_believes_the_later_generation_and_neither_of_the_same() -> None:
    everything, key = frozenset("a"), frozenset({("a", 0)})
    old, new = member("m0", everything, key, 3), member("m1", everything, key, 4)
    assert assign("sticky", {"a": 1}, [old, new])["m1"] == key
    assert assign("sticky", {"a": 1}, [new, old])["m1"] == key
    same = [member("m1", everything, key, 3), member("m0", everything, key | {("a", 1)}, 3)]
    assert assign("sticky", {"a": 2}, same) == {"m0": {("a", 1)}, "m1": key}


@given(
    partitions=clusters,
    topics=subscriptions,
    owners=st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)), st.integers(0, 4)),
)
def test_cooperative_sticky_gives_nobody_what_another_still_has(
    partitions: dict[str, int], topics: list[frozenset[str]], owners: dict[Key, int]
) -> None:
    had = {f"m{index}": frozenset(k for k, who in owners.items() if who == index) for index in range(len(topics))}
    members = [member(f"m{i}", each, had[f"m{i}"], 1, "cooperative-sticky") for i, each in enumerate(topics)]
    has = assign("cooperative-sticky", partitions, members)
    for one, other in permutations(had, 2):
        assert not had[one] & has[other]
    plain = assign("sticky", partitions, [member(f"m{i}", each, had[f"m{i}"]) for i, each in enumerate(topics)])
    assert all(has[name] <= plain[name] for name in has)
    assert all(had[name] & plain[name] <= has[name] for name in has)
    final = settled("cooperative-sticky", partitions, members)
    check_complete(partitions, members, final)


def test_cooperative_sticky_reads_the_generation_where_older_clients_have_it() -> None:
    key = frozenset({("a", 0)})
    old = Member("m0", Subscription(frozenset("a"), (3).to_bytes(4, "big"), key))
    new = Member("m1", Subscription(frozenset("a"), (4).to_bytes(4, "big"), key))
    assert assign("cooperative-sticky", {"a": 1}, [old, new]) == {"m0": frozenset(), "m1": key}


def test_static_members_keep_their_places_whatever_their_member_ids() -> None:
    subscription = Subscription(frozenset("a"))
    one = [Member("x", subscription, "i1"), Member("y", subscription, "i2"), Member("a", subscription)]
    other = [Member("q", subscription, "i1"), Member("b", subscription, "i2"), Member("a", subscription)]
    before, after = assign("range", {"a": 3}, one), assign("range", {"a": 3}, other)
    assert (before["x"], before["y"], before["a"]) == (after["q"], after["b"], after["a"])


def test_assignor_of_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(TidelogError, match=r"no assignor 'stiky'; .* range, roundrobin, sticky, cooperative-sticky"):
        assignor_named("stiky")


@pytest.mark.parametrize(
    ("assignor", "members", "partitions"),
    [("range", 1000, 10_000), ("roundrobin", 1000, 10_000), ("sticky", 100, 2_000)],
)
def test_assignment_of_a_large_group_takes_less_than_a_second(assignor: str, members: int, partitions: int) -> None:
    topics = {f"t{index}": partitions // 20 for index in range(20)}
    group = [member(f"m{index}", frozenset(topics), assignor=assignor) for index in range(members)]
    first, seconds = timed(assignor, topics, group)
    changed = [member(name, frozenset(topics), frozenset(first[name]), 1, assignor) for name in list(first)[1:]]
    _, again = timed(assignor, topics, changed)
    assert max(seconds, again) < 1


def timed(assignor: str, partitions: Mapping[str, int], members: list[Member]) -> tuple[Assignment, float]:
    start = process_time()
    assignment = assignor_named(assignor).assign(topics_of(partitions), members)
    return assignment, process_time() - start
