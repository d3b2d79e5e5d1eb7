"""One test per rule of the paper's figure 2 about terms and votes, and of the thesis' 4.2.3, 6.2 and 9.6."""

from __future__ import annotations

import pytest
from raft_voter import TestedVoter, append, data

from tidelog_quorum.raft.core.commands import Commit, LeaderChanged, Persist, ProposalRejected, Send
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.events import Persisted, Proposed, Tick
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import (
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Message,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.replica import Candidate, Follower


def test_all_servers_adopt_a_higher_term_and_follow() -> None:
    leader = TestedVoter()
    leader.become_leader()
    leader.receive(AppendResponse(2, 7, False, 0, 0, 0, 0))
    assert leader.raft.hard_state == HardState(7, None)
    assert leader.raft.role == Follower(None)
    assert leader.of(LeaderChanged) == [LeaderChanged(None, 7)]


@pytest.mark.parametrize("message", [VoteRequest(2, 7, True, 0, 0), VoteRequest(2, 7, False, 0, 0), append(2, 7)])
def test_all_servers_adopt_the_higher_term_of_a_request(message: Message) -> None:
    voter = TestedVoter(term=2, voted_for=3)
    voter.receive(message)
    assert voter.raft.term == 7
    assert voter.of(Persist)[0].hard_state == voter.raft.hard_state


def test_all_servers_take_no_message_for_one_of_their_own() -> None:
    voter = TestedVoter()
    voter.receive(append(1, 5))
    assert voter.commands == []
    assert voter.raft.term == 0


def test_vote_is_refused_with_the_own_term_when_the_request_is_older() -> None:
    voter = TestedVoter(term=3)
    voter.receive(VoteRequest(2, 2, False, 9, 2))
    assert voter.answer() == VoteResponse(1, 3, False, False)


def test_vote_is_given_once_per_term() -> None:
    voter = TestedVoter()
    voter.receive_and_sync(VoteRequest(2, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, True)
    voter.receive(VoteRequest(3, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, False)
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, True)


def test_vote_of_an_earlier_process_binds_after_a_restart() -> None:
    voter = TestedVoter(term=1, voted_for=3)
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 1, False, False)


@pytest.mark.parametrize(
    ("last_term", "last_index", "granted"),
    [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)],
)
def test_vote_is_given_only_to_a_log_at_least_as_up_to_date(last_term: int, last_index: int, granted: bool) -> None:
    for pre_vote in (False, True):
        voter = TestedVoter(terms=[1, 2, 2], term=3)
        voter.receive_and_sync(VoteRequest(2, 3, pre_vote, last_index, last_term))
        assert voter.answer() == VoteResponse(1, 3, pre_vote, granted)


def test_vote_leaves_only_after_it_is_on_disk() -> None:
    voter = TestedVoter()
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    assert voter.of(Persist) == [Persist(1, HardState(1, 2), None, ())]
    assert voter.messages() == []
    voter.step(Tick())
    assert voter.messages() == []
    voter.sync()
    assert voter.answer() == VoteResponse(1, 1, False, True)


def test_follower_campaigns_when_it_hears_no_leader_for_an_election_timeout() -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1))
    voter.wait(999)
    assert voter.raft.role == Follower(2)
    voter.receive(append(2, 1))
    voter.wait(999)
    assert voter.raft.role == Follower(2)
    voter.wait(1)
    assert isinstance(voter.raft.role, Candidate)


def test_follower_restarts_its_timer_when_it_votes() -> None:
    voter = TestedVoter()
    voter.now_ms = 99
    voter.receive(VoteRequest(2, 1, False, 0, 0))
    voter.wait(999)
    assert voter.raft.role == Follower(None)
    voter.wait(1)
    assert isinstance(voter.raft.role, Candidate)


def test_candidate_raises_its_term_votes_for_itself_and_asks_all_once_that_is_on_disk() -> None:
    voter = TestedVoter(terms=[1], term=1)
    voter.wait(100)
    voter.receive(VoteResponse(3, 1, pre_vote=True, granted=True))
    assert voter.of(Persist) == [Persist(1, HardState(2, 1), None, ())]
    assert voter.messages() == []
    voter.sync()
    assert voter.messages() == [VoteRequest(1, 2, False, 1, 1)] * 2


def test_candidate_does_not_count_its_own_vote_before_that_is_on_disk() -> None:
    voter = TestedVoter()
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
    voter = TestedVoter(voters=5)
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
    voter = TestedVoter(term=4)
    voter.become_candidate()
    voter.receive(VoteResponse(2, 4, pre_vote=False, granted=True))
    voter.receive(VoteResponse(3, 5, pre_vote=True, granted=True))
    assert isinstance(voter.raft.role, Candidate)


def test_candidate_follows_a_leader_of_its_term() -> None:
    voter = TestedVoter()
    voter.become_candidate()
    voter.receive(append(3, voter.raft.term))
    assert voter.raft.role == Follower(3)


def test_candidate_begins_again_when_nobody_wins() -> None:
    voter = TestedVoter()
    voter.become_candidate()
    voter.wait(200)
    assert [m for _, m in voter.sent(VoteRequest)] == [VoteRequest(1, 1, True, 0, 0)] * 2


def test_single_voter_elects_itself_at_once() -> None:
    voter = TestedVoter(voters=1)
    assert isinstance(voter.raft.role, Candidate), "its own vote counts when it is on disk"
    voter.sync()
    voter.sync()
    assert voter.of(Commit) == [Commit((Entry(1, 1, EntryKind.NO_OP, b""),))]


def test_pre_vote_changes_neither_term_nor_vote() -> None:
    voter = TestedVoter(term=2)
    voter.wait(100)
    assert voter.messages() == [VoteRequest(1, 2, True, 0, 0)] * 2
    assert voter.raft.hard_state == HardState(2, None)
    other = TestedVoter(term=2)
    other.receive(VoteRequest(2, 2, True, 0, 0))
    assert other.commands == [Send(2, VoteResponse(1, 2, True, True))]
    assert other.raft.hard_state == HardState(2, None)


@pytest.mark.parametrize("pre_vote", [True, False])
def test_vote_requests_are_ignored_while_the_leader_is_heard(pre_vote: bool) -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1))
    voter.wait(999)
    voter.receive(VoteRequest(3, 9, pre_vote, 9, 9))
    assert voter.commands == []
    assert voter.raft.term == 1
    leader = TestedVoter()
    leader.become_leader()
    leader.receive(VoteRequest(3, 9, pre_vote, 9, 9))
    assert leader.commands == []


def test_leader_resigns_when_it_hears_no_majority_for_an_election_timeout() -> None:
    voter = TestedVoter()
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
    voter = TestedVoter(voters=5)
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


def test_config_refuses_heartbeats_that_are_too_rare() -> None:
    with pytest.raises(ValueError, match="less than two heartbeats"):
        RaftConfig(election_timeout_ms=100, heartbeat_interval_ms=60)


def test_pre_candidate_keeps_its_term_without_leave_of_a_majority() -> None:
    voter = TestedVoter(voters=5, term=3)
    for _ in range(5):
        voter.wait(200)
        voter.receive(VoteResponse(2, 3, pre_vote=True, granted=True))
        voter.receive(VoteResponse(3, 3, pre_vote=True, granted=False))
    assert voter.raft.hard_state == HardState(3, None)


def test_pre_vote_is_answered_while_a_long_write_is_under_way() -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1, (0, 0), (data(1, 1),)))
    voter.wait(1000)
    assert voter.messages() == [VoteRequest(1, 1, True, 1, 1)] * 2
    voter.receive(VoteRequest(3, 1, True, 1, 1))
    assert voter.answer() == VoteResponse(1, 1, True, True)


def test_vote_request_is_answered_once_the_leader_is_silent_for_an_election_timeout() -> None:
    voter = TestedVoter(term=1)
    voter.receive(append(2, 1))
    voter.now_ms += 1000
    voter.receive_and_sync(VoteRequest(3, 2, False, 0, 0))
    assert voter.answer() == VoteResponse(1, 2, False, True)
