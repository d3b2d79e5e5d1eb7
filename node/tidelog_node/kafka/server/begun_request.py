"""A request in progress on a connection, with its resources."""

from __future__ import annotations

import asyncio

from tidelog_node.event_loop import Pending
from tidelog_node.kafka.served import Body
from tidelog_node.kafka.server.callers import Callers
from tidelog_node.kafka.server.limits import Reservation
from tidelog_node.kafka.server.request_times import ApiTimes, TimedExchange
from tidelog_node.quotas.usage import RequestUsage


class BegunRequest(TimedExchange):
    """An exchange with its resources: the memory of its request, its usage of quotas, and its task or future.

    It is the request's name in the log.
    """

    __slots__ = ("_callers", "memory", "usage", "work")

    def __init__(
        self,
        correlation_id: int,
        times: ApiTimes,
        received_ns: int,
        *,
        overlaps: bool,
        has_tags: bool,
        callers: Callers,
    ) -> None:
        super().__init__(correlation_id, times, received_ns, overlaps=overlaps, has_tags=has_tags)
        self.memory: Reservation | None = None
        self._callers = callers
        self.usage: RequestUsage | None = None
        self.work: asyncio.Future[Body | None] | Pending[Body | None] | None = None

    def release(self) -> None:
        """Release the memory of the request."""
        if self.memory is not None:
            self.memory.release()
            self.memory = None

    def origin(self) -> str:
        """Return the address of the client and the listener."""
        return self._callers.origin

    def request_id(self) -> str:
        """Return the client id and the correlation id."""
        return f"{self._callers.client_id}/{self.correlation_id}"

    def throttle_ns(self) -> int:
        """Return the time for which quotas delay the client after the response."""
        return 0 if self.usage is None else self.usage.delay_ms * 1_000_000
