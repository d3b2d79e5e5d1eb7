"""Expired deadlines of a classic group."""

from __future__ import annotations

from tidelog_node.groups.classic.group import ClassicGroup, ClassicState
from tidelog_node.groups.classic.rebalance import (
    complete_join,
    end_initial_delay,
    prepare_rebalance,
    rebalance_without,
    remove_member,
    reset_session,
)
from tidelog_node.groups.step import Step


def begin_loaded(group: ClassicGroup, step: Step) -> None:
    """Start the sessions of the members of a loaded group.

    The group rebalances if it has become too large, or if the rebalance after its downgrade was lost.
    """
    for member in group.members.values():
        reset_session(group, member, step)
    if group.must_rebalance or len(group.members) > step.settings.group_max_size:
        prepare_rebalance(group, step)


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
        remove_member(group, member, step)
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            rebalance_without(group, step)
        elif group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
            complete_join(group, step)


def _expire_syncs(group: ClassicGroup, step: Step) -> None:
    group.timers.cancel_sync()
    late = [group.members[member_id] for member_id in group.pending_syncs]
    for member in late:
        remove_member(group, member, step)
    if late:
        prepare_rebalance(group, step)


def _end_join_phase(group: ClassicGroup, step: Step) -> None:
    delay = group.timers.initial
    group.timers.cancel_join()
    if delay is None:
        complete_join(group, step)
    else:
        end_initial_delay(group, delay, step)
