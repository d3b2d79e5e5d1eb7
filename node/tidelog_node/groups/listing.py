"""ListGroups of a shard, processed in slices so that a listing of many groups does not block other calls."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator

from tidelog_node.groups.messages import GroupListing, ListGroupsRequest, ListGroupsResponse

_SLICE = 100
Look = Callable[[str, ListGroupsRequest], GroupListing | None]
"""Returns a group's entry, or None if the group is not listed."""


class _Listing:
    """A listing in progress. A group that appears or disappears meanwhile may or may not be included."""

    def __init__(self, call_id: int, request: ListGroupsRequest, ids: Iterator[str]) -> None:
        self.call_id = call_id
        self._request = request
        self._ids = ids
        self._lines: dict[str, GroupListing | None] = {}

    def go_on(self, look: Look) -> ListGroupsResponse | None:
        """Process the next slice of groups and return the response after the last slice."""
        slice_ids = list(itertools.islice(self._ids, _SLICE))
        for group_id in slice_ids:
            if group_id not in self._lines:
                self._lines[group_id] = look(group_id, self._request)
        if len(slice_ids) == _SLICE:
            return None
        lines = (self._lines[group_id] for group_id in sorted(self._lines))
        return ListGroupsResponse(groups=tuple(line for line in lines if line is not None))


class Listings:
    """The listings in progress of a shard. The oldest one runs first."""

    def __init__(self) -> None:
        self._open: deque[_Listing] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def calls(self) -> list[int]:
        """The ids of the calls that wait for a listing."""
        return [listing.call_id for listing in self._open]

    def begin(self, call_id: int, request: ListGroupsRequest, ids: Iterator[str]) -> None:
        """Begin a listing."""
        self._open.append(_Listing(call_id, request, ids))

    def abandon(self, call_id: int) -> bool:
        """Forget an abandoned listing and return whether it existed."""
        kept = deque(listing for listing in self._open if listing.call_id != call_id)
        is_one = len(kept) < len(self._open)
        self._open = kept
        return is_one

    def go_on(self, look: Look) -> tuple[int, ListGroupsResponse] | None:
        """Process one slice of the oldest listing and return its call id and response when it ends."""
        response = self._open[0].go_on(look)
        return None if response is None else (self._open.popleft().call_id, response)
