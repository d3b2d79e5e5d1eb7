"""Offset commits, fetches and deletions of a group: their permission checks, writes and answers."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.answers import commit_error, refuse
from tidelog_node.groups.classic import ClassicGroup, membership
from tidelog_node.groups.events import RequestReceived
from tidelog_node.groups.held import HeldGroup, not_found
from tidelog_node.groups.messages import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchGroup
from tidelog_node.groups.offsets import requests
from tidelog_node.groups.offsets.deleted_topics import DeletedTopics
from tidelog_node.groups.turn import Turn

_NO_EPOCH = -1


def commit(
    held: HeldGroup, call: RequestReceived, request: OffsetCommitRequest, deleted: DeletedTopics, turn: Turn
) -> None:
    """Handle OffsetCommit. A commit without a generation creates a simple group if the group does not exist.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND, or ILLEGAL_GENERATION for clients before KIP-848, and the errors of the
            group's own check.
    """
    _check_commit(held, request, turn)
    changes, response = requests.commit(request, turn)
    if not changes:
        turn.respond(call.call_id, response)
        return

    def failed(turn: Turn, error: TidelogError) -> None:
        turn.respond(call.call_id, requests.failed_commit(response, commit_error(error)))

    turn.write(
        held.group_id,
        offsets=(*requests.deletions(deleted.offsets_of(held.group_id, held.offsets)), *changes),
        on_written=lambda _: deleted.note_gone(held.group_id),
        on_committed=lambda turn: turn.respond(call.call_id, response),
        on_failed=failed,
    )


def fetch(held: HeldGroup, call: RequestReceived, request: OffsetFetchGroup, turn: Turn) -> None:
    """Handle OffsetFetch of one group. A group that does not exist has no offsets.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH, in groups of KIP-848's protocol.
    """
    if not isinstance(held.group, ClassicGroup):
        epoch = _NO_EPOCH if request.member_id is None else request.member_epoch
        held.group.check_fetch(request.member_id, epoch)
    turn.respond(call.call_id, requests.fetch(request, held.offsets))


def delete(held: HeldGroup, call: RequestReceived, request: OffsetDeleteRequest, turn: Turn) -> None:
    """Handle OffsetDelete.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if the members are not consumers.
    """
    group = held.group
    if not held.exists:
        raise not_found(held.group_id)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        raise error_for(
            ErrorCode.NON_EMPTY_GROUP, f"group {held.group_id} has members of the type {group.protocol_type!r}"
        )
    changes, response = requests.delete(request, held.offsets, group.is_subscribed_to)
    if not changes:
        turn.respond(call.call_id, response)
        return
    turn.write(
        held.group_id,
        offsets=changes,
        on_committed=lambda turn: turn.respond(call.call_id, response),
        on_failed=lambda turn, error: turn.respond(call.call_id, refuse(request, commit_error(error))),
    )


def _check_commit(held: HeldGroup, request: OffsetCommitRequest, turn: Turn) -> None:
    epoch = request.generation_id_or_member_epoch
    if not held.exists and epoch >= 0:
        if request.without_member_epochs:
            raise error_for(ErrorCode.ILLEGAL_GENERATION, f"there is no group {held.group_id} with generation {epoch}")
        raise not_found(held.group_id)
    if isinstance(held.group, ClassicGroup):
        membership.check_commit(held.group, request)
        membership.keep_alive(held.group, request.member_id, turn)
    else:
        knows_epochs = not request.without_member_epochs
        held.group.check_commit(request.member_id, epoch, request.group_instance_id, knows_epochs=knows_epochs)
