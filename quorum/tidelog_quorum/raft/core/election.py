"""How a replica comes to lead: candidates, votes, and looking for a leader without a vote.

- A voter that hears no leader for an election timeout asks whether it would win before it raises its term (pre-vote,
  thesis 9.6, KIP-996), and then asks for votes in a new term, its own among them (figure 2, candidates).
- A vote is given once in a term, to a log at least as up to date as the own one, and is on disk before it leaves
  (figure 2, RequestVote; paper 5.4.1). The own one counts when it is on disk.
- Nobody answers a request while it hears from a leader (thesis 4.2.3), so that a voter cut off or removed disturbs
  nobody when it returns; but for one whom the leader itself has asked to take over (thesis 3.10).
- Votes are counted by the latest set of voters in the log (thesis 4.1). A replica that is in none of the sets that
  may still be in force does not campaign. One that only the latest has dropped does, without its own vote: the entry
  that drops it may be on its disk alone, and then nobody else can win (thesis 4.2.2). Whoever is asked votes, in a set
  or not: the candidate's may be newer.
- A candidate that has another directory than its voter is one that has forgotten its votes, and gets none; but if its
  log has all of ours, with the committed set that names the old directory, then it has joined anew after that.
- A replica without a vote that hears no leader asks the voters to be sent the log (KIP-853's observers). So does one
  that campaigns in vain: it may have lost its vote while it was away, and the log will tell.
- Who is putting a snapshot in the place of its log does not campaign: what it has to show is about to change.
"""

from __future__ import annotations

from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import (
    UNKNOWN_VOTER,
    EntryKind,
    FollowRequest,
    HardState,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.replica import Candidate, Follower, Replica


def on_election_timeout(replica: Replica) -> None:
    """Campaign, or look for a leader."""
    if replica.is_installing:
        replica.retry_election_later()
    elif _may_campaign(replica):
        is_in_vain = isinstance(replica.role, Candidate)
        _campaign(replica, pre_vote=True)
        if is_in_vain:
            _ask_for_log(replica)
    else:
        replica.follow(None)
        replica.election_deadline_ms = replica.now_ms + replica.config.heartbeat_interval_ms
        _ask_for_log(replica)


def on_vote_request(replica: Replica, request: VoteRequest) -> None:
    """Give or refuse a vote, or the leave to ask for one."""
    granted = request.term == replica.term and replica.log.is_covered_by(request.last_term, request.last_index)
    if granted and not request.pre_vote:
        granted = replica.leader_id is None and replica.hard_state.voted_for in (None, request.sender_id)
    if granted and not request.pre_vote:
        replica.hard_state = HardState(replica.term, request.sender_id)
        replica.follow(None)
        replica.restart_election_timer()
    replica.reply(request.sender_id, VoteResponse(replica.node_id, replica.term, request.pre_vote, granted))


def on_vote_response(replica: Replica, response: VoteResponse) -> None:
    """Count a vote of this term."""
    if response.term < replica.term or not response.granted:
        return
    if isinstance(replica.role, Candidate) and replica.role.pre_vote == response.pre_vote:
        _count_vote(replica, replica.role, response.sender_id)


def on_timeout_now(replica: Replica, message: TimeoutNow) -> None:
    """Campaign at once, for the leader has asked for it; no pre-vote, which would ask whether a leader lives."""
    follows = isinstance(replica.role, Follower) and replica.role.leader_id == message.sender_id
    if follows and message.term == replica.term and replica.has_vote and not replica.is_installing:
        _campaign(replica, pre_vote=False, transfer=True)


def on_vote_durable(replica: Replica, candidate: Candidate) -> None:
    """Count the own vote once it is on disk."""
    if not candidate.pre_vote and replica.has_vote and replica.durability.hard_state == replica.hard_state:
        _count_vote(replica, candidate, replica.node_id)


def hears_a_leader(replica: Replica) -> bool:
    """Return whether a leader lives as far as this replica knows: vote requests are ignored then."""
    if isinstance(replica.role, Leadership):
        return True
    heard_ms = replica.now_ms - replica.leader_contact_ms
    return replica.leader_id is not None and heard_ms < replica.config.election_timeout_ms


def may_have_joined_anew(replica: Replica, request: VoteRequest) -> bool:
    """Return whether a candidate whose directory is not its voter's can have become a voter again since."""
    knows_the_set = 0 < replica.voters.index <= min(replica.commit_index, request.last_index)
    return knows_the_set and replica.log.is_covered_by(request.last_term, request.last_index)


def _may_campaign(replica: Replica) -> bool:
    sets = replica.voters.since(replica.commit_index)
    return any(voters.is_voter(replica.node_id, replica.directory_id) for voters in sets)


def _campaign(replica: Replica, *, pre_vote: bool, transfer: bool = False) -> None:
    if not pre_vote:
        replica.hard_state = HardState(replica.term + 1, replica.node_id)
    replica.retry_election_later()
    replica.role = Candidate(pre_vote, set())
    log = replica.log
    for peer in replica.peers:
        request = VoteRequest(replica.node_id, replica.term, pre_vote, log.last_index, log.last_term, transfer)
        replica.reply(peer, request)
    if pre_vote and replica.has_vote:
        _count_vote(replica, replica.role, replica.node_id)


def _count_vote(replica: Replica, candidate: Candidate, voter: int) -> None:
    candidate.granted.add(voter)
    voters = replica.voters.current
    if sum(voter_id in candidate.granted for voter_id in voters.ids) <= len(voters) // 2:
        return
    if candidate.pre_vote:
        _campaign(replica, pre_vote=False)
    else:
        _lead(replica)


def _lead(replica: Replica) -> None:
    # Whoever is elected has all that is committed, and so all that a snapshot stands for (leader completeness).
    replica.incoming = None
    replica.role = Leadership(
        replica.node_id,
        replica.directory_id,
        replica.term,
        replica.log,
        replica.voters,
        replica.config,
        replica.now_ms,
        replica.address,
    )
    replica.append(EntryKind.NO_OP, b"")


def _ask_for_log(replica: Replica) -> None:
    log = replica.log
    for voter in replica.peers or (UNKNOWN_VOTER,):
        replica.reply(voter, FollowRequest(replica.node_id, replica.term, log.last_index, log.last_term))
