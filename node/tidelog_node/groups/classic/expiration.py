"""The effects of expired deadlines in a classic group: of members' sessions, of the sync phase and of the join phase.

- A member whose session expires leaves the group, unless it waits for the other members.
- A member without a SyncGroup at the end of the sync phase leaves the group.
- A member without a JoinGroup at the end of the join phase leaves the group, unless it is static.
- The initial delay of a group that was empty begins again while members join, up to a rebalance timeout.

Each departure begins a rebalance. :mod:`.timers` stores the deadlines.
"""

from __future__ import annotations

from tidelog_node.groups.classic.group import ClassicGroup, ClassicState
from tidelog_node.groups.classic.rebalance import complete_join, prepare_rebalance, rebalance_without, remove_member
from tidelog_node.groups.classic.timers import InitialDelay
from tidelog_node.groups.step import Step


def expire(group: ClassicGroup, step: Step) -> None:
    """Process all expired deadlines."""
    for member_id in [m for m, deadline_ms in group.timers.sessions.items() if deadline_ms <= step.now_ms]:
        _expire_session(group, member_id, step)
    if group.timers.sync_ms is not None and group.timers.sync_ms <= step.now_ms:
        _expire_syncs(group, step)
    if group.timers.join_ms is not None and group.timers.join_ms <= step.now_ms:
        _end_join_phase(group, step)
    group.timers.settle()


def _expire_session(group: ClassicGroup, member_id: str, step: Step) -> None:
    group.timers.cancel_session(member_id)
    member = group.members.get(member_id)
    if member is None:
        # The client received a member id and never joined.
        group.remove(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
            complete_join(group, step)
    elif member.is_new or (member.join_call is None and member.sync_call is None):
        # A member that waits for the others is not late. A new member is, since it may have disappeared silently.
        remove_member(group, member, step, f"its session of {member.session_timeout_ms} ms expired")
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            rebalance_without(group, step, "a session expired")
        elif group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
            complete_join(group, step)


def _expire_syncs(group: ClassicGroup, step: Step) -> None:
    group.timers.cancel_sync()
    late = [group.members[member_id] for member_id in group.pending_syncs]
    for member in late:
        remove_member(group, member, step, "it has not sent SyncGroup within the rebalance timeout")
    if late:
        prepare_rebalance(group, step, "members have not sent SyncGroup")


def _end_join_phase(group: ClassicGroup, step: Step) -> None:
    delay = group.timers.initial
    group.timers.cancel_join()
    if delay is None:
        complete_join(group, step)
    else:
        _end_initial_delay(group, delay, step)


def _end_initial_delay(group: ClassicGroup, delay: InitialDelay, step: Step) -> None:
    """End the join phase of a group that was empty, or wait once more because a member has joined."""
    if not group.new_member_added or delay.remaining_ms == 0:
        complete_join(group, step)
        return
    group.new_member_added = False
    delay_ms = min(step.settings.group_initial_rebalance_delay_ms, delay.remaining_ms)
    remaining_ms = max(delay.remaining_ms - delay.delay_ms, 0)
    group.timers.set_join(step.now_ms + delay_ms, InitialDelay(delay_ms, remaining_ms))
