"""The sending of a connection's responses, counted until the kernel has taken them."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.kafka.protocol.headers import response_head
from tidelog_node.kafka.protocol.pipeline import Exchange
from tidelog_node.kafka.protocol.writer import Buffer

_JOINED_BYTES: Final = 4_096
"""Below this size, one joined write is faster than many chunks."""


class Outbox:
    """The unsent responses of one connection.

    The transport's buffer limit is 0. It calls ``pause_writing`` if the kernel does not take everything at once, and
    ``resume_writing`` when all is taken. A response is therefore counted exactly as long as it is in memory.
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
        """The number of bytes that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size()

    def count(self, size: int) -> None:
        """Count a response's body from the time it is ready."""
        if size:
            self._budget.take(size)

    def discard(self, size: int) -> None:
        """Stop counting a response that is not sent."""
        if size:
            self._budget.give_back(size)

    def send(self, exchanges: list[Exchange]) -> None:
        """Send counted responses."""
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

    def note_unsent(self, size: int) -> None:
        """Count a response that was sent without :meth:`send`, whose rest the kernel has not taken."""
        self.count(size)
        self._unsent += size

    def pause(self) -> None:
        """Record that the kernel takes no more for now."""
        self.is_paused = True

    def resume(self) -> None:
        """Record that the kernel has taken everything."""
        self.is_paused = False
        self._has_left()

    def close(self) -> None:
        """Record that the connection is lost."""
        self._has_left()

    def _has_left(self) -> None:
        if self._unsent:
            size, self._unsent = self._unsent, 0
            self._budget.give_back(size)
