"""Administrative requests for groups: list, describe, delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups import messages
from tidelog_node.groups.answers import write_error
from tidelog_node.groups.classic import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from tidelog_node.groups.events import RequestReceived
from tidelog_node.groups.group_requests import group_tombstones
from tidelog_node.groups.held import HeldGroup, not_found
from tidelog_node.groups.offsets.encoding import in_parts
from tidelog_node.groups.offsets.requests import deletions
from tidelog_node.groups.turn import Turn

_CLASSIC = "classic"
_CONSUMER = "consumer"


def listing(held: HeldGroup, request: messages.ListGroupsRequest) -> messages.GroupListing | None:
    """Return a group's entry, or None if the filters exclude it or it does not exist (KIP-518, KIP-848)."""
    if not held.exists:
        return None
    group = held.group
    if isinstance(group, ClassicGroup):
        kind, state, protocol_type = _CLASSIC, str(group.state), group.protocol_type or ""
    else:
        kind, state, protocol_type = _CONSUMER, group.state_name, CONSUMER_PROTOCOL_TYPE
    if not _passes(state, request.states_filter) or not _passes(kind, request.types_filter):
        return None
    return messages.GroupListing(held.group_id, protocol_type, state, kind)


def describe_classic(groups: Iterable[HeldGroup]) -> messages.DescribeGroupsResponse:
    """Return groups of the classic protocol with their members. Other groups are reported as Dead (KIP-1043)."""
    return messages.DescribeGroupsResponse(tuple(_described(held) for held in groups))


def describe_consumer(groups: Iterable[HeldGroup], turn: Turn) -> messages.ConsumerGroupDescribeResponse:
    """Return groups of KIP-848's protocol with their members. Other groups are reported with GROUP_ID_NOT_FOUND."""
    return messages.ConsumerGroupDescribeResponse(tuple(_described_consumer(held, turn) for held in groups))


def delete(groups: Sequence[HeldGroup], call: RequestReceived, turn: Turn) -> None:
    """Delete groups without members, and their offsets. The answer follows when all writes are committed."""
    if not groups:
        turn.respond(call.call_id, messages.DeleteGroupsResponse())
    deletion = _Deletion(call.call_id, [held.group_id for held in groups])
    for held in groups:
        try:
            _check_delete(held)
        except TidelogError as error:
            deletion.end(held.group_id, turn, error.detached())
        else:
            _delete_one(held, deletion, turn)


class _Deletion:
    """Collects the result of each group and answers when all results are known."""

    def __init__(self, call_id: int, group_ids: Sequence[str]) -> None:
        self._call_id = call_id
        self._open = set(group_ids)
        self._results: dict[str, TidelogError | None] = dict.fromkeys(group_ids)

    def end(self, group_id: str, turn: Turn, error: TidelogError | None) -> None:
        """Note a group's result: success when all of its records are written, or the first error."""
        if group_id not in self._open:
            return
        self._results[group_id] = error
        self._open.discard(group_id)
        if not self._open:
            results = (messages.DeletedGroup(group_id, error) for group_id, error in self._results.items())
            turn.respond(self._call_id, messages.DeleteGroupsResponse(tuple(results)))


def _delete_one(held: HeldGroup, deletion: _Deletion, turn: Turn) -> None:
    def written(_: Turn) -> None:
        # A member that joins now begins a new group, even though the old group's records are still visible.
        held.group = ClassicGroup(held.group_id)
        held.is_recorded = False

    def failed(turn: Turn, error: TidelogError) -> None:
        deletion.end(held.group_id, turn, write_error(error))

    *parts, last = in_parts(held.group_id, deletions(held.offsets.known))
    for part in parts:
        turn.write(held.group_id, offsets=part, on_failed=failed)
    records = group_tombstones(held)
    if not last and not records:
        written(turn)
        deletion.end(held.group_id, turn, None)
        return
    turn.write(
        held.group_id,
        records,
        offsets=last,
        on_written=written,
        on_committed=lambda turn: deletion.end(held.group_id, turn, None),
        on_failed=failed,
    )


def _check_delete(held: HeldGroup) -> None:
    if not held.exists:
        raise not_found(held.group_id)
    if isinstance(held.group, ConsumerGroup):
        held.group.check_delete()
    elif not held.group.is_empty:
        raise error_for(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {held.group_id} has {len(held.group.members)} members: {held.group.state}",
        )


def _passes(word: str, wanted: Sequence[str]) -> bool:
    return not wanted or word.lower() in (want.lower() for want in wanted)


def _wrong_type(held: HeldGroup, kind: str) -> TidelogError:
    if not held.exists:
        return not_found(held.group_id)
    return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {held.group_id} is not a {kind} group")


def _described_consumer(held: HeldGroup, turn: Turn) -> messages.DescribedConsumerGroup:
    if isinstance(held.group, ConsumerGroup):
        return held.group.describe(turn.topics)
    return messages.DescribedConsumerGroup(held.group_id, _wrong_type(held, _CONSUMER), str(ClassicState.DEAD))


def _described(held: HeldGroup) -> messages.DescribedGroup:
    group = held.group
    if not isinstance(group, ClassicGroup) or not held.exists:
        return messages.DescribedGroup(held.group_id, _wrong_type(held, _CLASSIC), str(ClassicState.DEAD))
    is_stable = group.state is ClassicState.STABLE
    protocol_name = group.protocol_name if is_stable else None
    return messages.DescribedGroup(
        group_id=held.group_id,
        group_state=str(group.state),
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name or "",
        members=tuple(_described_member(member, protocol_name) for member in group.members.values()),
    )


def _described_member(member: ClassicMember, protocol_name: str | None) -> messages.DescribedGroupMember:
    return messages.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol_name),
        member_assignment=b"" if protocol_name is None else member.assignment,
    )
