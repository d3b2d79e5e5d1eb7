import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.replication import PartitionState
from tidelog_node.replication.commands import (
    AdvanceHighWatermark,
    AssignEpochStart,
    LeadershipLost,
    ProposeIsr,
    StartFetching,
    StopFetching,
)
from tidelog_node.replication.events import (
    EligibleBrokersChanged,
    FollowerFetched,
    IsrChangeAccepted,
    IsrChangeRefused,
    MinIsrChanged,
    RecordsAppended,
    RegistrationChanged,
    TimePassed,
)

LAG_MS = 1_000
EPOCHS = {1: 10, 2: 20, 3: 30}


class Replica:
    """Drives a PartitionState of node 1 and checks its invariants after every step."""

    def __init__(self, high_watermark=0, min_isr=1):
        self.state = PartitionState(1, high_watermark, min_isr, LAG_MS)
        self.now_ms = 5_000
        self.partition_epoch = 0
        self.step(EligibleBrokersChanged(EPOCHS, EPOCHS))

    @property
    def leader(self):
        return self.state.leader

    def step(self, event):
        commands = self.state.step(event, self.now_ms)
        self.state.check_invariants()
        return commands

    def register(self, isr=(1, 2, 3), leader=1, leader_epoch=0, log_end=0, replicas=(1, 2, 3)):
        event = RegistrationChanged(replicas, frozenset(isr), leader, leader_epoch, self.partition_epoch, log_end)
        self.partition_epoch += 1
        return self.step(event)

    def append_to(self, log_end):
        return self.step(RecordsAppended(log_end))

    def fetch(self, replica_id, offset, epoch=None, log_start=0):
        broker_epoch = EPOCHS[replica_id] if epoch is None else epoch
        return self.step(FollowerFetched(replica_id, broker_epoch, offset, log_start))


def leader_of(*isr, log_end=0, high_watermark=0, min_isr=1, leader_epoch=0):
    replica = Replica(high_watermark, min_isr)
    replica.register(isr, leader_epoch=leader_epoch, log_end=log_end)
    return replica


def code_of(call, *arguments):
    with pytest.raises(TidelogError) as raised:
        call(*arguments)
    return raised.value.code


def proposal(commands):
    found = [c for c in commands if isinstance(c, ProposeIsr)]
    return found[0] if found else None


def test_leader_assigns_its_epoch_start_before_anything_else():
    replica = Replica(high_watermark=3)

    assert replica.register(leader_epoch=4, log_end=7) == [StopFetching(), AssignEpochStart(4, 7)]
    assert replica.leader.epoch_start_offset == 7
    assert replica.state.high_watermark == 3


def test_high_watermark_is_the_minimum_over_the_isr():
    replica = leader_of(1, 2, 3)
    replica.append_to(10)

    assert replica.fetch(2, 10) == []
    assert replica.fetch(3, 4) == [AdvanceHighWatermark(4)]
    assert replica.fetch(3, 10) == [AdvanceHighWatermark(10)]


def test_high_watermark_never_goes_back_when_a_follower_does():
    replica = leader_of(1, 2)
    replica.append_to(10)
    replica.fetch(2, 10)

    assert replica.fetch(2, 3) == []
    assert replica.state.high_watermark == 10


def test_high_watermark_does_not_count_fetches_of_the_epoch_before():
    replica = leader_of(1, 2)
    replica.append_to(10)
    replica.fetch(2, 10)

    replica.register((1, 2), leader_epoch=1, log_end=10)
    assert replica.append_to(12) == []
    assert replica.state.high_watermark == 10


def test_high_watermark_stands_still_while_the_isr_is_below_the_minimum():
    replica = leader_of(1, min_isr=2)

    assert replica.append_to(5) == []
    assert replica.register((1, 2)) == []
    replica.fetch(2, 5)
    assert replica.state.high_watermark == 5


def test_minimum_isr_is_never_more_than_the_replicas():
    replica = Replica(min_isr=2)
    replica.register((1,), replicas=(1,))

    assert replica.append_to(5) == [AdvanceHighWatermark(5)]


def test_lower_minimum_isr_lets_the_high_watermark_go():
    replica = leader_of(1, min_isr=2)
    replica.append_to(5)

    assert replica.step(MinIsrChanged(1)) == [AdvanceHighWatermark(5)]


def test_follower_joins_at_the_high_watermark_and_the_epoch_start():
    replica = leader_of(1, 2, log_end=10, high_watermark=4)

    assert proposal(replica.fetch(3, 4)) is None, "the epoch starts at 10"
    found = proposal(replica.fetch(3, 10))
    assert found.isr == ((1, 10), (2, -1), (3, 30))


@pytest.mark.parametrize(
    "eligible", [{1: 10, 2: 20}, {1: 10, 2: 20, 3: 29}], ids=["fenced or shutting down", "registered again"]
)
def test_follower_does_not_join_when_it_is_not_eligible(eligible):
    replica = leader_of(1, 2)
    replica.step(EligibleBrokersChanged(eligible, EPOCHS))

    assert proposal(replica.fetch(3, 0)) is None


def test_fetch_of_an_earlier_registration_is_refused():
    replica = leader_of(1, 2, 3)

    assert code_of(replica.leader.check_follower, 2, 19) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(replica.leader.check_follower, 9, 90) is ErrorCode.UNKNOWN_LEADER_EPOCH
    replica.step(EligibleBrokersChanged(EPOCHS, {**EPOCHS, 2: 21}))
    assert code_of(replica.leader.check_follower, 2, 20) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_with_an_epoch_that_the_metadata_does_not_have_shuts_no_follower_out():
    replica = leader_of(1, 2, 3)

    for claimed in (21, 2**62):
        assert code_of(replica.leader.check_follower, 2, claimed) is ErrorCode.UNKNOWN_LEADER_EPOCH
        with pytest.raises(TidelogError):
            replica.fetch(2, 0, epoch=claimed)
    replica.append_to(5)
    replica.fetch(3, 5)
    assert replica.fetch(2, 5) == [AdvanceHighWatermark(5)]


def test_pending_expand_counts_for_the_high_watermark_but_not_for_the_minimum():
    replica = leader_of(1, 2, min_isr=3)
    assert proposal(replica.fetch(3, 0)) is not None

    assert replica.leader.isr.maximal == {1, 2, 3}
    assert code_of(replica.leader.check_enough_replicas) is ErrorCode.NOT_ENOUGH_REPLICAS
    replica.state.step(MinIsrChanged(1), replica.now_ms)
    replica.now_ms += 10 * LAG_MS
    replica.append_to(5)
    replica.fetch(2, 5)
    assert replica.state.high_watermark == 0, "follower 3 may be in the ISR already"


def test_pending_shrink_counts_the_leaving_member_until_the_metadata_brings_it():
    replica = leader_of(1, 2, 3)
    replica.append_to(5)
    replica.fetch(2, 5)
    replica.now_ms += LAG_MS + 1
    replica.fetch(2, 5)
    found = proposal(replica.step(TimePassed()))

    assert [member for member, _ in found.isr] == [1, 2]
    assert replica.state.high_watermark == 0
    accepted = IsrChangeAccepted(found.proposal_id, 0, 1, frozenset({1, 2}))
    assert replica.step(accepted) == []
    assert replica.register((1, 2)) == [AdvanceHighWatermark(5)]


def test_accepted_shrink_does_not_let_a_leader_commit_by_a_minimum_that_was_raised_meanwhile():
    """The controller made follower 2 eligible (KIP-966): it knew already that two replicas are needed."""
    replica = leader_of(1, 2, min_isr=1)
    replica.append_to(5)
    replica.now_ms += LAG_MS + 1
    found = proposal(replica.step(TimePassed()))

    assert replica.step(IsrChangeAccepted(found.proposal_id, 0, 1, frozenset({1}))) == []
    assert replica.step(MinIsrChanged(2)) == []
    assert replica.register((1,)) == []
    assert replica.state.high_watermark == 0


def test_follower_stays_in_the_isr_for_the_whole_lag_time_after_an_election():
    replica = leader_of(1, 2, 3)
    replica.append_to(1)
    replica.now_ms += LAG_MS

    assert replica.step(TimePassed()) == []
    replica.now_ms += 1
    assert [m for m, _ in proposal(replica.step(TimePassed())).isr] == [1]


def test_follower_that_keeps_up_with_its_last_fetch_is_not_taken_out():
    replica = leader_of(1, 2)
    for step in range(10):
        replica.append_to(10 * (step + 1))
        replica.now_ms += LAG_MS // 2
        replica.fetch(2, 10 * step)
        assert replica.step(TimePassed()) == []


def test_only_one_change_is_under_way_at_a_time():
    replica = leader_of(1)
    assert proposal(replica.fetch(2, 0)) is not None

    assert proposal(replica.fetch(3, 0)) is None
    replica.now_ms += 10 * LAG_MS
    assert replica.step(TimePassed()) == []


def test_ineligible_member_is_forgotten_and_tried_again_at_its_next_fetch():
    replica = leader_of(1)
    first = proposal(replica.fetch(2, 0))

    assert replica.step(IsrChangeRefused(first.proposal_id, ErrorCode.INELIGIBLE_REPLICA)) == []
    assert replica.leader.isr.maximal == {1}
    assert proposal(replica.fetch(2, 0)).proposal_id > first.proposal_id


def in_doubt(replica):
    """Let node 2 be proposed twice, the first time with an unknown outcome; return the second proposal's id."""
    first = proposal(replica.fetch(2, 0))
    return proposal(replica.step(IsrChangeRefused(first.proposal_id, ErrorCode.REQUEST_TIMED_OUT))).proposal_id


def test_refusal_after_an_unknown_outcome_counts_the_joining_member_until_the_proposal_is_withdrawn():
    """An earlier copy of the proposal may be stored by another controller, or may be yet."""
    replica = leader_of(1)
    withdrawal = proposal(replica.step(IsrChangeRefused(in_doubt(replica), ErrorCode.INELIGIBLE_REPLICA)))

    assert (withdrawal.isr, withdrawal.partition_epoch) == (((1, 10),), 0)
    assert replica.leader.isr.maximal == {1, 2}
    replica.now_ms += 10 * LAG_MS
    assert replica.append_to(5) == [], "node 2 may be elected"
    assert proposal(replica.step(IsrChangeRefused(withdrawal.proposal_id, ErrorCode.INELIGIBLE_REPLICA)))


@pytest.mark.parametrize(("epoch", "maximal"), [(0, {1, 2}), (1, {1})], ids=["same epoch", "new epoch"])
def test_withdrawn_proposal_is_forgotten_when_the_partition_epoch_has_changed(epoch, maximal):
    replica = leader_of(1)
    withdrawal = proposal(replica.step(IsrChangeRefused(in_doubt(replica), ErrorCode.INELIGIBLE_REPLICA)))

    replica.step(IsrChangeAccepted(withdrawal.proposal_id, 0, epoch, frozenset({1})))
    assert replica.leader.isr.maximal == maximal


def test_withdrawal_waits_for_the_metadata_when_the_proposal_was_stored_after_all():
    replica = leader_of(1)
    withdrawal = proposal(replica.step(IsrChangeRefused(in_doubt(replica), ErrorCode.INELIGIBLE_REPLICA)))

    assert replica.step(IsrChangeRefused(withdrawal.proposal_id, ErrorCode.INVALID_UPDATE_VERSION)) == []
    replica.register((1, 2))
    assert replica.leader.isr.members == {1, 2}


def test_unknown_outcome_keeps_the_change_pending_and_asks_again():
    replica = leader_of(1)
    first = proposal(replica.fetch(2, 0))

    again = proposal(replica.step(IsrChangeRefused(first.proposal_id, ErrorCode.REQUEST_TIMED_OUT)))
    assert (again.isr, again.partition_epoch) == (first.isr, first.partition_epoch)
    assert replica.leader.isr.maximal == {1, 2}


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_lost_race_keeps_the_change_pending_until_the_metadata_arrives(code):
    replica = leader_of(1)
    first = proposal(replica.fetch(2, 0))

    assert replica.step(IsrChangeRefused(first.proposal_id, code)) == []
    assert replica.leader.isr.maximal == {1, 2}
    replica.register((1, 3))
    assert replica.leader.isr.maximal == {1, 3}


def test_answer_to_an_earlier_proposal_is_ignored():
    replica = leader_of(1)
    first = proposal(replica.fetch(2, 0))
    replica.register((1, 3))

    assert replica.step(IsrChangeAccepted(first.proposal_id, 0, 1, frozenset({1, 2}))) == []
    assert replica.leader.isr.members == {1, 3}


def test_accepted_change_makes_the_same_metadata_old():
    replica = leader_of(1)
    first = proposal(replica.fetch(2, 0))
    replica.step(IsrChangeAccepted(first.proposal_id, 0, 1, frozenset({1, 2})))

    assert replica.register((1, 2)) == []
    assert replica.leader.isr.committed.partition_epoch == 1


def test_metadata_that_is_delivered_again_settles_no_change_under_way():
    replica = leader_of(1)
    assert proposal(replica.fetch(2, 0)) is not None

    replica.partition_epoch -= 1
    assert replica.register((1,)) == []
    assert replica.leader.isr.maximal == {1, 2}, "the controller may have agreed"


def test_metadata_of_an_accepted_change_settles_no_later_one():
    replica = leader_of(1)
    first = proposal(replica.fetch(2, 0))
    replica.step(IsrChangeAccepted(first.proposal_id, 0, 1, frozenset({1, 2})))
    assert proposal(replica.fetch(3, 0)) is not None

    assert replica.register((1, 2)) == []
    assert replica.leader.isr.maximal == {1, 2, 3}


def test_answer_of_an_outdated_controller_settles_nothing():
    replica = leader_of(1)
    replica.register((1,))
    found = proposal(replica.fetch(2, 0))

    assert replica.step(IsrChangeAccepted(found.proposal_id, 0, 0, frozenset({1}))) == []
    assert replica.leader.isr.maximal == {1, 2}


@pytest.mark.parametrize("code", [None, ErrorCode.INELIGIBLE_REPLICA])
def test_answer_to_an_earlier_proposal_settles_no_later_one(code):
    replica = leader_of(1)
    first = proposal(replica.fetch(2, 0))
    replica.register((1,))
    assert proposal(replica.fetch(3, 0)) is not None

    accepted = IsrChangeAccepted(first.proposal_id, 0, 1, frozenset({1}))
    assert replica.step(accepted if code is None else IsrChangeRefused(first.proposal_id, code)) == []
    assert replica.leader.isr.maximal == {1, 3}


def test_write_is_replicated_when_the_high_watermark_has_passed_it():
    replica = leader_of(1, 2, min_isr=2)
    replica.append_to(3)

    assert not replica.leader.is_replicated(3)
    replica.fetch(2, 3)
    assert replica.leader.is_replicated(3)
    replica.register((1,))
    assert code_of(replica.leader.is_replicated, 3) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_latest_offset_is_not_available_before_the_epoch_start_is_reached():
    replica = leader_of(1, 2, log_end=10, high_watermark=4)

    assert code_of(replica.leader.latest_offset) is ErrorCode.OFFSET_NOT_AVAILABLE
    replica.fetch(2, 10)
    assert replica.leader.latest_offset() == 10


def test_requests_of_another_leader_epoch_are_fenced():
    replica = leader_of(1, leader_epoch=5)

    assert code_of(replica.state.check_leader_epoch, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(replica.state.check_leader_epoch, 6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    replica.state.check_leader_epoch(5)
    replica.state.check_leader_epoch(None)


def test_leader_that_loses_its_office_says_so_before_it_follows():
    replica = leader_of(1, 2)

    assert replica.register((2,), leader=2, leader_epoch=1) == [LeadershipLost(), StartFetching(2, 1)]
    assert code_of(replica.state.require_leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replica.register((2,), leader=-1, leader_epoch=2) == [StopFetching()]


def test_old_metadata_is_ignored():
    replica = leader_of(1, 2)
    replica.register((1, 2, 3))
    old = RegistrationChanged((1, 2, 3), frozenset({2}), 2, 9, 0, 0)

    assert replica.step(old) == []
    assert replica.state.leader_id == 1


def test_follower_out_of_the_isr_does_not_hold_the_high_watermark_back_before_it_is_near():
    replica = leader_of(1, 2)
    replica.append_to(100)
    replica.fetch(2, 50)
    replica.fetch(3, 1)

    assert replica.fetch(2, 100) == [AdvanceHighWatermark(100)]


def test_member_that_the_controller_took_out_does_not_hold_the_high_watermark_back():
    replica = leader_of(1, 2, 3)
    replica.append_to(10)
    for follower in (2, 3):
        replica.fetch(follower, 10)
    replica.register(isr=(1, 2))
    replica.append_to(20)
    assert AdvanceHighWatermark(20) in replica.fetch(2, 20), "the log directory of 3 has failed, its node lives"

    assert proposal(replica.fetch(3, 20)) is not None, "it is back"


def test_deletion_reaches_from_the_first_offset_to_the_high_watermark():
    leader = leader_of(1, 2, 3, log_end=10, high_watermark=7).leader

    assert [leader.deletion_offset(offset) for offset in (0, 7, -1)] == [0, 7, 7]
    assert code_of(leader.deletion_offset, 8) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(leader.deletion_offset, -2) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_low_watermark_is_the_least_log_start_of_the_replicas_that_live():
    replica = leader_of(1, 2, 3, log_end=10)
    assert replica.leader.low_watermark(5) == -1, "nobody has fetched yet"

    replica.fetch(2, 10, log_start=4)
    replica.fetch(3, 10, log_start=0)
    assert replica.leader.low_watermark(5) == 0
    replica.step(EligibleBrokersChanged({1: 10, 2: 20}, EPOCHS))
    assert replica.leader.low_watermark(5) == 4, "a replica whose node is away is not waited for"
    replica.fetch(2, 10, log_start=9)
    assert replica.leader.low_watermark(5) == 5


def reopened(former, isr, partition_epoch, log_end=0, leader_epoch=0):
    """Return the replica that is opened again after ``former``, and its commands for an image's registration."""
    replica = Replica(former.state.high_watermark)
    replica.state = PartitionState(1, former.state.high_watermark, 1, LAG_MS, former.state.leadership)
    replica.step(EligibleBrokersChanged(EPOCHS, EPOCHS))
    replica.partition_epoch = partition_epoch
    return replica, replica.register(isr, log_end=log_end, leader_epoch=leader_epoch)


def test_leader_that_is_opened_again_waits_for_a_member_that_older_metadata_does_not_show():
    former = leader_of(1)
    former.append_to(5)
    expand = proposal(former.fetch(2, 5))
    former.step(IsrChangeAccepted(expand.proposal_id, 0, 1, frozenset({1, 2})))

    replica, commands = reopened(former, isr=(1,), partition_epoch=0, log_end=5)
    assert commands == [StopFetching(), AssignEpochStart(0, 5)]
    assert replica.leader.isr.members == {1, 2}
    assert replica.append_to(9) == []
    assert replica.fetch(2, 9) == [AdvanceHighWatermark(9)]


def test_leader_that_is_opened_again_repeats_a_proposal_of_unknown_outcome():
    former = leader_of(1)
    former.append_to(5)
    assert proposal(former.fetch(2, 5)) is not None

    replica, commands = reopened(former, isr=(1,), partition_epoch=0, log_end=5)
    repeated = proposal(commands)
    assert (repeated.partition_epoch, repeated.isr) == (0, ((1, 10), (2, 20)))
    assert replica.append_to(9) == []


def test_leader_that_is_opened_again_does_not_remove_a_member_before_it_could_fetch():
    former = leader_of(1, 2)
    replica, _ = reopened(former, isr=(1, 2), partition_epoch=0)

    assert replica.step(TimePassed()) == []


def test_leader_that_is_opened_again_obeys_newer_metadata():
    former = leader_of(1, 2)

    assert reopened(former, isr=(1,), partition_epoch=1)[0].leader.isr.members == {1}
    assert reopened(former, isr=(1,), partition_epoch=0, leader_epoch=1)[0].leader.isr.members == {1}


def test_replica_that_is_refused_twice_remembers_its_leadership():
    former = leader_of(1, 2)
    untold = PartitionState(1, 0, 1, LAG_MS, former.state.leadership)

    assert untold.leadership == former.state.leadership
