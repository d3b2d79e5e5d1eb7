"""The memory of requests, reserved before a frame is received and released after the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog_foundation.transport.budget import ByteBudget
from tidelog_node.kafka.protocol.api_keys import ApiKey

REQUEST_BYTES: Final = 4 * 1024
"""The memory of a request in progress in addition to its frame: messages, tasks, futures."""
SMALL_BYTES: Final = 64 * 1024
"""Frames up to this size are received without a reservation, except those of Produce."""
_OTHERS_SHARE: Final = 4


class RequestBudgets:
    """The budgets of a node's requests, shared with gRPC. Produce requests wait for memory in ``produced``.

    All other requests share a separate quarter of ``limit``, and only large frames wait for it. Produce requests that
    use the whole budget may depend on the fetches of followers, and members of a group on the request of another
    member.
    """

    def __init__(self, produced: ByteBudget, limit: int) -> None:
        self._produced = produced
        self.others = ByteBudget(max(1, limit // _OTHERS_SHARE))
        """The budget of both protocols' large requests other than Produce."""

    def reserve(self, api_key: int, size: int) -> Reservation | None:
        """Reserve the memory of a frame, or return None if it needs none."""
        if api_key == ApiKey.PRODUCE:
            return Reservation(self._produced, size + REQUEST_BYTES)
        return Reservation(self.others, size + REQUEST_BYTES) if size > SMALL_BYTES else None


class Reservation:
    """The memory of one frame, reserved or waited for. :meth:`release` is called once, at any time."""

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
        """True if later requests wait for this memory."""
        return self.is_taken and self._budget.is_contended

    def call_when_taken(self, call: Callable[[], None]) -> None:
        """Call ``call`` once the memory is reserved or the wait is given up."""
        if self._place is not None:
            self._place.add_done_callback(lambda _: call())

    def release(self) -> None:
        """Release the memory, or stop waiting for it."""
        if self._place is None:
            self._budget.give_back(self._size)
        else:
            self._budget.withdraw(self._place, self._size)
