"""Elections: candidates, votes, and the search for a leader by replicas without a vote.

- A voter that hears no leader for an election timeout asks whether it would win before it raises its term (pre-vote,
  thesis 9.6, KIP-996). Then it requests votes in a new term and votes for itself (figure 2, candidates).
- A voter votes once in a term, for a log at least as up to date as its own, and the vote is on disk before it leaves
  (figure 2, RequestVote; paper 5.4.1). Its vote for itself counts once it is on disk.
- A replica that hears from a leader ignores vote requests (thesis 4.2.3), so a voter that was cut off or removed
  disturbs nobody when it returns. The exception is a candidate that the leader itself asked to take over (thesis 3.10).
- The latest set of voters in the log counts the votes (thesis 4.1). A replica that is in none of the sets that may be
  in force does not campaign. A replica that only the latest set dropped campaigns without its own vote: the entry that
  drops it may be on its disk alone, and then nobody else can win (thesis 4.2.2). Every replica that is asked votes, in
  a set or not, because the candidate's set may be newer.
- A candidate whose directory is not its voter's has forgotten its votes and gets none. If its log covers ours, with
  the committed set that names the old directory, it has joined again since then and gets votes.
- A replica without a vote that hears no leader asks the voters to send it the log (KIP-853's observers). So does a
  replica that campaigns in vain: it may have lost its vote while it was away, and the log will tell.
- A replica that is installing a snapshot does not campaign: its log is about to change.
"""

from __future__ import annotations

from tidelog_quorum.raft.core import messages
from tidelog_quorum.raft.core.leadership import Leadership
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


def on_vote_request(replica: Replica, request: messages.VoteRequest) -> None:
    """Grant or refuse a vote or pre-vote."""
    granted = request.term == replica.term and replica.log.is_covered_by(request.last_term, request.last_index)
    if granted and not request.pre_vote:
        granted = replica.leader_id is None and replica.hard_state.voted_for in (None, request.sender_id)
    if granted and not request.pre_vote:
        replica.hard_state = messages.HardState(replica.term, request.sender_id)
        replica.follow(None)
        replica.restart_election_timer()
    replica.reply(request.sender_id, messages.VoteResponse(replica.node_id, replica.term, request.pre_vote, granted))


def on_vote_response(replica: Replica, response: messages.VoteResponse) -> None:
    """Count a vote of this term."""
    if response.term < replica.term or not response.granted:
        return
    if isinstance(replica.role, Candidate) and replica.role.pre_vote == response.pre_vote:
        _count_vote(replica, replica.role, response.sender_id)


def on_timeout_now(replica: Replica, message: messages.TimeoutNow) -> None:
    """Campaign at once at the leader's request, without a pre-vote, which would ask whether a leader lives."""
    follows = isinstance(replica.role, Follower) and replica.role.leader_id == message.sender_id
    if follows and message.term == replica.term and replica.has_vote and not replica.is_installing:
        _campaign(replica, pre_vote=False, transfer=True)


def on_vote_durable(replica: Replica, candidate: Candidate) -> None:
    """Count this replica's own vote once it is on disk."""
    if not candidate.pre_vote and replica.has_vote and replica.durability.hard_state == replica.hard_state:
        _count_vote(replica, candidate, replica.node_id)


def has_live_leader(replica: Replica) -> bool:
    """Return whether this replica hears from a leader; it then ignores vote requests."""
    if isinstance(replica.role, Leadership):
        return True
    heard_ms = replica.now_ms - replica.leader_contact_ms
    return replica.leader_id is not None and heard_ms < replica.config.election_timeout_ms


def may_have_rejoined(replica: Replica, request: messages.VoteRequest) -> bool:
    """Return whether a candidate whose directory is not its voter's may have become a voter again."""
    knows_the_set = 0 < replica.voters.index <= min(replica.commit_index, request.last_index)
    return knows_the_set and replica.log.is_covered_by(request.last_term, request.last_index)


def _may_campaign(replica: Replica) -> bool:
    sets = replica.voters.since(replica.commit_index)
    return any(voters.is_voter(replica.node_id, replica.directory_id) for voters in sets)


def _campaign(replica: Replica, *, pre_vote: bool, transfer: bool = False) -> None:
    if not pre_vote:
        replica.hard_state = messages.HardState(replica.term + 1, replica.node_id)
    replica.retry_election_later()
    replica.role = Candidate(pre_vote, set())
    log = replica.log
    for peer in replica.peers:
        request = messages.VoteRequest(replica.node_id, replica.term, pre_vote, log.last_index, log.last_term, transfer)
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
    # An elected leader has every committed entry, and so everything in a snapshot (leader completeness).
    replica.incoming = None
    replica.role = Leadership(
        replica.node_id,
        replica.directory_id,
        replica.term,
        replica.log,
        replica.voters,
        replica.config,
        replica.now_ms,
        replica.endpoints,
        replica.listener,
    )
    replica.append(messages.EntryKind.NO_OP)


def _ask_for_log(replica: Replica) -> None:
    log = replica.log
    for voter in replica.peers or (messages.UNKNOWN_VOTER,):
        replica.reply(voter, messages.FollowRequest(replica.node_id, replica.term, log.last_index, log.last_term))
