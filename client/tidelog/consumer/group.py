"""The application's side of a group: subscriptions, rebalance callbacks and commits, on the caller's thread."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidelog.cluster import ClusterClient, Coordinators
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core.commits import CommitDone, Commits, Member, OffsetAndMetadata
from tidelog.consumer.core.positions import Positions
from tidelog.consumer.core.subscription import Subscription
from tidelog.consumer.group_member import GroupMember
from tidelog.consumer.group_offsets import GroupOffsets
from tidelog.consumer.membership.events import (
    Assign,
    Closing,
    MembershipChanged,
    MembershipSettings,
    RebalanceServed,
    Revoke,
    Unsubscribed,
)
from tidelog.consumer.membership.factory import membership
from tidelog.consumer.partitions import Key, outcome
from tidelog.consumer.records import Call, RecordQueue
from tidelog.message import Message, TopicPartition
from tidelog.telemetry.measures import ConsumerMeasures
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for
from tidelog_foundation.ids import uuid_text

logger = logging.getLogger(__name__)

LEAVE_TIMEOUT_S = 10.0
"""The time that close() waits for the last commits and for leaving the group."""

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class Assignable(Protocol):
    """The consumer's methods that a rebalance calls."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions as well."""

    def release(self, keys: Iterable[Key], *, lost: bool = False) -> None:
        """Stop reading those of the partitions that are assigned."""


RebalanceCallback = Callable[..., object]
"""``callback(consumer, partitions)``."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A consumer's identity in its group, for a producer that commits offsets in a transaction (KIP-447)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


@dataclass(frozen=True, slots=True)
class _Callbacks:
    on_assign: RebalanceCallback | None = None
    on_revoke: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None

    def of(self, command: Revoke | Assign, *, lost: bool) -> RebalanceCallback | None:
        if isinstance(command, Assign):
            return self.on_assign
        return self.on_lost if lost and self.on_lost is not None else self.on_revoke


class Rebalance:
    """A pending rebalance, which poll() calls with the consumer. An asynchronous caller uses its parts instead."""

    def __init__(self, group: ConsumerGroup, command: Revoke | Assign) -> None:
        self._group = group
        self._command = command
        self._thread: int | None = None
        self.partitions = [TopicPartition(*key) for key in sorted(command.partitions)]

    def __call__(self, consumer: Assignable) -> None:
        """Call the application's callback, then apply the rest of the rebalance."""
        callback = self.callback
        with self.serving(consumer):
            if callback is not None:
                callback(consumer, self.partitions)

    @property
    def callback(self) -> RebalanceCallback | None:
        """The application's callback."""
        return self._group._callbacks.of(self._command, lost=self.is_lost)

    @property
    def is_lost(self) -> bool:
        """True if another member may already own the partitions.

        Evaluated when the callback runs, because partitions to revoke may have been lost in the meantime.
        """
        command = self._command
        return isinstance(command, Revoke) and (command.lost or self._group.is_no_member)

    @contextlib.contextmanager
    def serving(self, consumer: Assignable) -> Iterator[None]:
        """Run the application's callback in this context; on exit, apply the rebalance."""
        group, self._thread = self._group, threading.get_ident()
        group._is_assigned_by_callback = False
        group._releasing = None
        group._serving = self
        try:
            yield
        finally:
            if group._serving is self:
                self._end(consumer)

    def end_for_close(self, consumer: Assignable) -> None:
        """Finish the rebalance if its callback closes the consumer; new partitions are then not read."""
        if self._thread == threading.get_ident():
            self._group._is_assigned_by_callback = True
            self._end(consumer)

    def _end(self, consumer: Assignable) -> None:
        self._group._serving = None
        try:
            command = self._command
            if isinstance(command, Revoke):
                consumer.release(command.partitions, lost=self.is_lost)
            elif self._group._is_assigned_by_callback:
                return
            elif command.incremental:
                consumer.incremental_assign(self.partitions)
            else:
                consumer.assign(self.partitions)
        finally:
            self._group._served(self._command)


class ConsumerGroup:
    """One consumer's side of its group, created if there is a ``group.id``. It shares ``commits`` under ``lock``.

    It has no reference to the consumer, so that the consumer can be garbage-collected; its functions take one.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ClusterClient,
        queue: RecordQueue,
        commits: Commits,
        lock: threading.RLock,
        measures: ConsumerMeasures,
        on_commit: OnCommit | None,
        log: logging.Logger | None = None,
    ) -> None:
        self._log = log or logger
        self._config = config
        self._queue = queue
        self._commits = commits
        self._lock = lock
        self._on_commit = on_commit
        coordinators = Coordinators(cluster)
        decides = membership(_settings(config), lambda: uuid_text(uuid.uuid4().bytes), cluster.backoff.wait_ms)
        self.offsets = GroupOffsets(
            config, coordinators, commits, lock, measures.commits, queue.settle, self._committed, self._log
        )
        self.member = GroupMember(config, cluster, coordinators, decides, self, measures.rebalances, self._log)
        self._callbacks = _Callbacks()
        self._is_subscribed = False
        self._has_left = False
        self._is_assigned_by_callback = False
        self._serving: Rebalance | None = None
        self._failure: Exception | None = None
        self._releasing: concurrent.futures.Future[CommitDone] | None = None

    async def start(self) -> None:
        """Start the tasks, on the network thread."""
        await self.offsets.start()
        await self.member.start()

    async def stop(self) -> None:
        """End the tasks, on the network thread."""
        await self.member.stop()
        await self.offsets.stop()

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The consumer's current identity."""
        with self._lock:
            member = self._commits.member
        assert self._config.group_id is not None
        return ConsumerGroupMetadata(
            self._config.group_id, member.generation_id, member.member_id, self._config.group_instance_id
        )

    @property
    def is_no_member(self) -> bool:
        """True if the consumer is not a member of the group, not yet or no longer."""
        with self._lock:
            return self._commits.member == Member()

    def subscribe(
        self,
        topics: Iterable[str],
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
    ) -> None:
        """Subscribe; see :meth:`Consumer.subscribe`."""
        subscription = Subscription(topics, self._config.topic_blacklist)
        self._callbacks = _Callbacks(on_assign, on_revoke, on_lost)
        self._is_subscribed = True
        with self._lock:
            self._commits.needs_member = True
        self.member.subscribe(subscription)

    def unsubscribe(self) -> None:
        """Leave the group; poll() revokes the partitions."""
        if self._is_subscribed:
            self._is_subscribed = False
            with self._lock:
                self._commits.needs_member = False
            self.member.tell(Unsubscribed())

    def assignment_changes(self) -> None:
        """Record that the application assigns partitions itself; a rebalance then skips the default assignment."""
        self._is_assigned_by_callback = True

    def release(self, keys: Iterable[Key], *, lost: bool) -> None:
        """Commit the stored offsets of released partitions, unless they are lost, and clear them."""
        keys = list(keys)
        with self._lock:
            self._queue.settle()
            offsets = self._commits.uncommitted(keys) if self._config.auto_commits and not lost else {}
            if offsets:
                self._releasing = self.offsets.commit(offsets)
                self._releasing.add_done_callback(self._report)
            self._commits.unassigned(keys)

    def commit(
        self, offsets: Mapping[Key, OffsetAndMetadata] | None, *, asynchronous: bool
    ) -> list[TopicPartition] | None:
        """Commit these offsets, or the stored ones (None); see :meth:`Consumer.commit`."""
        try:
            future = self.begin_commit(offsets)
        except TidelogError as error:
            if not asynchronous:
                raise
            self._post(error.error, [])
            return None
        if asynchronous:
            future.add_done_callback(self._report)
            return None
        return committed_partitions(future.result())

    def begin_commit(self, offsets: Mapping[Key, OffsetAndMetadata] | None) -> concurrent.futures.Future[CommitDone]:
        """Commit these offsets, or the stored ones (None), and return the outcome. Raise _NO_OFFSET without any."""
        with self._lock:
            self._queue.settle()
            wanted = self._commits.uncommitted() if offsets is None else offsets
            if not wanted:
                raise error_for(ErrorCode._NO_OFFSET, "there is no offset to commit")
            return self.offsets.commit(wanted)

    def store(self, offsets: Mapping[Key, OffsetAndMetadata], positions: Positions) -> None:
        """Store offsets for the next commit. Raise _UNKNOWN_PARTITION if none of the partitions is assigned."""
        with self._lock:
            assigned = {key: what for key, what in offsets.items() if positions.state(*key) is not None}
            for key, what in assigned.items():
                self._commits.store(key, what)
        if offsets and not assigned:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in offsets)
            raise error_for(ErrorCode._UNKNOWN_PARTITION, f"{names}: not assigned to the consumer")

    def close(self, consumer: Assignable, keys: Iterable[Key]) -> None:
        """Release all partitions, leave the group and run the callbacks, for at most 10 seconds."""
        if self._serving is not None:
            self._serving.end_for_close(consumer)
        deadline = time.monotonic() + LEAVE_TIMEOUT_S
        for is_over in self.closing(consumer, keys):
            deadline = self._serve_until(consumer, deadline, is_over)
        self._serve_until(consumer, time.monotonic(), lambda: False)
        if self._failure is not None:
            raise self._failure

    def closing(self, consumer: Assignable, keys: Iterable[Key]) -> Iterator[Callable[[], bool]]:
        """Release all partitions and leave the group; yield the condition to wait for before each next step."""
        self.member.tell(Closing())
        yield lambda: self._has_left
        consumer.release(keys)
        yield lambda: self._commits.is_idle

    def on_rebalance(self, command: Revoke | Assign) -> None:
        """Queue a rebalance for poll()."""
        self._queue.post(Rebalance(self, command), ends_reading=True)

    def on_member(self, command: MembershipChanged) -> None:
        """Set the member that makes subsequent commits."""
        with self._lock:
            self._commits.member_changed(Member(command.generation_id, command.member_id))

    def has_read(self) -> bool:
        """Return True if poll() has returned messages since the last call."""
        return self._queue.has_read()

    def on_error(self, error: TidelogError, topic: str = "") -> None:
        """Queue an error for poll()."""
        text = error.message.encode()
        with self._lock:
            self._queue.put(Message(topic or None, -1 if topic else None, None, None, text, error=error.error))

    def on_left(self) -> None:
        """Record that the consumer has left the group."""
        with self._lock:
            self._has_left = True
            self._queue.notify()

    def _served(self, command: Revoke | Assign) -> None:
        # The next owner must find the committed offsets, so the partitions go only after the commit.
        served = RebalanceServed(command.rebalance_id)
        if self._releasing is None:
            self.member.tell(served)
        else:
            self._releasing.add_done_callback(lambda _: self.member.tell(served))

    def _serve_until(self, consumer: Assignable, deadline: float, is_over: Callable[[], bool]) -> float:
        """Return the deadline, extended by the time spent in callbacks."""
        while True:
            call = self._queue.next_call()
            if call is not None:
                began = time.monotonic()
                self._call(call, consumer)
                deadline += time.monotonic() - began
            elif not self._queue.wait_call(deadline - time.monotonic(), is_over) or is_over():
                return deadline

    def _call(self, call: Call, consumer: Assignable) -> None:
        try:
            call(consumer)
        except Exception as error:  # noqa: BLE001 any error is logged, and the consumer continues
            # Leave the group first, because close() is not called again.
            if self._failure is None:
                self._failure = error
            else:
                self._log.exception("another callback of close() failed too")

    def _committed(self, done: CommitDone) -> None:
        partitions, failure = outcome(done.offsets, done.errors)
        if self._on_commit is None:
            for partition in partitions:
                if partition.error is not None:
                    where = (partition.offset, partition.topic, partition.partition)
                    self._log.warning("offset %d of %s-%d was not committed: %s", *where, partition.error.str())
        self._post(None if failure is None else failure.error, partitions)

    def _report(self, future: concurrent.futures.Future[CommitDone]) -> None:
        if future.exception() is None:
            self._committed(future.result())

    def _post(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        on_commit = self._on_commit
        if on_commit is not None:
            self._queue.post(lambda _: on_commit(error, partitions))
        with self._lock:
            self._queue.notify()


def committed_partitions(done: CommitDone) -> list[TopicPartition]:
    """Return a commit's partitions with offsets and errors; raise if none was committed."""
    partitions, failure = outcome(done.offsets, done.errors)
    if failure is not None:
        raise failure
    return partitions


def _settings(config: ConsumerConfig) -> MembershipSettings:
    assert config.group_id is not None
    return MembershipSettings(
        group_id=config.group_id,
        group_protocol=config.group_protocol,
        group_instance_id=config.group_instance_id,
        client_rack=config.client_rack or None,
        assignors=config.partition_assignment_strategy,
        remote_assignor=config.group_remote_assignor or "",
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
    )
