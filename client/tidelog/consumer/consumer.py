"""confluent-kafka's Consumer: blocking calls around one fetcher, and one member of a group, on the network thread."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Literal, overload

from tidelog.consumer.assigned import AssignedConsumer, timeout_in_ms
from tidelog.consumer.core.commits import OffsetAndMetadata
from tidelog.consumer.group import ConsumerGroup, ConsumerGroupMetadata, RebalanceCallback
from tidelog.consumer.partitions import Key, answer, key_of, offset_after, offsets_of
from tidelog.consumer.records import Call
from tidelog.message import Message, TopicPartition
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport import run_sync

if TYPE_CHECKING:
    import pyarrow

MAX_MESSAGES = 1_000_000
"""The most messages in one call of consume(), as in confluent-kafka."""


class Consumer(AssignedConsumer):
    """Reads the topics that it subscribes to as a member of a group, or the partitions that it is assigned.

    Use it from one thread at a time. Close it, or use it as a context manager.

    ::

        with Consumer({"bootstrap.servers": "127.0.0.1:9094", "group.id": "delays"}) as consumer:
            consumer.subscribe(["flights"])
            message = consumer.poll(1.0)

    A subscribed consumer must call :meth:`poll` or :meth:`consume` at least every ``max.poll.interval.ms``. These calls
    assign and revoke partitions and call the callbacks. Heartbeats do not depend on them.
    """

    def subscribe(
        self,
        topics: Collection[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Subscribe to topics as a member of the group, replacing the previous subscription.

        A name that begins with ``^`` is a regular expression (Python's) that is matched against the names of topics,
        now and at every refresh of metadata; internal topics are excluded. ``on_assign(consumer, partitions)`` is
        called with new partitions, and may :meth:`assign` them with other offsets (with a cooperative assignor or
        ``group.protocol=consumer``: :meth:`incremental_assign`). ``on_revoke`` is called before partitions are revoked.
        ``on_lost``, or ``on_revoke`` if it is not given, is called with partitions that other members may already own.
        :meth:`poll`, :meth:`consume`, :meth:`consume_arrow` and :meth:`close` call these callbacks and raise their
        exceptions.

        Raises:
            KafkaException: _INVALID_ARG for no topics, a repeated topic or an invalid regular expression;
                INVALID_TOPIC_EXCEPTION; _UNKNOWN_GROUP without ``group.id``; _DESTROY if closed.
            TypeError: ``topics`` is not a list of strings, or a callback is not callable.
        """
        if not isinstance(topics, list | tuple | set | frozenset) or not all(isinstance(t, str) for t in topics):
            raise TypeError(f"expected a list of topics, not {topics!r}")
        for callback in (on_assign, on_revoke, on_lost):
            if callback is not None and not callable(callback):
                raise TypeError(f"a callback must be callable, not {type(callback).__name__}")
        self._check_open()
        self._in_group().subscribe(topics, on_assign, on_revoke, on_lost)

    def unsubscribe(self) -> None:
        """Leave the group. The next :meth:`poll` revokes the partitions."""
        self._check_open()
        if self._group is not None:
            self._group.unsubscribe()

    def memberid(self) -> str | None:
        """Return the member's id in its group, or None if it is not a member."""
        self._check_open()
        return None if self._group is None else self._group.metadata.member_id or None

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return the consumer's identity in its group. Raise _UNKNOWN_GROUP without ``group.id``."""
        self._check_open()
        return self._in_group().metadata

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message or event, or None after ``timeout`` seconds (-1: wait forever)."""
        if self._lifetime.ended is None and (message := self._queue.take_ready()) is not None:
            return message
        self._check_open()
        deadline = _deadline(timeout)
        self._begin_poll()
        try:
            while True:
                self._serve(is_reading=False)
                message = self._queue.take_one()
                if message is not None or not self._wait(deadline, is_reading=False):
                    return message
        finally:
            self._end_poll()

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Return up to ``num_messages`` messages or events, fewer after ``timeout`` seconds (-1: wait forever).

        Return fewer also if partitions are about to be revoked: the call returns the messages first and calls the
        callbacks later. A call that Ctrl-C interrupts has read nothing.

        Raises:
            KafkaException: _DESTROY if closed.
            ValueError: ``num_messages`` is negative or above 1,000,000.
        """
        messages: list[Message] = []
        if self._lifetime.ended is None and num_messages > 0:
            try:
                if self._queue.fill(messages, num_messages):
                    return messages
            except BaseException:
                self._unread_messages(messages)
                raise
        self._check_open()
        if not 0 <= num_messages <= MAX_MESSAGES:
            raise ValueError(f"num_messages must be from 0 to {MAX_MESSAGES}, not {num_messages}")
        deadline = _deadline(timeout)
        self._begin_poll()
        try:
            while True:
                self._serve(is_reading=bool(messages))
                messages += self._queue.take(num_messages - len(messages))
                if len(messages) >= num_messages or not self._wait(deadline, is_reading=bool(messages)):
                    return messages
        except BaseException:
            self._unread_messages(messages)
            raise
        finally:
            self._end_poll()

    def consume_arrow(self, max_records: int = 100_000, timeout: float | None = -1) -> pyarrow.Table:
        """Return up to ``max_records`` records as one Arrow table, fewer after ``timeout`` seconds.

        The columns are those of Spark's Kafka source: ``key`` and ``value`` (binary), ``topic`` (string), ``partition``
        (int32), ``offset`` (int64), ``timestamp`` (milliseconds, UTC) and ``headers`` (list of struct of ``key`` string
        and ``value`` binary, null for none). Positions, stored offsets and callbacks behave as in :meth:`consume`. The
        ends of partitions (``enable.partition.eof``) are not reported.

        Raises:
            KafkaException: an event that :meth:`poll` would have returned, after the records before it were returned;
                _DESTROY if closed.
            ValueError: ``max_records`` is negative.
            ModuleNotFoundError: pyarrow is not installed.
        """
        from tidelog.consumer.arrow import RowGatherer

        self._check_open()
        gatherer = RowGatherer(self._queue, max_records)
        deadline = _deadline(timeout)
        self._begin_poll()
        try:
            while True:
                self._serve(is_reading=bool(gatherer.count))
                if gatherer.take() or not self._wait(deadline, is_reading=bool(gatherer.count)):
                    return gatherer.table()
        except BaseException:
            self._unread(gatherer.first_offsets())
            raise
        finally:
            self._end_poll()

    @overload
    def commit(
        self,
        message: Message | None = None,
        offsets: Iterable[TopicPartition] | None = None,
        asynchronous: Literal[True] = True,
    ) -> None: ...

    @overload
    def commit(
        self,
        message: Message | None = None,
        offsets: Iterable[TopicPartition] | None = None,
        *,
        asynchronous: Literal[False],
    ) -> list[TopicPartition]: ...

    def commit(
        self,
        message: Message | None = None,
        offsets: Iterable[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset after ``message``, or ``offsets``, or by default the stored offsets of the assignment.

        An asynchronous call returns None immediately, and a later poll() calls ``on_commit(error, partitions)``. A
        synchronous call waits and returns the partitions, each with its offset and error. Retriable errors are retried
        for ``request.timeout.ms``. Commits are executed in the order of the calls.

        Raises:
            KafkaException: _NO_OFFSET if there is nothing to commit; the last error if no partition was committed, such
                as ILLEGAL_GENERATION after a rebalance; _UNKNOWN_GROUP; _DESTROY.
            ValueError: both ``message`` and ``offsets`` are given.
        """
        self._check_open()
        group = self._in_group()
        if message is None and offsets is None:
            return group.commit(None, asynchronous=asynchronous)
        return group.commit(given_offsets(message, offsets, "commit"), asynchronous=asynchronous)

    def store_offsets(self, message: Message | None = None, offsets: Iterable[TopicPartition] | None = None) -> None:
        """Store the offset after ``message``, or ``offsets``, for the next automatic or argumentless commit.

        Raises:
            KafkaException: _INVALID_ARG with ``enable.auto.offset.store``, which stores offsets itself;
                _UNKNOWN_PARTITION if none of the partitions is assigned; _UNKNOWN_GROUP; _DESTROY.
            ValueError: not exactly one of the arguments is given.
        """
        self._check_open()
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        group = self._in_group()
        if self._config.enable_auto_offset_store:
            raise error_for(ErrorCode._INVALID_ARG, "store_offsets() needs enable.auto.offset.store=false")
        group.store(given_offsets(message, offsets, "store"), self._positions)

    def committed(self, partitions: Iterable[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return each partition with the group's committed offset, OFFSET_INVALID if there is none, or its error.

        Raises:
            KafkaException: the group's error, or the coordinator did not answer in ``timeout`` seconds.
        """
        self._check_open()
        keys = [key_of(partition) for partition in partitions]
        found = run_sync(self._in_group().offsets.committed(keys, timeout_in_ms(timeout)))
        return [answer(key, found[key]) for key in keys]

    def close(self) -> None:
        """Stop reading, commit stored offsets (``enable.auto.commit``), call the callbacks, and leave the group.

        A poll() that waits in another thread returns. A second call has no effect. The call waits up to ten seconds for
        a cluster that does not answer.
        """
        if self._lifetime.is_over:
            return
        try:
            if self._group is not None:
                self._group.close(self, self._assigned_keys())
        finally:
            super().close()

    def _assigned_keys(self) -> list[Key]:
        with self._lock:
            return self._positions.assignment

    def _in_group(self) -> ConsumerGroup:
        if self._group is None:
            raise error_for(ErrorCode._UNKNOWN_GROUP, "the consumer has no group: set group.id")
        return self._group

    def _serve(self, *, is_reading: bool) -> None:
        while (call := self._queue.next_call(is_reading=is_reading)) is not None:
            self._end_poll()
            try:
                call(self)
            except Exception as error:
                if not is_reading:
                    raise
                # The messages taken count as read: this call returns them, and the next one raises.
                self._queue.post(_raising(error), ends_reading=True)
            self._begin_poll()

    def _wait(self, deadline: float | None, *, is_reading: bool) -> bool:
        if is_reading and self._queue.ends_reading:
            return False
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            return False
        idle = self._measures.idle
        idle.begin(time.monotonic() * 1000)
        try:
            return self._queue.wait(left_s)
        finally:
            idle.end(time.monotonic() * 1000)

    def _begin_poll(self) -> None:
        if self._group is not None:
            self._group.member.begin_poll()

    def _end_poll(self) -> None:
        if self._group is not None:
            self._group.member.end_poll()


def _raising(error: Exception) -> Call:
    def call(_: object) -> None:
        raise error

    return call


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None or timeout < 0 else time.monotonic() + timeout


def given_offsets(
    message: Message | None, offsets: Iterable[TopicPartition] | None, what: str
) -> dict[Key, OffsetAndMetadata]:
    """Return the offset after ``message``, or ``offsets``. Raise ValueError if both are given."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    return offset_after(message, what) if message is not None else offsets_of(offsets or ())
