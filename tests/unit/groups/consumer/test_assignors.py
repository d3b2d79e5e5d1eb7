"""Both assignors, over random groups: what every assignment must be, and what each promises beyond."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_node.groups.consumer.assignors import ASSIGNORS, Assignment, MemberSpec, assign_range, assign_uniform

TOPICS = [bytes([index]) * 16 for index in range(1, 5)]
A, B, C = TOPICS[:3]
MEMBERS = [f"m{index}" for index in range(6)]
counts = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(1, 7)))
member_sets = st.sets(st.sampled_from(MEMBERS), min_size=1)
subscription_sets = st.frozensets(st.sampled_from(TOPICS))
both = pytest.mark.parametrize("name", sorted(ASSIGNORS))


def specs(
    subscriptions: dict[str, frozenset[bytes]], had: dict[str, Assignment] | None = None
) -> dict[str, MemberSpec]:
    return {m: MemberSpec(topics, (had or {}).get(m, frozenset())) for m, topics in subscriptions.items()}


def every_partition(topics: frozenset[bytes], partition_counts: dict[bytes, int]) -> Assignment:
    return frozenset((topic, index) for topic in topics for index in range(partition_counts[topic]))


def check_assignment(
    members: dict[str, MemberSpec], partition_counts: dict[bytes, int], assigned: dict[str, Assignment]
) -> None:
    """Every partition of a subscribed topic once, at a subscriber."""
    assert set(assigned) == set(members)
    owners = Counter(partition for partitions in assigned.values() for partition in partitions)
    subscribed = frozenset[bytes]().union(*(member.subscribed_topic_ids for member in members.values()))
    assert owners == Counter(every_partition(subscribed, partition_counts))
    for member_id, partitions in assigned.items():
        assert {topic for topic, _ in partitions} <= members[member_id].subscribed_topic_ids


def moves(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """Return the number of partitions taken from members that stay."""
    return sum(len(partitions - after[member]) for member, partitions in before.items() if member in after)


@both
@settings(max_examples=examples(60), deadline=None)
@given(
    first=st.dictionaries(st.sampled_from(MEMBERS), subscription_sets, min_size=1),
    then=st.dictionaries(st.sampled_from(MEMBERS), subscription_sets, min_size=1),
    before=counts,
    after=counts,
)
def test_assignor_assigns_each_partition_once_to_a_subscriber(
    name: str,
    first: dict[str, frozenset[bytes]],
    then: dict[str, frozenset[bytes]],
    before: dict[bytes, int],
    after: dict[bytes, int],
) -> None:
    had = ASSIGNORS[name](specs(first), before)
    check_assignment(specs(first), before, had)
    check_assignment(specs(then, had), after, ASSIGNORS[name](specs(then, had), after))


@both
@settings(max_examples=examples(40), deadline=None)
@given(
    subscriptions=st.dictionaries(st.sampled_from(MEMBERS), subscription_sets, min_size=1),
    partition_counts=counts,
    order=st.randoms(use_true_random=False),
)
def test_assignor_moves_nothing_when_nothing_changes_whatever_the_order_of_members(
    name: str, subscriptions: dict[str, frozenset[bytes]], partition_counts: dict[bytes, int], order: object
) -> None:
    had = ASSIGNORS[name](specs(subscriptions), partition_counts)
    shuffled = sorted(subscriptions)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    again = specs({member: subscriptions[member] for member in shuffled}, had)
    assert ASSIGNORS[name](again, partition_counts) == had


@settings(max_examples=examples(80), deadline=None)
@given(first=member_sets, then=member_sets, topics=subscription_sets, before=counts, after=counts)
def test_uniform_is_balanced_within_one_and_moves_the_fewest_when_all_subscribe_to_the_same(
    first: set[str], then: set[str], topics: frozenset[bytes], before: dict[bytes, int], after: dict[bytes, int]
) -> None:
    had = assign_uniform(specs(dict.fromkeys(first, topics)), before)
    now = assign_uniform(specs(dict.fromkeys(then, topics), had), after)
    sizes = [len(partitions) for partitions in now.values()]
    assert max(sizes) - min(sizes) <= 1
    # A balanced assignment cannot keep more than this of what there still is.
    still = sorted((len(had.get(m, frozenset()) & every_partition(topics, after)) for m in then), reverse=True)
    quota, extras = divmod(sum(sizes), len(then))
    most_kept = sum(min(size, quota + (rank < extras)) for rank, size in enumerate(still))
    assert sum(len(now[m] & had.get(m, frozenset())) for m in then) == most_kept


@settings(max_examples=examples(40), deadline=None)
@given(members=member_sets, topics=subscription_sets, partition_counts=counts)
def test_uniform_moves_only_to_a_member_that_joins_and_from_one_that_leaves(
    members: set[str], topics: frozenset[bytes], partition_counts: dict[bytes, int]
) -> None:
    had = assign_uniform(specs(dict.fromkeys(members, topics)), partition_counts)
    joined = assign_uniform(specs(dict.fromkeys([*members, "new"], topics), had), partition_counts)
    assert moves(had, joined) == len(joined["new"])
    left = assign_uniform(specs(dict.fromkeys(members, topics), joined), partition_counts)
    assert moves(joined, left) == 0


def can_be_more_balanced(members: dict[str, MemberSpec], assigned: dict[str, Assignment]) -> bool:
    """Return whether a chain of moves leads from one member to another that has at least two partitions fewer."""
    for start, owned in assigned.items():
        reached, pending = {start}, [start]
        while pending:
            topics = {topic for topic, _ in assigned[pending.pop()]}
            new = [m for m, spec in members.items() if m not in reached and spec.subscribed_topic_ids & topics]
            if any(len(assigned[member]) <= len(owned) - 2 for member in new):
                return True
            reached.update(new)
            pending.extend(new)
    return False


@settings(max_examples=examples(100), deadline=None)
@given(
    first=st.dictionaries(st.sampled_from(MEMBERS), subscription_sets, min_size=1),
    then=st.dictionaries(st.sampled_from(MEMBERS), subscription_sets, min_size=2),
    partition_counts=counts,
)
def test_uniform_is_as_balanced_as_subscriptions_allow(
    first: dict[str, frozenset[bytes]], then: dict[str, frozenset[bytes]], partition_counts: dict[bytes, int]
) -> None:
    had = assign_uniform(specs(first), partition_counts)
    members = specs(then, had)
    assert not can_be_more_balanced(members, assign_uniform(members, partition_counts))


def test_uniform_passes_partitions_on_through_a_member_between_two_that_share_no_topic() -> None:
    members = {
        "a": MemberSpec(frozenset([A]), frozenset((A, index) for index in range(4))),
        "b": MemberSpec(frozenset([A, B]), frozenset((B, index) for index in range(3))),
        "c": MemberSpec(frozenset([B, C]), frozenset([(C, 0)])),
    }
    assigned = assign_uniform(members, {A: 4, B: 3, C: 1})
    assert sorted(len(partitions) for partitions in assigned.values()) == [2, 3, 3]
    assert len(assigned["a"]) == 3


def test_uniform_gives_each_member_some_of_each_topic() -> None:
    assigned = assign_uniform(specs(dict.fromkeys("ab", frozenset([A, B]))), {A: 4, B: 4})
    for partitions in assigned.values():
        assert Counter(topic for topic, _ in partitions) == {A: 2, B: 2}


@settings(max_examples=examples(60), deadline=None)
@given(first=member_sets, then=member_sets, topics=subscription_sets, before=counts, after=counts)
def test_range_shares_each_topic_equally_and_keeps_co_partitioned_topics_together(
    first: set[str], then: set[str], topics: frozenset[bytes], before: dict[bytes, int], after: dict[bytes, int]
) -> None:
    had = assign_range(specs(dict.fromkeys(first, topics)), before)
    now = assign_range(specs(dict.fromkeys(then, topics), had), after)
    of_topic = {t: {m: {i for topic, i in now[m] if topic == t} for m in then} for t in topics}
    for shares in of_topic.values():
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1
    for one, other in pairwise(sorted(topics, key=lambda topic: after[topic])):
        if after[one] == after[other]:
            assert of_topic[one] == of_topic[other]


@settings(max_examples=examples(40), deadline=None)
@given(members=member_sets, count=st.integers(1, 12), topics=subscription_sets)
def test_range_moves_only_to_a_member_that_joins_and_from_one_that_leaves(
    members: set[str], count: int, topics: frozenset[bytes]
) -> None:
    partition_counts = dict.fromkeys(TOPICS, count)
    had = assign_range(specs(dict.fromkeys(members, topics)), partition_counts)
    joined = assign_range(specs(dict.fromkeys([*members, "new"], topics), had), partition_counts)
    assert moves(had, joined) == len(joined["new"])
    left = assign_range(specs(dict.fromkeys(members, topics), joined), partition_counts)
    assert moves(joined, left) == 0


def test_range_gives_ranges_and_one_more_to_the_first_by_instance_id() -> None:
    members = {
        "m1": MemberSpec(frozenset([A]), frozenset(), instance_id="z"),
        "m2": MemberSpec(frozenset([A]), frozenset(), instance_id="y"),
    }
    assigned = assign_range(members, {A: 5})
    assert assigned == {"m2": frozenset((A, i) for i in (0, 1, 2)), "m1": frozenset((A, i) for i in (3, 4))}


@both
def test_assignor_copes_with_a_great_group(name: str) -> None:
    topics = [index.to_bytes(16, "big") for index in range(50)]
    everything = frozenset(topics)
    subscriptions = {f"m{index:03}": everything if index % 10 else everything - {topics[0]} for index in range(200)}
    partition_counts = dict.fromkeys(topics, 20)
    check_assignment(specs(subscriptions), partition_counts, ASSIGNORS[name](specs(subscriptions), partition_counts))
