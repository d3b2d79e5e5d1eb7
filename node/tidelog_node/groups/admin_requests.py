"""Administrative requests for groups: list, describe, delete."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups import messages
from tidelog_node.groups.answers import write_error
from tidelog_node.groups.classic import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from tidelog_node.groups.events import GroupCall
from tidelog_node.groups.loaded_groups import LoadedGroup, not_found
from tidelog_node.groups.member_requests import group_tombstones
from tidelog_node.groups.offsets.encoding import in_parts
from tidelog_node.groups.offsets.requests import deletions
from tidelog_node.groups.step import Effect, Step

_LISTED_AT_ONCE = 100
_CLASSIC = "classic"
_CONSUMER = "consumer"
Look: TypeAlias = Callable[[str, messages.ListGroupsRequest], messages.GroupListing | None]
"""Returns a group's entry, or None if the group is not listed."""


def listing(loaded: LoadedGroup, request: messages.ListGroupsRequest) -> messages.GroupListing | None:
    """Return a group's entry, or None if the filters exclude it or it does not exist (KIP-518, KIP-848)."""
    if not loaded.exists:
        return None
    group, kind, state = loaded.group, loaded.protocol, loaded.state_name
    protocol_type = (group.protocol_type or "") if isinstance(group, ClassicGroup) else CONSUMER_PROTOCOL_TYPE
    if not _passes(state, request.states_filter) or not _passes(kind, request.types_filter):
        return None
    return messages.GroupListing(loaded.group_id, protocol_type, state, kind)


class _Listing:
    """A listing in progress. A group that appears or disappears meanwhile may or may not be included."""

    def __init__(self, call_id: int, request: messages.ListGroupsRequest, ids: Iterator[str]) -> None:
        self.call_id = call_id
        self._request = request
        self._ids = ids
        self._lines: dict[str, messages.GroupListing | None] = {}

    def go_on(self, look: Look) -> messages.ListGroupsResponse | None:
        """Process the next slice of groups and return the response after the last slice."""
        slice_ids = list(itertools.islice(self._ids, _LISTED_AT_ONCE))
        for group_id in slice_ids:
            if group_id not in self._lines:
                self._lines[group_id] = look(group_id, self._request)
        if len(slice_ids) == _LISTED_AT_ONCE:
            return None
        lines = (self._lines[group_id] for group_id in sorted(self._lines))
        return messages.ListGroupsResponse(groups=tuple(line for line in lines if line is not None))


class Listings:
    """The listings in progress of a shard, in slices between which other calls run. The oldest one runs first."""

    def __init__(self) -> None:
        self._open: deque[_Listing] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def calls(self) -> list[int]:
        """The ids of the calls that wait for a listing."""
        return [listing.call_id for listing in self._open]

    def begin(self, call_id: int, request: messages.ListGroupsRequest, ids: Iterator[str]) -> None:
        """Begin a listing."""
        self._open.append(_Listing(call_id, request, ids))

    def abandon(self, call_id: int) -> bool:
        """Forget an abandoned listing and return whether it existed."""
        kept = deque(listing for listing in self._open if listing.call_id != call_id)
        is_one = len(kept) < len(self._open)
        self._open = kept
        return is_one

    def go_on(self, look: Look) -> tuple[int, messages.ListGroupsResponse] | None:
        """Process one slice of the oldest listing and return its call id and response when it ends."""
        response = self._open[0].go_on(look)
        return None if response is None else (self._open.popleft().call_id, response)


def describe_classic(groups: Iterable[LoadedGroup]) -> messages.DescribeGroupsResponse:
    """Return groups of the classic protocol with their members. Other groups are reported as Dead (KIP-1043)."""
    return messages.DescribeGroupsResponse(tuple(_described(loaded) for loaded in groups))


def describe_consumer(groups: Iterable[LoadedGroup], step: Step) -> messages.ConsumerGroupDescribeResponse:
    """Return groups of KIP-848's protocol with their members. Other groups are reported with GROUP_ID_NOT_FOUND."""
    return messages.ConsumerGroupDescribeResponse(tuple(_described_consumer(loaded, step) for loaded in groups))


def delete(groups: Sequence[LoadedGroup], call: GroupCall, step: Step) -> None:
    """Delete groups without members, and their offsets. The answer follows when all writes are committed."""
    if not groups:
        step.respond(call.call_id, messages.DeleteGroupsResponse())
    deletion = _Deletion(call.call_id, [loaded.group_id for loaded in groups])
    for loaded in groups:
        try:
            _check_delete(loaded)
        except TidelogError as error:
            deletion.end(loaded.group_id, step, error.detached())
        else:
            _delete_one(loaded, deletion, step)


class _Deletion:
    """Collects the result of each group and answers when all results are known."""

    def __init__(self, call_id: int, group_ids: Sequence[str]) -> None:
        self._call_id = call_id
        self._open = set(group_ids)
        self._results: dict[str, TidelogError | None] = dict.fromkeys(group_ids)

    def end(self, group_id: str, step: Step, error: TidelogError | None) -> None:
        """Record a group's result: success when all of its records are written, or the first error."""
        if group_id not in self._open:
            return
        self._results[group_id] = error
        self._open.discard(group_id)
        if not self._open:
            results = (messages.DeletedGroup(group_id, error) for group_id, error in self._results.items())
            step.respond(self._call_id, messages.DeleteGroupsResponse(tuple(results)))


def _delete_one(loaded: LoadedGroup, deletion: _Deletion, step: Step) -> None:
    *parts, last = in_parts(loaded.group_id, deletions(loaded.offsets.known))
    for part in parts:
        step.write(loaded.group_id, (), _Deleted(loaded, deletion, is_last=False), offsets=part)
    records = group_tombstones(loaded)
    effect = _Deleted(loaded, deletion, is_last=True)
    if last or records:
        step.write(loaded.group_id, records, effect, offsets=last)
    else:
        effect.written(step)
        effect.committed(step)


@dataclass(frozen=True, slots=True)
class _Deleted(Effect):
    """Deleted offsets of a group, and in the last write the group itself.

    A member that joins before the commit begins a new group, even though the old group's records are still visible.
    """

    loaded: LoadedGroup
    deletion: _Deletion
    is_last: bool

    def written(self, step: Step) -> None:
        if self.is_last:
            self.loaded.forget()

    def committed(self, step: Step) -> None:
        if self.is_last:
            self.deletion.end(self.loaded.group_id, step, None)

    def failed(self, step: Step, error: TidelogError) -> None:
        self.deletion.end(self.loaded.group_id, step, write_error(error))


def _check_delete(loaded: LoadedGroup) -> None:
    if not loaded.exists:
        raise not_found(loaded.group_id)
    if isinstance(loaded.group, ConsumerGroup):
        loaded.group.check_delete()
    elif not loaded.group.is_empty:
        raise error_for(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {loaded.group_id} has {len(loaded.group.members)} members: {loaded.group.state}",
        )


def _passes(word: str, wanted: Sequence[str]) -> bool:
    return not wanted or word.lower() in (want.lower() for want in wanted)


def _wrong_type(loaded: LoadedGroup, kind: str) -> TidelogError:
    if not loaded.exists:
        return not_found(loaded.group_id)
    return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {loaded.group_id} is not a {kind} group")


def _described_consumer(loaded: LoadedGroup, step: Step) -> messages.DescribedConsumerGroup:
    if isinstance(loaded.group, ConsumerGroup):
        return loaded.group.describe(step.topics)
    return messages.DescribedConsumerGroup(loaded.group_id, _wrong_type(loaded, _CONSUMER), str(ClassicState.DEAD))


def _described(loaded: LoadedGroup) -> messages.DescribedGroup:
    group = loaded.group
    if not isinstance(group, ClassicGroup) or not loaded.exists:
        return messages.DescribedGroup(loaded.group_id, _wrong_type(loaded, _CLASSIC), str(ClassicState.DEAD))
    is_stable = group.state is ClassicState.STABLE
    protocol_name = group.protocol_name if is_stable else None
    return messages.DescribedGroup(
        group_id=loaded.group_id,
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
