"""One test per rule of the paper's figure 2 and of the thesis' additions, each named after its rule."""

from __future__ import annotations

import pytest
from raft_voter import Voter, append, data

from tidelog.errors import TidelogError
from tidelog_quorum.raft.core import (
    AppendRequest,
    AppendResponse,
    Candidate,
    Commit,
    Entry,
    EntryKind,
    Follower,
    HardState,
    LeaderChanged,
    Leadership,
    Persist,
    Persisted,
    ProposalAccepted,
    ProposalRejected,
    Proposed,
    RaftConfig,
    ReadFailed,
    ReadReady,
    ReadRequested,
    Send,
    Tick,
    VoteRequest,
    VoteResponse,
)

# Rules for all servers.


def test_all_servers_adopt_a_higher_term_and_follow() -> None:
    leader = Voter()
    leader.become_leader()
    leader.receive(AppendResponse(2, 7, False, 0, 0, 0, 0))
    assert leader.raft.hard_state == HardState(7, None)
    assert leader.raft.role == Follower(None)
    assert leader.of(LeaderChanged) == [LeaderChanged(None, 7)]


def test_all_servers_apply_in_order_once_commit_index_passes() -> None:
    voter = Voter()
    voter.receive_and_sync(append(2, 1, (0, 0), (data(1, 1), data(2, 1), data(3, 1)), commit=2))
    assert voter.of(Commit) == [Commit((data(1, 1), data(2, 1)))]
    voter.receive(append(2, 1, (3, 1), commit=3))
    assert voter.of(Commit) == [Commit((data(3, 1),))]


def test_all_servers_apply_only_what_their_own_disk_has() -> None:
    voter = Voter()
    voter.receive(append(2, 1, (0, 0), (data(1, 1),), commit=1))
    assert voter.of(Commit) == []
    voter.sync()
    assert voter.of(Commit) == [Commit((data(1, 1),))]


def test_all_servers_ignore_messages_of_strangers() -> None:
    voter = Voter()
    voter.receive(append(9, 5))
    assert voter.commands == []
    assert voter.raft.term == 0


# RequestVote RPC, receiver.


def test_vote_is_refused_with_the_own_term_when_the_request_is_older() -> None:
    voter = Voter(term=3)
    voter.receive(VoteRequest(2, 2, False, 9, 2))
    assert voter.answer() == VoteResponse(1, 3, False, False)


def test_vote_is_given_once_per_term() -> None:
    voter = Voter()
    voter.receive_and_sync(VoteRequest(2, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, True)
    voter.receive(VoteRequest(3, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, False)
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, True)


def test_vote_of_an_earlier_process_binds_after_a_restart() -> None:
    voter = Voter(term=1, voted_for=3)
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, False)


@pytest.mark.parametrize(
    ("last_term", "last_index", "granted"),
    [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)],
)
def test_vote_is_given_only_to_a_log_at_least_as_up_to_date(last_term: int, last_index: int, granted: bool) -> None:
    for pre_vote in (False, True):
        voter = Voter(terms=[1, 2, 2], term=3)
        voter.receive_and_sync(VoteRequest(2, 3, pre_vote, last_index, last_term))
        assert voter.answer() == VoteResponse(1, 3, pre_vote, granted)


def test_vote_leaves_only_after_it_is_on_disk() -> None:
    voter = Voter()
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    assert voter.of(Persist) == [Persist(1, HardState(1, 2), None, ())]
    assert voter.messages() == []
    voter.step(Tick())
    assert voter.messages() == []
    voter.sync()
    assert voter.answer() == VoteResponse(1, 1, False, True)


# AppendEntries RPC, receiver.


def test_append_of_an_older_term_is_refused_with_the_own_term() -> None:
    voter = Voter(term=5)
    voter.receive(append(2, 4))
    assert voter.answer() == AppendResponse(1, 5, False, 0, 0, 0, 0)
    assert voter.raft.leader_id is None


@pytest.mark.parametrize(
    ("terms", "prev", "hint"),
    [([1, 1], (5, 3), (2, 1)), ([1, 1, 2, 2], (3, 3), (3, 2)), ([1, 4, 4, 4], (3, 2), (1, 1)), ([], (2, 1), (0, 0))],
)
def test_append_is_refused_with_a_hint_when_the_log_has_no_such_previous_entry(
    terms: list[int], prev: tuple[int, int], hint: tuple[int, int]
) -> None:
    voter = Voter(terms=terms, term=5)
    voter.receive(append(2, 5, prev))
    assert voter.answer() == AppendResponse(1, 5, False, hint[0], hint[1], prev[0], 0)


def test_append_drops_conflicting_entries_and_all_that_follow() -> None:
    voter = Voter(terms=[1, 1, 2, 2], term=3)
    voter.receive_and_sync(append(2, 3, (1, 1), (data(2, 1), data(3, 3))))
    assert voter.of(Persist) == [Persist(1, None, 3, (data(3, 3),))]
    assert voter.answer() == AppendResponse(1, 3, True, 3, 0, 0, 0)


def test_append_keeps_matching_entries_that_it_does_not_mention() -> None:
    voter = Voter(terms=[1, 1, 1, 1], term=1)
    voter.receive(append(2, 1, (1, 1), (data(2, 1),)))
    assert voter.of(Persist) == []
    assert voter.raft.log.last_index == 4
    # What it proves equal is up to index 2 only.
    assert voter.answer() == AppendResponse(1, 1, True, 2, 0, 0, 0)


def test_append_is_acknowledged_only_after_it_is_on_disk() -> None:
    voter = Voter(term=1)
    voter.receive(append(2, 1, (0, 0), (data(1, 1),)))
    assert voter.messages() == []
    # Nor may a later answer pass it.
    voter.receive(append(2, 1, (1, 1)))
    assert voter.messages() == []
    voter.sync()
    assert [m.match_index for m in voter.messages() if isinstance(m, AppendResponse)] == [1, 1]


def test_append_sets_commit_index_no_further_than_what_it_proves_equal() -> None:
    voter = Voter(terms=[1, 1, 2], term=3)
    voter.receive(append(2, 3, (1, 1), commit=3))
    assert voter.raft.commit_index == 1


def test_append_never_contradicts_a_committed_entry() -> None:
    voter = Voter(terms=[1, 1], term=1)
    voter.receive(append(2, 1, (2, 1), commit=2))
    with pytest.raises(TidelogError, match="index 2 is committed with term 1"):
        voter.receive(append(3, 2, (1, 1), (data(2, 2),)))


def test_append_of_a_second_leader_in_a_term_stops_the_voter() -> None:
    voter = Voter(term=1)
    voter.receive(append(2, 1))
    with pytest.raises(TidelogError, match="term 1 has two leaders, 2 and 3"):
        voter.receive(append(3, 1))


def test_acknowledgement_of_replaced_entries_does_not_cover_their_replacements() -> None:
    voter = Voter(term=1)
    voter.receive(append(2, 1, (0, 0), (data(1, 1), data(2, 1))))
    voter.receive(append(3, 2, (0, 0), (data(1, 2),)))
    voter.step(Persisted(1))
    assert voter.raft.durable_index == 0
    assert voter.messages() == []
    voter.step(Persisted(2))
    assert voter.answer() == AppendResponse(1, 2, True, 1, 0, 0, 0)


# Rules for followers and candidates.


def test_follower_campaigns_when_it_hears_no_leader_for_an_election_timeout() -> None:
    voter = Voter(term=1)
    voter.receive(append(2, 1))
    voter.wait(999)
    assert voter.raft.role == Follower(2)
    voter.receive(append(2, 1))
    voter.wait(999)
    assert voter.raft.role == Follower(2)
    voter.wait(1)
    assert isinstance(voter.raft.role, Candidate)


def test_follower_restarts_its_timer_when_it_votes() -> None:
    voter = Voter()
    voter.now_ms = 99
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    voter.wait(999)
    assert voter.raft.role == Follower(None)
    voter.wait(1)
    assert isinstance(voter.raft.role, Candidate)


def test_candidate_raises_its_term_votes_for_itself_and_asks_all_once_that_is_on_disk() -> None:
    voter = Voter(terms=[1], term=1)
    voter.wait(100)
    voter.receive(VoteResponse(3, 1, pre_vote=True, granted=True))
    assert voter.of(Persist) == [Persist(1, HardState(2, 1), None, ())]
    assert voter.messages() == []
    voter.sync()
    assert voter.messages() == [VoteRequest(1, 2, False, 1, 1)] * 2


def test_candidate_does_not_count_its_own_vote_before_that_is_on_disk() -> None:
    voter = Voter()
    voter.receive(append(2, 1, (0, 0), (data(1, 1),)))
    voter.wait(1000)
    voter.receive(VoteResponse(3, 1, pre_vote=True, granted=True))
    voter.step(Persisted(1))
    assert voter.messages() == []
    voter.receive(VoteResponse(3, 2, pre_vote=False, granted=True))
    assert isinstance(voter.raft.role, Candidate)
    voter.step(Persisted(2))
    assert voter.raft.leader_id == 1


def test_candidate_becomes_leader_with_the_votes_of_a_majority() -> None:
    voter = Voter(voters=5)
    voter.wait(100)
    voter.receive(VoteResponse(2, 0, pre_vote=True, granted=True))
    voter.receive(VoteResponse(2, 0, pre_vote=True, granted=True))
    assert voter.raft.term == 0, "two answers of one voter are one vote"
    voter.receive(VoteResponse(3, 0, pre_vote=True, granted=True))
    voter.sync()
    voter.receive(VoteResponse(2, 1, pre_vote=False, granted=True))
    voter.receive(VoteResponse(4, 1, pre_vote=False, granted=False))
    assert isinstance(voter.raft.role, Candidate)
    voter.receive(VoteResponse(5, 1, pre_vote=False, granted=True))
    assert voter.of(LeaderChanged) == [LeaderChanged(1, 1)]


def test_candidate_does_not_count_votes_of_an_older_term_or_of_the_pre_vote() -> None:
    voter = Voter(term=4)
    voter.become_candidate()
    voter.receive(VoteResponse(2, 4, pre_vote=False, granted=True))
    voter.receive(VoteResponse(3, 5, pre_vote=True, granted=True))
    assert isinstance(voter.raft.role, Candidate)


def test_candidate_follows_a_leader_of_its_term() -> None:
    voter = Voter()
    voter.become_candidate()
    voter.receive(append(3, voter.raft.term))
    assert voter.raft.role == Follower(3)


def test_candidate_begins_again_when_nobody_wins() -> None:
    voter = Voter()
    voter.become_candidate()
    voter.wait(200)
    assert voter.messages() == [VoteRequest(1, 1, True, 0, 0)] * 2


def test_single_voter_elects_itself_at_once() -> None:
    voter = Voter(voters=1)
    assert voter.raft.next_deadline_ms == 0
    voter.step(Tick())
    assert isinstance(voter.raft.role, Candidate), "its own vote counts when it is on disk"
    voter.sync()
    voter.sync()
    assert voter.of(Commit) == [Commit((Entry(1, 1, EntryKind.NO_OP, b""),))]


# Rules for leaders.


def test_leader_begins_with_a_no_op_to_all() -> None:
    voter = Voter(terms=[1], term=1)
    voter.become_leader()
    no_op = Entry(2, 2, EntryKind.NO_OP, b"")
    assert voter.messages() == [AppendRequest(1, 2, 1, 1, 0, (no_op,), 0)] * 2
    assert voter.of(Persist)[0].entries == (no_op,)


def test_leader_sends_heartbeats() -> None:
    voter = Voter()
    voter.become_leader()
    voter.wait(99)
    assert voter.messages() == []
    voter.wait(1)
    assert voter.messages() == [AppendRequest(1, 1, 0, 0, 0, (), 0)] * 2


def test_leader_answers_a_proposal_with_its_index_and_replicates_those_of_one_moment_together() -> None:
    voter = Voter()
    voter.become_leader()
    voter.ack(2, 1)
    for index in (2, 3):
        voter.step(Proposed(b"%d" % index, 1))
        assert voter.commands == [ProposalAccepted(index, 1)]
    assert voter.raft.next_deadline_ms == voter.now_ms
    voter.step(Tick())
    both = (data(2, 1, b"2"), data(3, 1, b"3"))
    assert [m.entries for m in voter.messages() if isinstance(m, AppendRequest)] == [both]
    assert [write.entries for write in voter.of(Persist)] == [both]


def test_leader_of_another_epoch_and_a_follower_refuse_a_proposal() -> None:
    voter = Voter()
    voter.step(Proposed(b"x", 0))
    assert voter.commands == [ProposalRejected(None, 0)]
    voter.become_leader()
    voter.step(Proposed(b"x", 0))
    assert voter.commands == [ProposalRejected(1, 1)]
    assert voter.raft.log.last_index == 1


def test_leader_commits_what_a_majority_of_disks_has() -> None:
    voter = Voter()
    voter.become_leader()
    voter.ack(2, 1)
    assert voter.raft.commit_index == 0, "its own disk does not have it yet"
    voter.sync()
    assert voter.raft.commit_index == 1


def test_leader_commits_by_two_followers_before_its_own_disk() -> None:
    voter = Voter()
    voter.become_leader()
    voter.ack(2, 1)
    voter.ack(3, 1)
    assert voter.raft.commit_index == 1
    assert voter.of(Commit) == []
    voter.sync()
    assert len(voter.of(Commit)) == 1


def test_leader_commits_entries_of_older_terms_only_with_one_of_its_own() -> None:
    voter = Voter(terms=[1, 2], term=2)
    voter.become_leader()
    voter.sync()
    voter.ack(2, 2)
    assert voter.raft.commit_index == 0
    voter.ack(2, 3)
    assert voter.raft.commit_index == 3


def test_leader_ignores_acknowledgements_of_an_older_term() -> None:
    voter = Voter(terms=[1, 1], term=1)
    voter.become_leader()
    voter.sync()
    voter.receive(AppendResponse(2, 1, True, 3, 0, 0, 0))
    assert voter.raft.commit_index == 0


def test_leader_repairs_a_follower_by_its_hint() -> None:
    voter = Voter(terms=[1, 1, 1, 3, 3], term=3)
    voter.become_leader()
    voter.receive(AppendResponse(2, 4, False, 5, 2, 5, 0))
    [request] = voter.messages()
    assert isinstance(request, AppendRequest)
    assert (request.prev_index, request.prev_term) == (3, 1)
    assert [e.index for e in request.entries] == [4, 5, 6]


def test_leader_bounds_a_batch_in_bytes_and_the_appends_under_way() -> None:
    voter = Voter()
    voter.become_leader()
    voter.ack(2, 1)
    for _ in range(6):
        voter.step(Proposed(b"abc", 1))
    voter.step(Tick())
    sizes = [len(m.entries) for m in voter.messages() if isinstance(m, AppendRequest)]
    assert sizes == [1, 1], "4 bytes in a batch, 2 batches under way, to the one follower that is known to match"
    voter.ack(2, 2)
    assert [len(m.entries) for m in voter.messages() if isinstance(m, AppendRequest)] == [1]


def test_leader_is_not_misled_by_late_answers() -> None:
    voter = Voter(terms=[1, 1, 1], term=1)
    leader = voter.become_leader()
    voter.ack(2, 4)
    progress = leader.progress[2]
    voter.receive(AppendResponse(2, 2, False, 0, 0, 3, 0))
    assert (progress.match_index, progress.next_index, progress.probing) == (4, 5, False)
    voter.ack(2, 1)
    assert (progress.match_index, progress.next_index, progress.probing) == (4, 5, False)
    other = leader.progress[3]
    voter.receive(AppendResponse(3, 2, False, 2, 1, 3, 0))
    assert (other.next_index, other.probing, other.probe_sent) == (3, True, True)
    voter.receive(AppendResponse(3, 2, False, 0, 0, 1, 0))
    assert (other.next_index, other.probing, other.probe_sent) == (3, True, True)


def test_leader_tells_followers_of_a_commit_at_once() -> None:
    voter = Voter()
    voter.become_leader()
    voter.sync()
    voter.ack(2, 1)
    assert [(s.to, s.message.commit_index) for s in voter.of(Send) if isinstance(s.message, AppendRequest)] == [(2, 1)]


def test_leader_finds_a_lost_append_by_the_refused_heartbeat() -> None:
    voter = Voter()
    voter.become_leader()
    voter.ack(2, 1)
    voter.step(Proposed(b"lost", 1))
    voter.step(Tick())
    voter.wait(100)
    [heartbeat] = [s.message for s in voter.of(Send) if s.to == 2 and isinstance(s.message, AppendRequest)]
    assert (heartbeat.prev_index, heartbeat.entries) == (2, ())
    voter.receive(AppendResponse(2, 1, False, 1, 1, 2, 0))
    [again] = voter.messages()
    assert isinstance(again, AppendRequest)
    assert [e.payload for e in again.entries] == [b"lost"]


# Thesis: pre-vote, leader stickiness, check quorum, reads.


def test_pre_vote_changes_neither_term_nor_vote() -> None:
    voter = Voter(term=2)
    voter.wait(100)
    assert voter.messages() == [VoteRequest(1, 2, True, 0, 0)] * 2
    assert voter.raft.hard_state == HardState(2, None)
    other = Voter(term=2)
    other.receive(VoteRequest(2, 2, True, 0, 0))
    assert other.commands == [Send(2, VoteResponse(1, 2, True, True))]
    assert other.raft.hard_state == HardState(2, None)


@pytest.mark.parametrize("pre_vote", [True, False])
def test_vote_requests_are_ignored_while_the_leader_is_heard(pre_vote: bool) -> None:
    voter = Voter(term=1)
    voter.receive(append(2, 1))
    voter.wait(999)
    voter.receive(VoteRequest(3, 9, pre_vote, 9, 9))
    assert voter.commands == []
    assert voter.raft.term == 1
    leader = Voter()
    leader.become_leader()
    leader.receive(VoteRequest(3, 9, pre_vote, 9, 9))
    assert leader.commands == []


def test_leader_resigns_when_it_hears_no_majority_for_an_election_timeout() -> None:
    voter = Voter()
    voter.become_leader()
    voter.wait(500)
    voter.ack(3, 0)
    voter.wait(999)
    assert isinstance(voter.raft.role, Leadership)
    voter.wait(1)
    assert voter.of(LeaderChanged) == [LeaderChanged(None, 1)]
    voter.step(Proposed(b"x", 1))
    assert voter.commands == [ProposalRejected(None, 1)]


def test_leader_of_five_needs_two_followers_to_stay() -> None:
    voter = Voter(voters=5)
    voter.wait(100)
    for pre_vote, term in ((True, 0), (False, 1)):
        for sender in (2, 3):
            voter.receive(VoteResponse(sender, term, pre_vote, True))
        voter.sync()
    assert isinstance(voter.raft.role, Leadership)
    voter.wait(999)
    voter.ack(2, 0)
    voter.wait(1)
    assert voter.raft.role == Follower(None)


def test_read_waits_for_the_first_commit_of_the_term_and_for_a_majority_to_confirm() -> None:
    voter = Voter(terms=[1], term=1)
    voter.become_leader()
    voter.step(ReadRequested(7))
    assert voter.of(ReadReady) == []
    voter.sync()
    voter.ack(2, 2)
    assert voter.of(ReadReady) == []
    contexts = [m.read_context for m in voter.messages() if isinstance(m, AppendRequest)]
    assert contexts
    assert set(contexts) == {1}
    voter.ack(2, 2, context=1)
    assert voter.of(ReadReady) == [ReadReady(7, 2)]


def test_read_waits_until_everything_up_to_its_index_was_handed_out() -> None:
    voter = Voter()
    voter.become_leader()
    voter.ack(2, 1)
    voter.ack(3, 1)
    voter.step(ReadRequested(1))
    voter.ack(2, 1, context=1)
    assert voter.of(ReadReady) == []
    voter.sync()
    assert [type(command) for command in voter.commands] == [Commit, ReadReady]


def test_read_is_not_confirmed_by_an_answer_to_an_earlier_message() -> None:
    voter = Voter()
    voter.become_leader()
    voter.sync()
    voter.ack(2, 1)
    voter.step(ReadRequested(1))
    voter.ack(2, 1, context=1)
    assert voter.of(ReadReady) == [ReadReady(1, 1)]
    voter.step(ReadRequested(2))
    voter.ack(3, 1, context=1)
    assert voter.of(ReadReady) == []


def test_read_fails_when_the_voter_does_not_lead_or_ceases_to() -> None:
    voter = Voter()
    voter.step(ReadRequested(1))
    assert voter.commands == [ReadFailed(1)]
    voter.become_leader()
    voter.step(ReadRequested(2))
    voter.receive(append(2, 5))
    assert voter.of(ReadFailed) == [ReadFailed(2)]


def test_config_refuses_heartbeats_that_are_too_rare() -> None:
    with pytest.raises(ValueError, match="less than two heartbeats"):
        RaftConfig(election_timeout_ms=100, heartbeat_interval_ms=60)
