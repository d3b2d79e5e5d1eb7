"""The calls that the blocking consumer queues for the application's thread: rebalances and other callbacks."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from tidelog.consumer import Consumer
from tidelog.consumer.group import Rebalance
from tidelog_foundation.errors import ErrorCode, error_for


class Rebalances:
    """One consumer's rebalances. A rebalance runs to its end even if its caller is cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumer: Consumer) -> None:
        self._loop = loop
        self._consumer = consumer
        self._running: asyncio.Task[None] | None = None

    def check_outside(self, what: str) -> None:
        """Raise _STATE inside a rebalance callback, which would wait for itself."""
        if self._running is not None and asyncio.current_task() is self._running:
            raise error_for(ErrorCode._STATE, f"{what}() was called in a rebalance callback and would wait for it")

    async def serve(self, application: Any, *, is_reading: bool) -> None:
        """Make the due calls; callbacks get ``application``, and a rebalance's exception propagates.

        ``is_reading`` means that messages were taken that the application must get before a rebalance.
        """
        if self._running is not None:
            await self._ended()
        while (call := self._consumer._queue.next_call(is_reading=is_reading)) is not None:
            self._consumer._end_poll()
            try:
                if isinstance(call, Rebalance):
                    self._running = self._loop.create_task(
                        self._rebalance(application, call), name="consumer-rebalance"
                    )
                    await self._ended()
                else:
                    call(self._consumer)
            finally:
                self._consumer._begin_poll()

    async def _ended(self) -> None:
        task = self._running
        assert task is not None
        # Unlike `await task`, this does not cancel the task when the caller is cancelled.
        await asyncio.wait([task])
        self._running = None
        task.result()

    async def _rebalance(self, application: Any, rebalance: Rebalance) -> None:
        callback = rebalance.callback
        with rebalance.serving(self._consumer):
            if callback is not None:
                outcome = callback(application, rebalance.partitions)
                if inspect.isawaitable(outcome):
                    await outcome
