"""The hand-over of leadership to another voter (thesis 3.10).

- From the request on, the leader accepts no proposals and begins no change of the voters, so its log does not grow.
- Once the target's disk has the whole log, the leader asks the target to campaign at once: its log is as good as any,
  and the others answer although they hear from a leader. The message is repeated with every heartbeat; a second one
  finds the target in a later term and does nothing.
- The leader leads until it learns of the later term. After an election timeout it accepts proposals again.
- The request is done when another voter is known to lead in a later term. It ends within an election timeout, before
  the replica that resigned could be elected again.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode
from tidelog_quorum.raft.core.commands import TransferDone
from tidelog_quorum.raft.core.events import TransferRequested
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import TimeoutNow
from tidelog_quorum.raft.core.replica import Replica, Transfer


def on_transfer_requested(replica: Replica, event: TransferRequested) -> None:
    """Begin a hand-over."""
    leader = replica.role
    if not isinstance(leader, Leadership):
        replica.refuse(event.request_id, ErrorCode.NOT_CONTROLLER, "it does not lead the quorum")
        return
    target = leader.best_successor(replica.now_ms) if event.to is None else event.to
    refusal = _refusal(replica, target)
    if refusal is not None:
        replica.refuse(event.request_id, *refusal)
        return
    assert target is not None
    wait_ms = min(event.timeout_ms, replica.config.election_timeout_ms)
    replica.transfer = Transfer(event.request_id, target, replica.term, replica.now_ms + wait_ms)


def advance(replica: Replica, transfer: Transfer) -> None:
    """Ask the target to campaign when due, and complete the request."""
    if replica.term > transfer.term and replica.leader_id is not None and replica.leader_id != replica.node_id:
        replica.transfer = None
        replica.outbox.append(TransferDone(transfer.request_id))
    elif replica.now_ms >= transfer.deadline_ms:
        replica.transfer = None
        reason = f"voter {transfer.target} has not taken over"
        replica.refuse(transfer.request_id, ErrorCode.REQUEST_TIMED_OUT, reason)
    elif isinstance(replica.role, Leadership):
        _ask_target(replica, replica.role, transfer)


def _refusal(replica: Replica, target: int | None) -> tuple[ErrorCode, str] | None:
    if replica.transfer is not None:
        return ErrorCode.INVALID_REQUEST, f"it is handing over to voter {replica.transfer.target}"
    if target is None:
        return ErrorCode.INVALID_REQUEST, "there is no other voter"
    if target == replica.node_id:
        return ErrorCode.INVALID_REQUEST, "it leads already"
    if target not in replica.voters.current:
        voters = list(replica.voters.current.ids)
        return ErrorCode.VOTER_NOT_FOUND, f"{target} is none of the voters {voters}"
    return None


def _ask_target(replica: Replica, leader: Leadership, transfer: Transfer) -> None:
    told = transfer.told_ms
    is_due = told is None or replica.now_ms - told >= replica.config.heartbeat_interval_ms
    if is_due and leader.progress[transfer.target].match_index == replica.log.last_index:
        transfer.told_ms = replica.now_ms
        replica.reply(transfer.target, TimeoutNow(replica.node_id, replica.term))
