"""The leader's description of the quorum, for operators."""

from __future__ import annotations

from tidelog_quorum.raft.core import Leadership, Raft, ReplicaState
from tidelog_quorum.raft.peers import Peers
from tidelog_quorum.raft.protocol import LeaderAndEpoch, QuorumDescription, ReplicaDescription


def describe_quorum(core: Raft, leader: LeaderAndEpoch, peers: Peers, now_ms: int) -> QuorumDescription:
    """Describe the quorum of a leading core."""
    states = core.role.replicas(core.durability.last_index, now_ms) if isinstance(core.role, Leadership) else []
    replicas = {state.replica_id: _describe(state, core.node_id, peers, now_ms) for state in states}
    return QuorumDescription(
        leader=leader,
        high_watermark=core.commit_index,
        voters=tuple(replicas[s.replica_id] for s in states if s.is_voter),
        observers=tuple(replicas[s.replica_id] for s in states if not s.is_voter),
        snapshot_offset=-1 if core.snapshot is None else core.snapshot.last_index,
        log_start_offset=core.log.first_index,
    )


def _describe(state: ReplicaState, leader_id: int, peers: Peers, now_ms: int) -> ReplicaDescription:
    host, port = peers.address_of(state.replica_id)
    is_leader = state.replica_id == leader_id
    return ReplicaDescription(
        replica_id=state.replica_id,
        directory_id=state.directory_id,
        host=host,
        port=port,
        log_end_offset=state.match_index,
        last_fetch_age_ms=0 if is_leader else _age_ms(state.last_contact_ms, now_ms),
        last_caught_up_age_ms=0 if is_leader else _age_ms(state.last_caught_up_ms, now_ms),
    )


def _age_ms(time_ms: int | None, now_ms: int) -> int | None:
    return None if time_ms is None else max(0, now_ms - time_ms)
