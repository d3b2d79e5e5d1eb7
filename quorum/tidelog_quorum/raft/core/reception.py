"""Filters incoming messages and decides which of them may raise the term.

- Every message carries its sender's term. A higher one is adopted, and answers of an older one are dropped, so that no
  answer to a question of an earlier term counts in a later one (figure 2, all servers; paper 5.1).
- A term is adopted from leaders, from candidates that get an answer at all, and from voters. A replica without a vote
  may have any term and unseats nobody; but a leader that is about to give it a vote adopts its term.
- Messages with a voter's id from a log that is not the voter's do not count: that log has forgotten the voter's
  promises. Leaders' messages need no such check: a leader was elected, possibly by voters not known here yet.
"""

from __future__ import annotations

from typing import assert_never

from tidelog_quorum.raft.core import election, follower, messages, snapshots
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.replica import Replica


def on_message(replica: Replica, message: messages.Message, directory_id: bytes, endpoints: Endpoints | None) -> None:
    """Dispatch another replica's message; ``directory_id`` and ``endpoints`` are the sender's."""
    if message.sender_id == replica.node_id:
        return
    if isinstance(replica.role, Leadership):
        replica.role.note_endpoints(message.sender_id, directory_id, endpoints)
    match message:
        case messages.AppendRequest():
            _adopt(replica, message.term)
            follower.on_append_request(replica, message)
            snapshots.drop_superseded(replica)
        case messages.SnapshotRequest():
            _adopt(replica, message.term)
            snapshots.on_snapshot_request(replica, message)
            snapshots.drop_superseded(replica)
        case messages.TimeoutNow():
            _adopt(replica, message.term)
            election.on_timeout_now(replica, message)
            snapshots.drop_superseded(replica)
        case messages.VoteRequest():
            _on_vote_request(replica, message, directory_id)
        case messages.VoteResponse():
            _on_vote_response(replica, message, directory_id)
        case messages.AppendResponse() | messages.SnapshotResponse():
            _on_response(replica, message, directory_id)
        case messages.FollowRequest():
            if isinstance(replica.role, Leadership):
                replica.role.on_follow_request(message, directory_id, replica.now_ms)
        case _:
            assert_never(message)


def _on_vote_request(replica: Replica, request: messages.VoteRequest, directory_id: bytes) -> None:
    voters = replica.voters.current
    is_other_log = request.sender_id in voters and not voters.is_voter(request.sender_id, directory_id)
    if is_other_log and not election.may_have_rejoined(replica, request):
        return
    if election.has_live_leader(replica) and not request.transfer:
        return
    _adopt(replica, request.term)
    election.on_vote_request(replica, request)


def _on_vote_response(replica: Replica, response: messages.VoteResponse, directory_id: bytes) -> None:
    if replica.voters.current.is_voter(response.sender_id, directory_id):
        _adopt(replica, response.term)
        election.on_vote_response(replica, response)


def _on_response(
    replica: Replica, response: messages.AppendResponse | messages.SnapshotResponse, directory_id: bytes
) -> None:
    if response.term > replica.term:
        if _may_raise_term(replica, response.sender_id, directory_id):
            _adopt(replica, response.term)
        return
    leader = replica.role
    if response.term < replica.term or not isinstance(leader, Leadership):
        return
    progress = leader.admit(response.sender_id, directory_id, replica.now_ms)
    if progress is None:
        return
    match response:
        case messages.AppendResponse():
            leader.on_append_response(progress, response, replica.now_ms)
        case messages.SnapshotResponse():
            leader.on_snapshot_response(progress, response, replica.now_ms)
        case _:
            assert_never(response)
    replica.advance_commit(leader)


def _may_raise_term(replica: Replica, sender_id: int, directory_id: bytes) -> bool:
    role = replica.role
    if isinstance(role, Leadership) and role.catch_up is not None and role.catch_up.voter.voter_id == sender_id:
        return True
    return replica.voters.current.is_voter(sender_id, directory_id)


def _adopt(replica: Replica, term: int) -> None:
    if term > replica.term:
        replica.adopt_term(term)
