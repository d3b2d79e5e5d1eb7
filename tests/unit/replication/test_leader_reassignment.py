"""A leader whose followers come and go (KIP-455): what counts for the high watermark, and what becomes of proposals."""

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.replication import PartitionState
from tidelog_node.replication.commands import AdvanceHighWatermark, LeadershipLost, ProposeIsr, StartFetching
from tidelog_node.replication.events import (
    EligibleBrokersChanged,
    FollowerFetched,
    IsrChangeAccepted,
    IsrChangeRefused,
    RecordsAppended,
    RegistrationChanged,
    TimePassed,
)

LAG_MS = 1_000
EPOCHS = {1: 10, 2: 20, 3: 30, 4: 40}


class Leader:
    """Node 1 with its state machine; invariants are checked after every step."""

    def __init__(self, replicas=(1, 2), isr=(1, 2), log_end=0, min_isr=1):
        self.state = PartitionState(1, 0, min_isr, LAG_MS)
        self.now_ms = 5_000
        self.partition_epoch = -1
        self.step(EligibleBrokersChanged(EPOCHS, EPOCHS))
        self.register(replicas, isr, log_end=log_end)

    def step(self, event):
        commands = self.state.step(event, self.now_ms)
        self.state.check_invariants()
        return commands

    def register(self, replicas, isr, leader=1, leader_epoch=0, log_end=None):
        self.partition_epoch += 1
        end = self.state.leader.log_end_offset if log_end is None and self.state.leader else log_end or 0
        event = RegistrationChanged(replicas, frozenset(isr), leader, leader_epoch, self.partition_epoch, end)
        return self.step(event)

    def fetch(self, replica, offset):
        return self.step(FollowerFetched(replica, EPOCHS[replica], offset, 0))

    def append(self, end):
        return self.step(RecordsAppended(end))

    @property
    def high_watermark(self):
        return self.state.high_watermark


def proposals(commands):
    return [c for c in commands if isinstance(c, ProposeIsr)]


def test_added_follower_is_not_waited_for_before_it_has_caught_up():
    leader = Leader()
    leader.append(5)
    leader.register((1, 2, 3), (1, 2))

    assert leader.fetch(2, 5) == [AdvanceHighWatermark(5)]
    leader.append(9)
    assert leader.fetch(3, 2) == [], "behind the high watermark: it may not join yet"
    leader.fetch(2, 9)

    assert leader.high_watermark == 9


def test_added_follower_joins_when_it_has_reached_the_high_watermark_and_is_waited_for_from_then_on():
    leader = Leader()
    leader.append(5)
    leader.fetch(2, 5)
    leader.register((1, 2, 3), (1, 2))

    [proposal] = proposals(leader.fetch(3, 5))
    assert [b for b, _ in proposal.isr] == [1, 2, 3]
    leader.append(6)
    leader.fetch(2, 6)

    assert leader.high_watermark == 5, "the controller may have let it in already"


def test_replicas_of_a_move_count_for_min_insync_replicas():
    leader = Leader(replicas=(1,), isr=(1,), min_isr=2)
    leader.append(1)
    assert leader.high_watermark == 1, "one replica can ask for no more than itself"

    leader.register((1, 2, 3), (1,))

    with pytest.raises(TidelogError) as raised:
        leader.state.require_leader().check_enough_replicas()
    assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_removed_follower_is_waited_for_no_more():
    leader = Leader(replicas=(1, 2, 3), isr=(1, 2, 3))
    leader.append(4)
    leader.fetch(2, 4)
    assert leader.high_watermark == 0

    leader.register((1, 2), (1, 2), leader_epoch=1)
    leader.fetch(2, 4)

    assert leader.high_watermark == 4
    with pytest.raises(TidelogError) as raised:
        leader.state.require_leader().check_follower(3, EPOCHS[3])
    assert raised.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_high_watermark_waits_in_the_epoch_that_a_removal_begins_until_the_others_have_fetched_in_it():
    leader = Leader(replicas=(1, 2, 3), isr=(1, 2, 3))
    leader.append(4)
    leader.fetch(2, 4)

    assert [c for c in leader.register((1, 2), (1, 2), leader_epoch=1) if isinstance(c, LeadershipLost)] == []

    assert leader.high_watermark == 0
    assert leader.state.require_leader().epoch_start_offset == 4


def test_proposal_is_forgotten_when_its_replica_is_taken_away_and_a_late_answer_changes_nothing():
    leader = Leader(replicas=(1, 2, 3), isr=(1, 2))
    leader.append(3)
    leader.fetch(2, 3)
    [proposal] = proposals(leader.fetch(3, 3))

    leader.register((1, 2), (1, 2), leader_epoch=1)
    leader.step(IsrChangeAccepted(proposal.proposal_id, 0, 1, frozenset({1, 2, 3})))
    leader.step(IsrChangeRefused(proposal.proposal_id, ErrorCode.REQUEST_TIMED_OUT))

    assert leader.state.require_leader().isr.members == {1, 2}
    assert leader.state.require_leader().isr.maximal == {1, 2}


def test_answer_that_completes_a_move_with_removals_is_left_to_the_metadata():
    leader = Leader(replicas=(1, 3, 2), isr=(1, 2))
    leader.append(3)
    leader.fetch(2, 3)
    [proposal] = proposals(leader.fetch(3, 3))

    # The controller has taken 2 away with it, in a new leader epoch.
    assert leader.step(IsrChangeAccepted(proposal.proposal_id, 1, 1, frozenset({1, 3}))) == []
    assert leader.state.require_leader().isr.maximal == {1, 2, 3}
    leader.register((1, 3), (1, 3), leader_epoch=1)

    assert leader.state.require_leader().isr.members == {1, 3}
    assert leader.state.leader_epoch == 1


def test_answer_that_completes_a_move_that_only_adds_holds_at_once_and_its_metadata_changes_nothing():
    leader = Leader(replicas=(1, 2, 3), isr=(1, 2))
    leader.append(3)
    leader.fetch(2, 3)
    [proposal] = proposals(leader.fetch(3, 3))

    leader.step(IsrChangeAccepted(proposal.proposal_id, 0, 1, frozenset({1, 2, 3})))
    assert leader.state.require_leader().isr.members == {1, 2, 3}

    assert leader.register((1, 2, 3), (1, 2, 3)) == []


def test_leader_that_a_completed_move_takes_away_waits_for_the_metadata_and_then_resigns():
    leader = Leader(replicas=(3, 1, 2), isr=(1, 2))
    leader.append(3)
    leader.fetch(2, 3)
    [proposal] = proposals(leader.fetch(3, 3))

    assert leader.step(IsrChangeRefused(proposal.proposal_id, ErrorCode.NEW_LEADER_ELECTED)) == []
    assert leader.step(TimePassed()) == [], "it is not sent again"
    commands = leader.register((3, 2), (2, 3), leader=3, leader_epoch=1)

    assert commands == [LeadershipLost(), StartFetching(3, 1)]


def test_follower_that_comes_back_begins_from_nothing():
    leader = Leader(replicas=(1, 2), isr=(1, 2))
    leader.append(4)
    leader.fetch(2, 4)
    leader.register((1,), (1,), leader_epoch=1)
    leader.append(8)
    assert leader.high_watermark == 8

    leader.register((1, 2), (1,), leader_epoch=1)

    progress = leader.state.require_leader().followers[2]
    assert progress.log_end_offset == -1
    assert proposals(leader.fetch(2, 0)) == []
    assert len(proposals(leader.fetch(2, 8))) == 1


def test_member_that_was_removed_is_not_proposed_again_when_others_lag():
    leader = Leader(replicas=(1, 2, 3), isr=(1, 2, 3))
    leader.append(1)
    leader.fetch(2, 1)
    leader.register((1, 2), (1, 2), leader_epoch=1)
    leader.now_ms += LAG_MS + 1

    [proposal] = proposals(leader.step(TimePassed()))

    assert [b for b, _ in proposal.isr] == [1]
