"""The consumer for asyncio: the blocking one's core, fetcher and membership, with the event loop's waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidelog.aio.assigned import DONE, AssignedConsumer, Done
from tidelog.aio.callbacks import Rebalances
from tidelog.consumer.consumer import MAX_MESSAGES, given_offsets
from tidelog.consumer.core.commits import CommitDone
from tidelog.consumer.group import LEAVE_TIMEOUT_S, ConsumerGroup, ConsumerGroupMetadata, committed_partitions
from tidelog.consumer.partitions import answer, key_of
from tidelog.message import Message, TopicPartition
from tidelog_foundation.errors import ErrorCode, KafkaException
from tidelog_foundation.transport import run_on_network

if TYPE_CHECKING:
    import pyarrow

    from tidelog.consumer.arrow import RowGatherer

_MESSAGES_AT_ONCE = 500
_ROWS_AT_ONCE = 10_000
"""The number of rows decoded before the loop gets its turn."""

RebalanceCallback = Callable[["Consumer", list[TopicPartition]], object]
"""``callback(consumer, partitions)``: a function or a coroutine function."""


class Consumer(AssignedConsumer):
    """Reads from the event loop that it is created in. Close it, or use it as an async context manager.

    ::

        async with Consumer({"bootstrap.servers": "127.0.0.1:9094", "group.id": "delays"}) as consumer:
            consumer.subscribe(["flights"])
            async for message in consumer:
                await handle(message)

    Its behavior and settings are those of :class:`tidelog.Consumer`. Reading tasks take turns. A task that is cancelled
    has read nothing: its messages are returned again.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Create a consumer from settings, like :class:`tidelog.Consumer`; ``on_commit`` may be a coroutine function.

        Raises:
            KafkaException: INVALID_CONFIG.
            RuntimeError: there is no running event loop.
            TypeError: ``on_commit`` is not callable.
        """
        super().__init__(config)
        self._rebalances = Rebalances(self._loop, self._consumer)
        self._turn = asyncio.Lock()
        self._since_turn = 0
        self._is_closing = False

    def __aiter__(self) -> AsyncIterator[Message]:
        """Return messages until the consumer is closed. Raise events other than _PARTITION_EOF."""
        return self

    async def __anext__(self) -> Message:
        while not self._is_closing:
            message = await self.poll()
            if message is None:
                continue
            error = message.error()
            if error is not None and error.error_code() is not ErrorCode._PARTITION_EOF:
                raise KafkaException(error)
            return message
        raise StopAsyncIteration

    def subscribe(
        self,
        topics: Collection[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> Awaitable[None]:
        """Subscribe to topics as a member of the group, like :meth:`tidelog.Consumer.subscribe`.

        A rebalance waits for callbacks that are coroutines. They may assign partitions, commit offsets and await
        anything else except poll().
        """
        self._consumer.subscribe(topics, on_assign, on_revoke, on_lost)
        return DONE

    def unsubscribe(self) -> Awaitable[None]:
        """Leave the group. The next :meth:`poll` revokes the partitions."""
        self._consumer.unsubscribe()
        return DONE

    def memberid(self) -> Awaitable[str | None]:
        """Return the member's id in its group, or None if it is not a member."""
        return Done(self._consumer.memberid())

    def consumer_group_metadata(self) -> Awaitable[ConsumerGroupMetadata]:
        """Return the consumer's identity in its group. Raise _UNKNOWN_GROUP without ``group.id``."""
        return Done(self._consumer.consumer_group_metadata())

    async def poll(self, timeout: float | None = -1) -> Message | None:  # noqa: ASYNC109
        """Return the next message or event, or None after ``timeout`` seconds (-1: wait forever)."""
        messages = await self.consume(1, timeout)
        return messages[0] if messages else None

    async def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:  # noqa: ASYNC109
        """Return up to ``num_messages`` messages or events, fewer after ``timeout`` seconds (-1: wait forever).

        Return fewer also if partitions are about to be revoked, or if the consumer is closed meanwhile.

        Raises:
            KafkaException: _DESTROY if closed; _STATE inside a rebalance callback.
            ValueError: ``num_messages`` is negative or above 1,000,000.
        """
        if not 0 <= num_messages <= MAX_MESSAGES:
            raise ValueError(f"num_messages must be from 0 to {MAX_MESSAGES}, not {num_messages}")
        messages: list[Message] = []

        def take() -> bool:
            most = min(num_messages - len(messages), _MESSAGES_AT_ONCE)
            messages.extend(self._consumer._queue.take(most))
            return len(messages) >= num_messages

        await self._gather(take, lambda: len(messages), timeout, lambda: self._consumer._unread_messages(messages))
        return messages

    async def consume_arrow(self, max_records: int = 100_000, timeout: float | None = -1) -> pyarrow.Table:  # noqa: ASYNC109
        """Return up to ``max_records`` records as one Arrow table, like :meth:`tidelog.Consumer.consume_arrow`."""
        # In another thread, because the first call loads pyarrow from disk.
        gatherer = await asyncio.to_thread(self._row_gatherer, max_records)
        await self._gather(
            lambda: gatherer.take(_ROWS_AT_ONCE),
            lambda: gatherer.count,
            timeout,
            lambda: self._consumer._unread(gatherer.first_offsets()),
        )
        return gatherer.table()

    def commit(
        self,
        message: Message | None = None,
        offsets: Iterable[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> Awaitable[list[TopicPartition] | None]:
        """Commit the offset after ``message``, or ``offsets``, or by default the stored offsets of the assignment.

        The commit starts with the call. An asynchronous commit does not wait, and calls ``on_commit(error,
        partitions)`` when it completes. Otherwise ``await`` returns the partitions, each with its offset and error. As
        :meth:`tidelog.Consumer.commit`.
        """
        if asynchronous:
            return Done(self._consumer.commit(message, offsets, True))
        self._consumer._check_open()
        is_given = message is not None or offsets is not None
        wanted = given_offsets(message, offsets, "commit") if is_given else None
        return _committed(asyncio.wrap_future(self._consumer._in_group().begin_commit(wanted)))

    def store_offsets(
        self, message: Message | None = None, offsets: Iterable[TopicPartition] | None = None
    ) -> Awaitable[None]:
        """Store offsets for the next automatic or argumentless commit.

        See :meth:`tidelog.Consumer.store_offsets`.
        """
        self._consumer.store_offsets(message, offsets)
        return DONE

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[TopicPartition]:
        """Return each partition with the group's committed offset, like :meth:`tidelog.Consumer.committed`."""
        self._consumer._check_open()
        keys = [key_of(partition) for partition in partitions]
        timeout_ms = None if timeout is None or timeout < 0 else timeout * 1000
        found = await run_on_network(self._consumer._in_group().offsets.committed(keys, timeout_ms))
        return [answer(key, found[key]) for key in keys]

    async def close(self) -> None:
        """Stop reading, commit stored offsets (``enable.auto.commit``), run the callbacks, and leave the group.

        A task that waits in poll() returns. The coroutines of ``on_commit`` have completed when the call returns. A
        cancelled call stops the consumer without leaving the group. A second call has no effect.
        """
        self._rebalances.check_outside("close")
        try:
            if not self._is_closing and not self._is_over:
                self._is_closing = True
                self._wake_up.send()
                async with self._turn:
                    await self._leave()
        finally:
            await super().close()
        await self._callbacks.ended()

    async def _leave(self) -> None:
        group = self._consumer._group
        if group is None:
            return
        deadline = self._loop.time() + LEAVE_TIMEOUT_S
        for is_over in group.closing(self._consumer, self._consumer._assigned_keys()):
            deadline = await self._serve_until(group, deadline, is_over)
        await self._rebalances.serve(self, is_reading=False)

    async def _serve_until(self, group: ConsumerGroup, deadline: float, is_over: Callable[[], bool]) -> float:
        """Return the deadline, extended by the time spent in callbacks."""
        queue = self._consumer._queue
        while True:
            began = self._loop.time()
            await self._rebalances.serve(self, is_reading=False)
            deadline += self._loop.time() - began
            left_s = deadline - self._loop.time()
            if not await self._wake_up.wait_until(lambda: queue.wait_call(0, is_over), left_s) or is_over():
                return deadline

    async def _gather(
        self,
        take: Callable[[], bool],
        count: Callable[[], int],
        timeout: float | None,  # noqa: ASYNC109
        unread: Callable[[], None],
    ) -> None:
        """Take messages until ``take`` returns True, or until the timeout."""
        self._consumer._check_open()
        self._rebalances.check_outside("poll")
        deadline = None if timeout is None or timeout < 0 else self._loop.time() + timeout
        if self._since_turn >= _MESSAGES_AT_ONCE:
            # With records always available, no other task would ever run.
            await asyncio.sleep(0)
            self._since_turn = 0
        async with self._turn:
            self._consumer._begin_poll()
            try:
                while not self._is_closing:
                    await self._rebalances.serve(self, is_reading=count() > 0)
                    before = count()
                    if take():
                        break
                    if count() > before:
                        await asyncio.sleep(0)
                    elif not await self._wait(deadline, is_reading=count() > 0):
                        break
            except BaseException:
                unread()
                raise
            finally:
                self._consumer._end_poll()
        self._since_turn += max(count(), 1)

    async def _wait(self, deadline: float | None, *, is_reading: bool) -> bool:
        queue = self._consumer._queue
        if is_reading and queue.ends_reading:
            return False
        left_s = None if deadline is None else deadline - self._loop.time()
        if left_s is not None and left_s <= 0:
            return False
        idle = self._consumer._measures.idle
        idle.begin(self._loop.time() * 1000)
        try:
            return await self._wake_up.wait_until(lambda: queue.wait(0) or self._is_closing, left_s) and queue.wait(0)
        finally:
            idle.end(self._loop.time() * 1000)

    def _row_gatherer(self, max_records: int) -> RowGatherer:
        from tidelog.consumer.arrow import RowGatherer

        return RowGatherer(self._consumer._queue, max_records)


async def _committed(done: Awaitable[CommitDone]) -> list[TopicPartition]:
    return committed_partitions(await done)
