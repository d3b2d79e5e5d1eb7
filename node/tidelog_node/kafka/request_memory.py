"""The memory of requests: taken before a frame is received, and held until the request is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog_foundation.transport.budget import ByteBudget
from tidelog_node.kafka.protocol.api_keys import ApiKey

REQUEST_BYTES: Final = 4 * 1024
"""What a request under way takes beside its frame: messages, tasks, futures."""
SMALL_BYTES: Final = 64 * 1024
"""Frames up to this size are received without a budget, but for those that are produced."""
_OTHERS_SHARE: Final = 4


class RequestBudgets:
    """The budgets of a node's requests, which gRPC shares. What is produced waits for a place in ``produced``.

    All else has a quarter of ``limit`` of its own, where only large frames wait: produce requests that hold the whole
    budget may wait for the fetches of followers, and the other members of a group for the one whose request is next.
    """

    def __init__(self, produced: ByteBudget, limit: int) -> None:
        self._produced = produced
        self.others = ByteBudget(max(1, limit // _OTHERS_SHARE))
        """Of the large requests of both protocols that are not produced."""

    def reserve(self, api_key: int, size: int) -> Reservation | None:
        """Reserve the memory of a frame, None where it needs none."""
        if api_key == ApiKey.PRODUCE:
            return Reservation(self._produced, size + REQUEST_BYTES)
        return Reservation(self.others, size + REQUEST_BYTES) if size > SMALL_BYTES else None


class Reservation:
    """The memory of one frame: taken, or waited for. :meth:`release` is called once, at any time."""

    __slots__ = ("_budget", "_place", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size
        self._place = budget.reserve(size)

    @property
    def is_taken(self) -> bool:
        """True if the frame may be received."""
        return self._place is None or self._place.done()

    @property
    def is_wanted(self) -> bool:
        """True if others wait for it, who come after."""
        return self.is_taken and self._budget.is_contended

    def call_when_taken(self, call: Callable[[], None]) -> None:
        """Call once when it is taken, or given up."""
        if self._place is not None:
            self._place.add_done_callback(lambda _: call())

    def release(self) -> None:
        """Give it back, or wait no more."""
        if self._place is None:
            self._budget.give_back(self._size)
        else:
            self._budget.withdraw(self._place, self._size)
