"""Sends a connection's responses, and counts them until the kernel has taken them."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.kafka.protocol.headers import response_head
from tidelog_node.kafka.protocol.pipeline import Exchange
from tidelog_node.kafka.protocol.writer import Buffer

_JOINED_BYTES: Final = 4_096
"""So little is one piece sooner than many pieces are sent."""


class Outbox:
    """One per connection, on its event loop.

    The transport keeps nothing back: what the kernel does not take at once makes it call ``pause_writing``, and
    ``resume_writing`` when all has gone. So a response is counted exactly as long as it is in memory.
    """

    __slots__ = ("_budget", "_transport", "_unsent", "is_paused")

    def __init__(self, transport: asyncio.Transport, budget: ResponseBudget) -> None:
        self._transport = transport
        self._budget = budget
        self._unsent = 0
        self.is_paused = False
        transport.set_write_buffer_limits(high=0)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the kernel has not taken yet."""
        return self._transport.get_write_buffer_size()

    def count(self, size: int) -> None:
        """Count a response's body, from when it is ready."""
        if size:
            self._budget.take(size)

    def discard(self, size: int) -> None:
        """Count a response no more, which is not sent."""
        if size:
            self._budget.give_back(size)

    def send(self, exchanges: list[Exchange]) -> None:
        """Send responses, which are counted."""
        chunks: list[Buffer] = []
        size = 0
        for exchange in exchanges:
            if exchange.answer is not None:
                head = response_head(exchange.size, exchange.correlation_id, has_tags=exchange.has_tags)
                chunks.append(head)
                chunks += exchange.answer
                size += exchange.size
        if not chunks:
            return
        self._unsent += size
        if size < _JOINED_BYTES:
            self._transport.write(b"".join(chunks))
        else:
            self._transport.writelines(chunks)
        if not self.is_paused:
            self._has_left()

    def pause(self) -> None:
        """Hear that the kernel takes no more for now."""
        self.is_paused = True

    def resume(self) -> None:
        """Hear that it has taken everything."""
        self.is_paused = False
        self._has_left()

    def close(self) -> None:
        """Hear that the connection is lost."""
        self._has_left()

    def _has_left(self) -> None:
        if self._unsent:
            size, self._unsent = self._unsent, 0
            self._budget.give_back(size)
