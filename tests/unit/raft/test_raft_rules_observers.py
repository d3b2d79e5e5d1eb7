"""One test per rule of observers, replicas without a vote: their number, their time, whose log they have."""

from __future__ import annotations

import pytest
from raft_voter import (
    FOUR,
    KNOWN,
    ONE,
    TestedVoter,
    add,
    append,
    data,
    leading,
    observed,
    remove,
    voter_set,
)

from tidelog_quorum.raft.core.commands import Commit, VoterChangeAccepted
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.messages import AppendResponse, FollowRequest, Message
from tidelog_quorum.raft.core.progress import Probing
from tidelog_quorum.raft.core.replica import Follower
from tidelog_quorum.raft.core.voters import VoterSet


def test_observer_without_voters_asks_whoever_there_is() -> None:
    tested = TestedVoter(voters=VoterSet())
    tested.wait(100)
    assert tested.sent(FollowRequest) == [(-1, FollowRequest(1, 0, 0, 0))]
    assert tested.raft.role == Follower(None)


def test_observer_follows_and_applies_like_a_voter() -> None:
    tested = TestedVoter(voters=voter_set(2, 3), node_id=1)
    tested.receive_and_sync(append(2, 1, (0, 0), (data(1, 1),), commit=1))
    assert tested.of(Commit) == [Commit((data(1, 1),))]
    tested.wait(999)
    assert tested.messages() == []


def test_observers_are_bounded_in_number() -> None:
    tested = TestedVoter(config=RaftConfig(1000, 100, max_observers=2))
    leader = tested.lead_with_a_commit(2)
    for replica in (4, 5, 6):
        tested.receive(FollowRequest(replica, 0, 0, 0))
    assert sorted(leader.progress) == [2, 3, 4, 5]


def test_observer_is_forgotten_after_ten_election_timeouts_of_silence() -> None:
    tested = observed()
    for _ in range(99):
        tested.now_ms += 100
        tested.ack(2, 1)
    assert 4 in tested.leadership.progress
    tested.now_ms += 100
    tested.ack(2, 1)
    assert 4 not in tested.leadership.progress
    assert 3 in tested.leadership.progress, "a voter never is"


@pytest.mark.parametrize("message", [AppendResponse(4, 1, True, 1, 0, 0, 0), FollowRequest(4, 0, 0, 0)])
def test_observer_with_another_directory_is_another_one(message: Message) -> None:
    tested = observed()
    tested.ack(4, 1, directory_id=FOUR)
    tested.receive(message, b"another")
    progress = tested.leadership.progress[4]
    assert (progress.match_index, progress.directory_id, type(progress.state)) == (0, b"another", Probing)


def test_new_voter_that_another_log_takes_the_place_of_is_not_added() -> None:
    tested = observed()
    add(tested)
    tested.receive(FollowRequest(4, 0, 0, 0), b"another")
    tested.ack(4, 1, directory_id=b"another")
    assert tested.of(VoterChangeAccepted) == []
    tested.receive(FollowRequest(4, 0, 0, 0), FOUR)
    tested.ack(4, 1, directory_id=FOUR)
    assert tested.of(VoterChangeAccepted) == [VoterChangeAccepted(7, 2, 1)]


def test_removed_voter_that_began_anew_is_followed_as_an_observer() -> None:
    tested = leading(voters=KNOWN, directory_id=ONE)
    remove(tested, 3)
    tested.ack(3, 1, directory_id=b"another")
    assert tested.leadership.progress[3].directory_id == b"another"
