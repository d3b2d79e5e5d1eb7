"""One test per rule of changing the voters (thesis chapter 4, its erratum, KIP-853): sets, new voters, removed ones."""

from __future__ import annotations

import pytest
from raft_voter import (
    FOUR,
    KNOWN,
    TestedVoter,
    add,
    append,
    data,
    leading,
    observed,
    remove,
    snapshot_at,
    voter,
    voter_set,
    voters_entry,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.commands import (
    Commit,
    Persist,
    ProposalAccepted,
    ReadReady,
    RequestRefused,
    VoterChangeAccepted,
    VotersChanged,
)
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.events import AddVoterRequested, Proposed, ReadRequested, Tick, TransferRequested
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    AppendResponse,
    FollowRequest,
    Message,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.replica import Candidate, Follower


def refusal(tested: TestedVoter) -> tuple[int, ErrorCode]:
    [refused] = tested.of(RequestRefused)
    assert tested.of(VoterChangeAccepted) == []
    return refused.request_id, refused.code


# A set is in force from its place in the log (4.1).


def test_voters_are_in_force_before_their_entry_commits() -> None:
    tested = TestedVoter(term=1)
    tested.receive(append(2, 1, (0, 0), (voters_entry(1, 1, voter_set(1, 2, 3, 4)),)))
    assert tested.of(VotersChanged) == [VotersChanged(voter_set(1, 2, 3, 4), 1)]
    assert (tested.raft.voters.current.ids, tested.raft.voters.index, tested.raft.commit_index) == ((1, 2, 3, 4), 1, 0)


def test_voters_are_those_before_when_their_entry_is_dropped() -> None:
    tested = TestedVoter(term=1)
    entries = (voters_entry(1, 1, voter_set(1, 2, 3, 4)), data(2, 1), voters_entry(3, 1, voter_set(1, 2, 4)))
    tested.receive(append(2, 1, (0, 0), entries))
    tested.receive(append(3, 2, (1, 1), (data(2, 2),)))
    assert tested.of(VotersChanged) == [VotersChanged(voter_set(1, 2, 3, 4), 1)]
    tested.receive(append(2, 3, (0, 0), (data(1, 3),)))
    assert tested.of(VotersChanged) == [VotersChanged(voter_set(1, 2, 3), 0)]


def test_voters_of_the_log_win_over_the_configured_ones_after_a_start() -> None:
    entries = (data(1, 1), voters_entry(2, 1, voter_set(1, 2)))
    tested = TestedVoter(term=1, entries=entries)
    assert tested.first_commands == [VotersChanged(voter_set(1, 2), 2)]


def test_voters_of_the_log_behind_a_snapshot_win_over_the_snapshots() -> None:
    entries = (voters_entry(4, 1, voter_set(1, 2)), data(5, 1), voters_entry(6, 1, voter_set(1, 2, 3, 5)))
    snapshot = snapshot_at(5, 1, voter_set(1, 2, 3))
    tested = TestedVoter(term=1, entries=entries, snapshot=snapshot, log_start=(3, 1))
    assert (tested.raft.voters.current.ids, tested.raft.voters.index) == ((1, 2, 3, 5), 6)
    tested.receive(append(2, 2, (5, 1), (data(6, 2),)))
    assert (tested.raft.voters.current.ids, tested.raft.voters.index) == ((1, 2, 3), 5)


# One change at a time, by a leader that has committed in its term (4.1, erratum).


def test_change_is_refused_while_another_one_is_not_committed() -> None:
    tested = observed()
    remove(tested, 3)
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(8, 2, 1)]
    remove(tested, 2, request_id=9)
    assert refusal(tested) == (9, ErrorCode.INVALID_REQUEST)
    add(tested)
    assert refusal(tested) == (7, ErrorCode.INVALID_REQUEST)
    tested.sync()
    tested.ack(2, 2)
    remove(tested, 2, request_id=10)
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(10, 3, 1)]


def test_change_is_refused_before_the_leader_has_committed_in_its_term() -> None:
    tested = TestedVoter(terms=[1], term=1)
    tested.become_leader()
    tested.receive(FollowRequest(4, 0, 0, 0), FOUR)
    remove(tested, 3)
    assert refusal(tested) == (8, ErrorCode.INVALID_REQUEST)
    add(tested)
    assert refusal(tested) == (7, ErrorCode.INVALID_REQUEST)
    tested.sync()
    tested.ack(2, 2)
    remove(tested, 3)
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(8, 3, 2)]


def test_change_is_refused_while_a_predecessors_is_not_committed() -> None:
    tested = TestedVoter(term=1, entries=(data(1, 1), voters_entry(2, 1, voter_set(1, 2, 3, 4))))
    tested.become_candidate()
    for sender in (2, 3):
        tested.receive(VoteResponse(sender, 1, pre_vote=True, granted=True))
    tested.sync()
    for sender in (2, 3):
        tested.receive(VoteResponse(sender, 2, pre_vote=False, granted=True))
    assert isinstance(tested.raft.role, Leadership)
    remove(tested, 4)
    assert refusal(tested) == (8, ErrorCode.INVALID_REQUEST)


def test_change_is_refused_while_a_voter_is_being_added() -> None:
    tested = observed()
    add(tested)
    assert tested.commands == []
    remove(tested, 3)
    assert refusal(tested) == (8, ErrorCode.INVALID_REQUEST)
    tested.receive(FollowRequest(5, 0, 0, 0))
    add(tested, 5, b"", request_id=9)
    assert refusal(tested) == (9, ErrorCode.INVALID_REQUEST)


def test_change_is_refused_during_a_transfer() -> None:
    tested = leading()
    tested.step(TransferRequested(1, 3, 1000))
    remove(tested, 2)
    assert refusal(tested) == (8, ErrorCode.INVALID_REQUEST)


def test_change_is_refused_by_who_does_not_lead() -> None:
    tested = TestedVoter()
    remove(tested, 2)
    assert refusal(tested) == (8, ErrorCode.NOT_CONTROLLER)
    add(tested)
    assert refusal(tested) == (7, ErrorCode.NOT_CONTROLLER)


# Adding: the new voter catches up first (4.2.1).


def test_observer_is_sent_the_log() -> None:
    tested = observed()
    assert [(to, m.prev_index, len(m.entries)) for to, m in tested.sent(AppendRequest)] == [(4, 0, 1)]
    tested.ack(4, 1, directory_id=FOUR)
    _, observers = tested.leadership.replicas(2, 0, lambda _: Endpoints.at("h", 1))
    assert [(o.replica_id, o.log_end_offset) for o in observers] == [(4, 1)]


def test_observer_counts_neither_for_commits_nor_for_reads_nor_for_staying_in_office() -> None:
    tested = observed()
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    tested.sync()
    tested.ack(4, 2, directory_id=FOUR)
    assert tested.raft.commit_index == 1
    tested.step(ReadRequested(1))
    tested.ack(4, 2, context=1, directory_id=FOUR)
    assert tested.of(ReadReady) == []
    tested.now_ms += 1000
    tested.ack(4, 2, directory_id=FOUR)
    tested.wait(0)
    assert tested.raft.role == Follower(None)


def test_observers_vote_does_not_count() -> None:
    tested = TestedVoter()
    tested.wait(100)
    tested.receive(VoteResponse(4, 0, pre_vote=True, granted=True))
    assert tested.raft.term == 0


def test_new_voter_is_added_once_it_has_all_that_the_leader_had() -> None:
    tested = observed()
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    add(tested)
    tested.ack(4, 1, directory_id=FOUR)
    assert tested.of(VoterChangeAccepted) == []
    tested.ack(4, 2, directory_id=FOUR)
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(7, 3, 1)]
    changed = voter_set(1, 2, 3).with_voter(voter(4, FOUR))
    assert tested.of(VotersChanged) == [VotersChanged(changed, 3)]
    assert tested.of(Persist)[-1].entries[-1] == voters_entry(3, 1, changed)
    tested.sync()
    tested.ack(4, 3, directory_id=FOUR)
    assert tested.raft.commit_index < 3, "two of four are no majority"
    tested.ack(2, 3)
    assert tested.raft.commit_index == 3


def test_new_voter_that_has_caught_up_already_is_added_at_once() -> None:
    tested = observed()
    tested.ack(4, 1, directory_id=FOUR)
    add(tested, directory_id=b"")
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(7, 2, 1)]
    assert tested.raft.voters.current.get(4) == voter(4, FOUR), "the directory id is the one it has said"


def test_new_voter_gets_another_round_when_one_has_taken_longer_than_an_election_timeout() -> None:
    tested = observed()
    add(tested)
    tested.now_ms += 500
    tested.ack(2, 1)
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    tested.now_ms += 501
    tested.ack(4, 1, directory_id=FOUR)
    assert tested.of(VoterChangeAccepted) == []
    tested.now_ms += 100
    tested.ack(4, 2, directory_id=FOUR)
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(7, 3, 1)]


def test_new_voter_that_does_not_catch_up_in_time_is_given_up() -> None:
    tested = observed()
    tested.step(AddVoterRequested(7, voter(4, FOUR), 150))
    assert tested.raft.next_deadline_ms == tested.now_ms + 100
    tested.wait(100)
    assert tested.raft.next_deadline_ms == tested.now_ms + 50
    tested.wait(50)
    assert refusal(tested) == (7, ErrorCode.REQUEST_TIMED_OUT)
    remove(tested, 3)
    assert len(tested.of(VoterChangeAccepted)) == 1


def test_new_voter_is_given_up_when_the_leader_resigns() -> None:
    tested = observed()
    add(tested)
    tested.receive(append(3, 2, (1, 1)))
    assert refusal(tested) == (7, ErrorCode.NOT_CONTROLLER)


def test_new_voter_that_is_unknown_or_another_or_a_voter_is_refused() -> None:
    tested = observed()
    add(tested, 5)
    assert refusal(tested) == (7, ErrorCode.VOTER_NOT_FOUND)
    add(tested, 4, b"another")
    assert refusal(tested) == (7, ErrorCode.INVALID_VOTER_KEY)
    for present in (1, 3):
        add(tested, present)
        assert refusal(tested) == (7, ErrorCode.DUPLICATE_VOTER)


# Removing (4.2.2, 4.2.3).


def test_removed_voter_counts_no_more() -> None:
    tested = leading(voters=2)
    remove(tested, 2)
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(8, 2, 1)]
    tested.sync()
    assert tested.raft.commit_index == 2
    tested.wait(2000)
    assert isinstance(tested.raft.role, Leadership), "it needs nobody to stay"


def test_removed_voter_is_sent_the_log_still_and_so_learns_of_it() -> None:
    tested = leading()
    tested.ack(3, 1)
    remove(tested, 3)
    assert [to for to, m in tested.sent(AppendRequest) if m.entries] == [2, 3]


def test_removal_that_cannot_be_is_refused() -> None:
    tested = leading(voters=KNOWN)
    remove(tested, 4)
    assert refusal(tested) == (8, ErrorCode.VOTER_NOT_FOUND)
    remove(tested, 3, b"another")
    assert refusal(tested) == (8, ErrorCode.INVALID_VOTER_KEY)
    alone = TestedVoter(voters=1)
    alone.sync()
    alone.sync()
    remove(alone, 1)
    assert refusal(alone) == (8, ErrorCode.INVALID_REQUEST)


def test_removed_leader_does_not_count_itself_and_leads_until_that_is_committed() -> None:
    tested = leading()
    tested.ack(3, 1)
    remove(tested, 1)
    tested.sync()
    tested.ack(2, 2)
    assert tested.raft.commit_index == 1, "two of three, but itself is none of the voters"
    tested.step(Proposed(b"x", 1))
    assert tested.commands == [ProposalAccepted(3, 1)]
    tested.ack(3, 2)
    assert [c.entries[-1].index for c in tested.of(Commit)] == [2]
    assert tested.raft.role == Follower(None)
    assert tested.sent(TimeoutNow) == [(2, TimeoutNow(1, 1))]


def test_removed_leader_hands_over_to_the_voter_with_most_of_the_log() -> None:
    tested = leading()
    tested.ack(3, 1)
    remove(tested, 1)
    tested.step(Proposed(b"x", 1))
    tested.step(Tick())
    tested.sync()
    tested.ack(3, 3)
    tested.ack(2, 2)
    assert tested.sent(TimeoutNow) == [(3, TimeoutNow(1, 1))]


def test_removed_leader_needs_a_majority_of_the_others_to_stay() -> None:
    tested = leading()
    tested.ack(3, 1)
    remove(tested, 1)
    tested.now_ms += 999
    tested.ack(2, 1)
    tested.wait(1)
    assert tested.raft.role == Follower(None), "two of two must be heard"


def test_removed_leader_confirms_reads_without_itself() -> None:
    tested = leading()
    tested.ack(3, 1)
    remove(tested, 1)
    tested.step(ReadRequested(5))
    tested.ack(2, 1, context=1)
    assert tested.of(ReadReady) == []
    tested.ack(3, 1, context=1)
    assert tested.of(ReadReady) == [ReadReady(5, 1)]


def test_removed_voter_campaigns_without_its_own_vote_until_that_is_committed() -> None:
    entries = (data(1, 1), voters_entry(2, 1, voter_set(2, 3)))
    tested = TestedVoter(term=1, entries=entries)
    tested.wait(100)
    assert isinstance(tested.raft.role, Candidate)
    tested.receive(VoteResponse(2, 1, pre_vote=True, granted=True))
    assert tested.raft.term == 1, "one of two is no majority"
    tested.receive(VoteResponse(3, 1, pre_vote=True, granted=True))
    tested.sync()
    for sender in (2, 3):
        tested.receive(VoteResponse(sender, 2, pre_vote=False, granted=True))
    assert tested.leadership.start_index == 3
    tested.sync()
    for sender in (2, 3):
        tested.ack(sender, 3)
    assert (tested.raft.role, len(tested.sent(TimeoutNow))) == (Follower(None), 1)


def test_removed_voter_does_not_campaign_once_it_knows_that_it_is_committed() -> None:
    tested = TestedVoter(term=1)
    tested.receive_and_sync(append(2, 1, (0, 0), (voters_entry(1, 1, voter_set(2, 3)),), commit=1))
    tested.wait(1000)
    assert tested.raft.role == Follower(None)
    request = FollowRequest(1, 1, 1, 1)
    assert tested.sent(FollowRequest) == [(2, request), (3, request)]
    tested.wait(99)
    assert tested.messages() == []
    tested.wait(1)
    assert tested.sent(FollowRequest) == [(2, request), (3, request)]


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(4, 9, True, 9, 9),
        VoteRequest(4, 9, False, 9, 9),
        VoteResponse(4, 9, False, False),
        AppendResponse(4, 9, False, 0, 0, 0, 0),
        SnapshotResponse(4, 9, 1, 1, 0, False),
        FollowRequest(4, 9, 9, 9),
    ],
)
def test_removed_voter_does_not_disrupt_the_leader(message: Message) -> None:
    tested = leading()
    tested.receive(message)
    assert (tested.raft.term, isinstance(tested.raft.role, Leadership)) == (1, True)


def test_new_voters_term_is_listened_to_when_it_is_about_to_get_its_vote() -> None:
    tested = observed()
    tested.receive(AppendResponse(4, 9, False, 0, 0, 0, 0), FOUR)
    assert tested.raft.term == 1
    add(tested)
    tested.receive(AppendResponse(4, 9, False, 0, 0, 0, 0), FOUR)
    assert tested.raft.term == 9
    assert refusal(tested) == (7, ErrorCode.NOT_CONTROLLER)


def test_campaigner_in_vain_asks_to_be_sent_the_log() -> None:
    tested = TestedVoter(term=1)
    tested.wait(100)
    assert tested.sent(FollowRequest) == []
    tested.wait(200)
    assert [to for to, _ in tested.sent(FollowRequest)] == [2, 3]


# Others' sets may be newer (4.1).


def test_append_is_taken_from_a_leader_that_is_no_voter_here() -> None:
    tested = TestedVoter(term=1)
    tested.receive_and_sync(append(9, 2, (0, 0), (data(1, 2),)))
    assert tested.raft.leader_id == 9
    assert tested.answer() == AppendResponse(1, 2, True, 1, 0, 0, 0)


def test_vote_is_given_to_a_candidate_that_is_no_voter_here() -> None:
    tested = TestedVoter()
    tested.receive_and_sync(VoteRequest(9, 1, False, 0, 0))
    assert tested.answer() == VoteResponse(1, 1, False, True)


def test_vote_is_given_by_one_that_is_no_voter_itself() -> None:
    tested = TestedVoter(voters=voter_set(2, 3), node_id=1)
    tested.receive_and_sync(VoteRequest(2, 1, False, 0, 0))
    assert tested.answer() == VoteResponse(1, 1, False, True)


def test_votes_are_counted_by_the_latest_set() -> None:
    tested = TestedVoter(term=1, entries=(voters_entry(1, 1, voter_set(1, 4, 5)),))
    tested.wait(100)
    assert [to for to, _ in tested.sent(VoteRequest)] == [4, 5]
    tested.receive(VoteResponse(2, 1, pre_vote=True, granted=True))
    assert tested.raft.term == 1
    tested.receive(VoteResponse(5, 1, pre_vote=True, granted=True))
    assert tested.raft.term == 2
