"""The reconciliation of a member with its target: Kafka's CurrentAssignmentBuilderTest, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from consumer_groups import parts

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.groups.consumer.assignors import Assignment, TopicPartition
from tidelog_node.groups.consumer.member import ConsumerGroupMember, MemberState
from tidelog_node.groups.consumer.reconciliation import reconcile

NOTHING: Assignment = frozenset()


def member(
    state: MemberState, epoch: int, assigned: Assignment, pending: Assignment = NOTHING, previous: int = 9
) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        "m",
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )


def free(partition: TopicPartition) -> str | None:
    return None


def owned_by_others(*partitions: TopicPartition) -> dict[TopicPartition, str]:
    return dict.fromkeys(partitions, "other")


STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def test_stable_member_stays_at_the_target_epoch() -> None:
    at_target = member(STABLE, 10, parts("a", 1, 2))
    assert reconcile(at_target, 10, parts("a", 1, 2), free, None) is at_target


def test_stable_member_comes_to_an_epoch_that_changes_nothing_for_it() -> None:
    after = reconcile(member(STABLE, 10, parts("a", 1)), 11, parts("a", 1), free, None)
    assert after == member(STABLE, 11, parts("a", 1), previous=10)


def test_stable_member_gets_what_is_free_with_the_epoch() -> None:
    after = reconcile(member(STABLE, 10, parts("a", 1)), 11, parts("a", 1, 2), free, None)
    assert after == member(STABLE, 11, parts("a", 1, 2), previous=10)


def test_stable_member_stays_in_its_epoch_while_it_has_to_give_up() -> None:
    before = member(STABLE, 10, parts("a", 1, 2))
    after = reconcile(before, 11, parts("a", 2, 3), free, None)
    assert after == member(UNREVOKED, 10, parts("a", 2), parts("a", 1), previous=10)


def test_stable_member_need_not_give_up_what_it_says_that_it_does_not_own() -> None:
    after = reconcile(member(STABLE, 10, parts("a", 1, 2)), 11, parts("a", 2, 3), free, parts("a", 2))
    assert after == member(STABLE, 11, parts("a", 2, 3), previous=10)


def test_stable_member_waits_in_the_new_epoch_for_what_others_own() -> None:
    owners = owned_by_others(*parts("a", 2))
    after = reconcile(member(STABLE, 10, parts("a", 1)), 11, parts("a", 1, 2, 3), owners.get, None)
    assert after == member(UNRELEASED, 11, parts("a", 1, 3), previous=10)


@pytest.mark.parametrize("owned", [None, parts("a", 1, 2), parts("a", 1)])
def test_unrevoked_member_stays_while_it_owns_or_does_not_say(owned: Assignment | None) -> None:
    before = member(UNREVOKED, 10, parts("a", 2), parts("a", 1))
    assert reconcile(before, 12, parts("a", 2, 3), free, owned) is before


def test_unrevoked_member_comes_to_the_latest_target_when_it_has_given_up() -> None:
    before = member(UNREVOKED, 10, parts("a", 2), parts("a", 1))
    after = reconcile(before, 12, parts("a", 2, 3), free, parts("a", 2))
    assert after == member(STABLE, 12, parts("a", 2, 3), previous=10)


def test_unrevoked_member_gives_up_more_when_the_latest_target_takes_more() -> None:
    before = member(UNREVOKED, 10, parts("a", 2, 3), parts("a", 1))
    after = reconcile(before, 12, parts("a", 3), free, parts("a", 2, 3))
    assert after == member(UNREVOKED, 10, parts("a", 3), parts("a", 2), previous=10)


def test_unrevoked_member_gets_back_what_it_has_just_given_up() -> None:
    # KAFKA-16147: the member itself still counts as the owner.
    before = member(UNREVOKED, 10, parts("a", 2), parts("a", 1))
    after = reconcile(before, 12, parts("a", 1, 2), dict.fromkeys(parts("a", 1, 2), "m").get, parts("a", 2))
    assert after == member(STABLE, 12, parts("a", 1, 2), previous=10)


def test_unreleased_member_gets_what_has_become_free() -> None:
    owners = owned_by_others(*parts("a", 3))
    before = member(UNRELEASED, 11, parts("a", 1))
    after = reconcile(before, 11, parts("a", 1, 2, 3), owners.get, None)
    assert after == member(UNRELEASED, 11, parts("a", 1, 2), previous=11)
    assert reconcile(after, 11, parts("a", 1, 2, 3), free, None) == member(STABLE, 11, parts("a", 1, 2, 3), previous=11)


def test_unreleased_member_needs_no_record_to_wait_on() -> None:
    before = member(UNRELEASED, 11, parts("a", 1))
    assert reconcile(before, 11, parts("a", 1, 2), owned_by_others(*parts("a", 2)).get, None) is before


def test_unreleased_member_gives_up_what_a_later_target_takes() -> None:
    before = member(UNRELEASED, 11, parts("a", 1, 2))
    after = reconcile(before, 12, parts("a", 2, 3), owned_by_others(*parts("a", 3)).get, None)
    assert after == member(UNREVOKED, 11, parts("a", 2), parts("a", 1), previous=11)


def test_state_that_is_not_known_is_one_of_a_later_version() -> None:
    value = replace(member(STABLE, 10, parts("a", 1)).current_assignment(), state=9)
    assert ConsumerGroupMember("m").owning(value).state is MemberState.UNKNOWN


@pytest.mark.parametrize("owned", [None, parts("a", 1)])
def test_member_in_a_state_of_a_later_version_is_fenced_while_it_owns(owned: Assignment | None) -> None:
    with pytest.raises(TidelogError) as error:
        reconcile(member(MemberState.UNKNOWN, 10, parts("a", 1)), 11, parts("a", 1), free, owned)
    assert error.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_member_in_a_state_of_a_later_version_goes_on_when_it_owns_nothing() -> None:
    after = reconcile(member(MemberState.UNKNOWN, 10, parts("a", 1)), 11, parts("a", 2), free, NOTHING)
    assert after == replace(member(STABLE, 11, parts("a", 2)), previous_member_epoch=10)
