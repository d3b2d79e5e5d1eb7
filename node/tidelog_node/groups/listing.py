"""ListGroups of a shard, in slices: there may be a hundred thousand groups, and other calls are not to wait for all."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator

from tidelog.v1 import group_service_pb2 as pb

_SLICE = 100
Look = Callable[[str, pb.ListGroupsRequest], pb.GroupListing | None]
"""Returns a group's line, None where it has none."""


class _Listing:
    """One that is under way; a group that comes or goes meanwhile is in it or not."""

    def __init__(self, call_id: int, request: pb.ListGroupsRequest, ids: Iterator[str]) -> None:
        self.call_id = call_id
        self._request = request
        self._ids = ids
        self._lines: dict[str, pb.GroupListing | None] = {}

    def go_on(self, look: Look) -> pb.ListGroupsResponse | None:
        """Look at some groups; returns the response after the last."""
        slice_ids = list(itertools.islice(self._ids, _SLICE))
        for group_id in slice_ids:
            if group_id not in self._lines:
                self._lines[group_id] = look(group_id, self._request)
        if len(slice_ids) == _SLICE:
            return None
        lines = (self._lines[group_id] for group_id in sorted(self._lines))
        return pb.ListGroupsResponse(groups=[line for line in lines if line is not None])


class Listings:
    """Those of a shard that are under way; the oldest goes on first."""

    def __init__(self) -> None:
        self._open: deque[_Listing] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def calls(self) -> list[int]:
        """The calls that wait."""
        return [listing.call_id for listing in self._open]

    def begin(self, call_id: int, request: pb.ListGroupsRequest, ids: Iterator[str]) -> None:
        """Begin one."""
        self._open.append(_Listing(call_id, request, ids))

    def abandon(self, call_id: int) -> bool:
        """Forget one that nobody waits for; returns whether there was one."""
        kept = deque(listing for listing in self._open if listing.call_id != call_id)
        is_one = len(kept) < len(self._open)
        self._open = kept
        return is_one

    def go_on(self, look: Look) -> tuple[int, pb.ListGroupsResponse] | None:
        """Go on with the oldest by one slice; returns its call and response when it ends."""
        response = self._open[0].go_on(look)
        return None if response is None else (self._open.popleft().call_id, response)
