"""One partition's change: a table of cases, and what holds for any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.ids import (
    LOST_DIRECTORY,
    NO_BROKER,
    UNASSIGNED_DIRECTORY,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_quorum.controller.partition_change import (
    UNCHANGED,
    Election,
    ElectionRules,
    PartitionTarget,
    partition_change,
)
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration

TOPIC = TopicId(b"t" * 16)
ELR = ElectionRules(min_isr=2, uses_elr=True)
OLD = ElectionRules(min_isr=2)
UNCLEAN = Election.UNCLEAN
PREFERRED = Election.PREFERRED


def ids(*broker_ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, broker_ids))


def brokers(active: Iterable[int], others: Iterable[int] = (), **fields: Any) -> dict[BrokerId, BrokerRegistration]:
    def broker(broker_id: int, fenced: bool) -> BrokerRegistration:
        registered = BrokerEpoch(1), bytes(16), Endpoint("h", 1)
        return BrokerRegistration(BrokerId(broker_id), *registered, fenced=fenced, **fields)

    states = dict.fromkeys(others, True) | dict.fromkeys(active, False)
    return {BrokerId(b): broker(b, fenced) for b, fenced in states.items()}


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, **fields: Any) -> PartitionRegistration:
    lists: dict[str, Any] = {n: ids(*value) if n != "directories" else value for n, value in fields.items()}
    return PartitionRegistration(
        ids(*replicas), ids(*isr), BrokerId(leader), LeaderEpoch(3), PartitionEpoch(5), **lists
    )


def after(
    before: PartitionRegistration,
    active: Iterable[int],
    rules: ElectionRules,
    target: PartitionTarget = UNCHANGED,
    election: Election = Election.ONLINE,
    registered: Mapping[BrokerId, BrokerRegistration] | None = None,
) -> PartitionRegistration:
    known = brokers(active, before.replicas) if registered is None else registered
    change = partition_change(known, rules, TOPIC, 0, before, target, election)
    return before if change is None else before.changed_by(change)


def elr_state(p: PartitionRegistration) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return p.leader, p.isr, p.eligible_leader_replicas, p.last_known_elr


ALL = (1, 2, 3)


@pytest.mark.parametrize(
    ("before", "active", "isr", "rules", "election", "leader_and_isr"),
    [
        # the leader goes: the first ISR member in the order of the replicas that can serve follows
        (partition(ALL, (1, 3, 2), 1), {2, 3}, (3, 2), OLD, Election.ONLINE, (2, (3, 2))),
        (partition(ALL, (1, 3), 1), {2, 3}, (3,), OLD, Election.ONLINE, (3, (3,))),
        # a follower goes: the leader stays
        (partition(ALL, ALL, 2), {1, 2}, (1, 2), OLD, Election.ONLINE, (2, (1, 2))),
        # the last member stays in the ISR without leading
        (partition(ALL, (1,), 1), {2, 3}, (), OLD, Election.ONLINE, (-1, (1,))),
        (partition(ALL, (1, 2), 2), {3}, (), OLD, Election.ONLINE, (-1, (2,))),
        (partition(ALL, (2,), -1), {3}, (), OLD, Election.ONLINE, (-1, (2,))),
        # it leads again when it is back
        (partition(ALL, (1,), -1), {1}, None, OLD, Election.ONLINE, (1, (1,))),
        # unclean: any replica that can serve, alone in the ISR, but only if none of the ISR can
        (partition(ALL, (1,), 1), {2, 3}, (), OLD, UNCLEAN, (2, (2,))),
        (partition(ALL, (1,), -1), {3}, None, OLD, UNCLEAN, (3, (3,))),
        (partition(ALL, (1, 3), 1), {2, 3}, (3,), OLD, UNCLEAN, (3, (3,))),
        (partition(ALL, (1,), -1), {1, 2}, None, OLD, UNCLEAN, (1, (1,))),
        (partition(ALL, (1,), -1), set(), None, OLD, UNCLEAN, (-1, (1,))),
        # preferred: the first replica if it is in the ISR and can serve
        (partition(ALL, ALL, 2), {1, 2, 3}, None, OLD, PREFERRED, (1, ALL)),
        (partition(ALL, (2, 3), 2), {1, 2, 3}, None, OLD, PREFERRED, (2, (2, 3))),
        (partition(ALL, ALL, 2), {2, 3}, None, OLD, PREFERRED, (2, ALL)),
        (partition(ALL, (2, 3), 1), {2, 3}, None, OLD, PREFERRED, (2, (2, 3))),
        # an ordinary election does not move a leader that can serve
        (partition(ALL, ALL, 2), {1, 2, 3}, None, OLD, Election.ONLINE, (2, ALL)),
        (partition(ALL, ALL, 2), {1, 2, 3}, None, OLD, UNCLEAN, (2, ALL)),
    ],
)
def test_partition_change_elects_without_elr(
    before: PartitionRegistration,
    active: set[int],
    isr: tuple[int, ...] | None,
    rules: ElectionRules,
    election: Election,
    leader_and_isr: tuple[int, tuple[int, ...]],
) -> None:
    changed = after(before, active, rules, PartitionTarget(None if isr is None else ids(*isr)), election)
    assert (changed.leader, changed.isr) == leader_and_isr
    assert changed.eligible_leader_replicas == changed.last_known_elr == ()


@pytest.mark.parametrize(
    ("before", "active", "isr", "unclean", "election", "state"),
    [
        # enough members: no ELR
        (partition(ALL, ALL, 1), {1, 2}, (1, 2), (), Election.ONLINE, (1, (1, 2), (), ())),
        # below min.insync.replicas those who leave are eligible
        (partition(ALL, (1, 2), 1), {1}, (1,), (), Election.ONLINE, (1, (1,), (2,), ())),
        (partition(ALL, ALL, 1), {1}, (1,), (), Election.ONLINE, (1, (1,), (2, 3), ())),
        # the ISR becomes empty, who led is remembered
        (partition(ALL, (1,), 1, eligible_leader_replicas=(2,)), (), (), (), Election.ONLINE, (-1, (), (1, 2), (1,))),
        # elected out of the ELR: alone in the ISR
        (
            partition(ALL, (), -1, eligible_leader_replicas=(1, 2), last_known_elr=(1,)),
            {2},
            None,
            (),
            Election.ONLINE,
            (2, (2,), (1,), ()),
        ),
        # not while the ISR has a member
        (partition(ALL, (1,), -1, eligible_leader_replicas=(2,)), {2}, None, (), Election.ONLINE, (-1, (1,), (2,), ())),
        # nobody who is in neither
        (
            partition(ALL, (), -1, eligible_leader_replicas=(2,), last_known_elr=(1,)),
            {1, 3},
            None,
            (),
            Election.ONLINE,
            (-1, (), (2,), (1,)),
        ),
        # an unclean shutdown ends the membership of both
        (partition(ALL, (1,), 1, eligible_leader_replicas=(2,)), {1}, None, (2,), Election.ONLINE, (1, (1,), (), ())),
        (partition(ALL, (1,), 1, eligible_leader_replicas=(2,)), (), (), (1,), Election.ONLINE, (-1, (), (2,), (1,))),
        # nobody is eligible: the last known leader when it is back, nobody else
        (partition(ALL, (1,), 1), (), (), (1,), Election.ONLINE, (-1, (), (), (1,))),
        (partition(ALL, (), -1, last_known_elr=(1,)), {2}, None, (), Election.ONLINE, (-1, (), (), (1,))),
        (partition(ALL, (), -1, last_known_elr=(1,)), {1, 2}, None, (), Election.ONLINE, (1, (1,), (), ())),
        (partition(ALL, (), -1, last_known_elr=(3,)), {1, 3}, None, (), UNCLEAN, (3, (3,), (), ())),
        # unclean: the ELR first, then anybody, and the ELR ends
        (partition(ALL, (), -1, eligible_leader_replicas=(2,)), {1, 2}, None, (), UNCLEAN, (2, (2,), (), ())),
        (partition(ALL, (), -1, eligible_leader_replicas=(2,)), {3}, None, (), UNCLEAN, (3, (3,), (), ())),
        # the ISR has grown to min.insync.replicas
        (
            partition(ALL, (1,), 1, eligible_leader_replicas=(2,)),
            {1, 2, 3},
            (1, 3),
            (),
            Election.ONLINE,
            (1, (1, 3), (), ()),
        ),
        # the leader goes for one of the ELR's who came back into the ISR
        (partition(ALL, (1, 2), 1), {2}, (2,), (), Election.ONLINE, (2, (2,), (1,), ())),
        # one who led an ISR that had no leader
        (partition(ALL, (2,), -1), (), (), (2,), Election.ONLINE, (-1, (), (), (2,))),
        # preferred is no reason to take an ELR member while the ISR can lead
        (partition(ALL, (2,), 2, eligible_leader_replicas=(1,)), {1, 2}, None, (), PREFERRED, (2, (2,), (1,), ())),
        (partition(ALL, (), -1, eligible_leader_replicas=(1, 3)), {1, 3}, None, (), PREFERRED, (1, (1,), (3,), ())),
    ],
)
def test_partition_change_keeps_the_elr(
    before: PartitionRegistration,
    active: Iterable[int],
    isr: tuple[int, ...] | None,
    unclean: tuple[int, ...],
    election: Election,
    state: tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    target = PartitionTarget(None if isr is None else ids(*isr), unclean_shutdown=frozenset(ids(*unclean)))
    assert elr_state(after(before, active, ELR, target, election)) == state


def test_partition_change_has_no_elr_beside_a_leader_when_one_replica_is_enough() -> None:
    rules = ElectionRules(min_isr=1, uses_elr=True)
    gone = after(partition(ALL, ALL, 1), (), rules, PartitionTarget(isr=()))
    assert elr_state(gone) == (-1, (), ALL, (1,))
    # From now on the high watermark moves with replica 2 alone.
    assert elr_state(after(gone, {2}, rules)) == (2, (2,), (), ())


def test_partition_change_takes_no_more_for_enough_than_there_are_replicas() -> None:
    rules = ElectionRules(min_isr=3, uses_elr=True)
    shrunk = after(partition((1, 2), (1, 2), 1), {1}, rules, PartitionTarget(isr=ids(1)))
    assert elr_state(shrunk) == (1, (1,), (2,), ())
    assert elr_state(after(shrunk, {1, 2}, rules, PartitionTarget(isr=ids(1, 2)))) == (1, (1, 2), (), ())


def test_partition_change_clears_the_elr_when_it_is_not_in_use_any_more() -> None:
    before = partition(ALL, (), -1, eligible_leader_replicas=(2, 3), last_known_elr=(1,))
    assert elr_state(after(before, {3}, OLD)) == (3, (3,), (), ())
    assert elr_state(after(before, (), OLD)) == (-1, (2,), (), ())
    assert elr_state(after(partition(ALL, (1,), 1, eligible_leader_replicas=(2,)), {1}, OLD)) == (1, (1,), (), ())


@pytest.mark.parametrize(
    ("isr", "removing", "adding", "completes"),
    [
        ((1, 2, 3, 4), (1,), (4,), True),
        ((2, 3, 4), (1,), (4,), True),
        ((1, 2, 3), (1,), (4,), False),
        # a target replica that is out of sync is waited for, too
        ((1, 2, 4), (1,), (4,), False),
        ((1, 2, 3, 4), (1, 2), (), True),
        ((1, 3, 4), (1, 2), (), True),
        ((1, 2), (3, 4), (), True),
        ((1, 2, 3, 4), (), (4,), True),
    ],
)
def test_partition_change_completes_a_reassignment_when_all_targets_are_in_sync(
    isr: tuple[int, ...], removing: tuple[int, ...], adding: tuple[int, ...], completes: bool
) -> None:
    before = partition((1, 2, 3, 4), (1, 2), 1, removing_replicas=removing, adding_replicas=adding)
    changed = after(before, {1, 2, 3, 4}, OLD, PartitionTarget(isr=ids(*isr)))
    assert changed.is_reassigning is not completes
    if completes:
        left = tuple(b for b in (1, 2, 3, 4) if b not in removing)
        assert (changed.replicas, set(changed.isr)) == (left, set(left))
        assert (changed.adding_replicas, changed.removing_replicas) == ((), ())
        assert changed.leader == (left[0] if 1 in removing else 1)
        assert changed.leader_epoch == before.leader_epoch + bool(removing)
    else:
        assert (changed.replicas, changed.isr, changed.leader_epoch) == (before.replicas, isr, before.leader_epoch)


def test_partition_change_begins_a_reassignment_and_says_where_the_new_replica_is() -> None:
    here, there = DirectoryId(b"h" * 16), DirectoryId(b"x" * 16)
    before = partition((1, 2), (1, 2), 1, directories=(here, here))
    known = brokers((1, 2), log_dirs=(here,)) | brokers((3,), log_dirs=(there,))
    target = PartitionTarget(replicas=ids(3, 2, 1), adding=ids(3), removing=ids(1))
    changed = after(before, (), OLD, target, registered=known)
    assert (changed.replicas, changed.adding_replicas, changed.removing_replicas) == ((3, 2, 1), (3,), (1,))
    assert changed.directories == (there, here, here)
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (1, 3, 6)
    done = after(changed, (), OLD, PartitionTarget(isr=ids(1, 2, 3)), registered=known)
    assert (done.replicas, done.isr, done.directories) == ((3, 2), (2, 3), (there, here))
    assert (done.leader, done.leader_epoch) == (3, 4)


def test_partition_change_with_only_a_removal_completes_at_once() -> None:
    target = PartitionTarget(replicas=ids(1, 2, 3), removing=ids(3))
    changed = after(partition(ALL, ALL, 1), ALL, OLD, target)
    assert (changed.replicas, changed.isr, changed.removing_replicas, changed.leader_epoch) == ((1, 2), (1, 2), (), 4)


def test_partition_change_drops_a_removed_replica_from_the_elr() -> None:
    before = partition(ALL, (1,), 1, eligible_leader_replicas=(2, 3), removing_replicas=(2, 3))
    assert elr_state(after(before, ALL, ELR)) == (1, (1,), (), ())


def test_partition_change_does_not_elect_a_replica_whose_directory_is_offline() -> None:
    good, bad = DirectoryId(b"g" * 16), DirectoryId(b"b" * 16)
    before = partition(ALL, ALL, 1, directories=(good, good, good))
    known = brokers(ALL, log_dirs=(good,))
    moved = after(before, (), OLD, PartitionTarget(directories={BrokerId(1): bad}), registered=known)
    assert (moved.leader, moved.directories) == (2, (bad, good, good))
    lost = after(
        before, (), OLD, PartitionTarget(ids(2, 3), directories={BrokerId(1): LOST_DIRECTORY}), registered=known
    )
    assert (lost.leader, lost.isr) == (2, (2, 3))


def test_partition_change_is_none_when_nothing_changes() -> None:
    for rules in (OLD, ELR):
        for election in Election:
            assert partition_change(brokers(ALL), rules, TOPIC, 0, partition(ALL, ALL, 1), election=election) is None


def test_partition_change_bumps_only_the_partition_epoch_when_the_isr_shrinks() -> None:
    changed = after(partition(ALL, ALL, 1), {1, 2}, ELR, PartitionTarget(isr=ids(1, 2)))
    assert (changed.leader_epoch, changed.partition_epoch) == (3, 6)


FEW = st.sets(st.integers(1, 5))


@st.composite
def changes(draw: st.DrawFn) -> tuple[PartitionRegistration, set[int], ElectionRules, PartitionTarget, Election]:
    """A partition that can be, and something that happens to it."""
    uses_elr = draw(st.booleans())
    replicas = draw(st.lists(st.integers(1, 5), min_size=1, unique=True))
    isr = draw(st.lists(st.sampled_from(replicas), unique=True, min_size=0 if uses_elr else 1))
    rest = [b for b in replicas if b not in isr]
    some = st.lists(st.sampled_from(rest), unique=True) if rest else st.just([])
    elr = draw(some) if uses_elr else []
    leader = draw(st.sampled_from([*isr, -1]))
    kinds = draw(st.lists(st.sampled_from(["stay", "add", "remove"]), min_size=len(replicas), max_size=len(replicas)))
    adding = [b for b, kind in zip(replicas, kinds, strict=True) if kind == "add"]
    removing = [b for b, kind in zip(replicas, kinds, strict=True) if kind == "remove"]
    before = partition(
        tuple(replicas),
        tuple(isr),
        leader,
        eligible_leader_replicas=tuple(elr),
        last_known_elr=(draw(st.sampled_from(replicas)),) if uses_elr and leader == -1 and not isr else (),
        adding_replicas=tuple(adding) if len(adding) < len(replicas) else (),
        removing_replicas=tuple(removing) if len(removing) < len(replicas) else (),
    )
    unclean = frozenset(map(BrokerId, draw(FEW))) if uses_elr else frozenset()
    target_isr = draw(st.none() | st.lists(st.sampled_from(replicas), unique=True))
    if unclean:
        target_isr = [b for b in (isr if target_isr is None else target_isr) if b not in unclean]
    target = PartitionTarget(None if target_isr is None else ids(*target_isr), unclean_shutdown=unclean)
    rules = ElectionRules(draw(st.integers(1, 4)), uses_elr, draw(st.booleans()))
    # Who started anew is fenced, and an ISR loses all its members only when none of them can serve.
    away = set(unclean) | (set(isr) if target_isr == [] else set())
    return before, draw(FEW) - away, rules, target, draw(st.sampled_from(Election))


@given(changes())
@settings(max_examples=examples(400), deadline=None)
def test_partition_change_upholds_the_rules_whatever_changes(
    case: tuple[PartitionRegistration, set[int], ElectionRules, PartitionTarget, Election],
) -> None:
    before, active, rules, target, election = case
    known = brokers(active, {1, 2, 3, 4, 5} - active)
    change = partition_change(known, rules, TOPIC, 0, before, target, election)
    p = before if change is None else before.changed_by(change)
    isr, elr = set(p.isr), set(p.eligible_leader_replicas)
    held = {*before.isr, *before.eligible_leader_replicas, *(target.isr or ())}
    assert p.leader == NO_BROKER or (p.leader in isr and p.leader in active)
    assert isr <= set(p.replicas)
    assert elr <= set(p.replicas)
    assert not elr & isr
    assert not elr & target.unclean_shutdown
    assert elr <= held
    assert not elr or len(isr) < min(rules.min_isr, len(p.replicas))
    assert isr or rules.uses_elr
    assert rules.uses_elr or not (elr or p.last_known_elr)
    assert p.leader == NO_BROKER or not p.last_known_elr
    assert p.leader != NO_BROKER or not active & (isr or elr)
    assert p.leader != NO_BROKER or election is not Election.UNCLEAN or not active & set(p.replicas)
    was_last_known = before.last_known_elr == (p.leader,)
    assert election is Election.UNCLEAN or p.leader == NO_BROKER or was_last_known or p.leader in held
    assert set(p.adding_replicas) <= set(p.replicas)
    assert set(p.removing_replicas) <= set(p.replicas)
    assert p.leader == before.leader or p.leader_epoch > before.leader_epoch
    assert p.directories == (UNASSIGNED_DIRECTORY,) * len(p.replicas)
    if change is not None:
        assert p.partition_epoch == before.partition_epoch + 1
        assert p != before
    # The same again changes nothing, but that a member who was kept or elected may complete a reassignment.
    again = partition_change(known, rules, TOPIC, 0, p, election=Election.ONLINE)
    assert again is None or again.removing_replicas == () or again.adding_replicas == ()
