"""Runs one shard while this node leads its partition of an internal topic in one leader epoch.

The shard's core decides. The driver passes it one event after another and executes its commands. Writes are processed
as follows:

- A write is one batch, appended while this node leads in the shard's leader epoch. If the log refuses it, the core is
  notified of the failure and the log contains none of it.
- It is committed when the high watermark has passed it. Only then is it added to the view and reported to the core, in
  the order of the log.
- A write that slow replicas delay stays pending until it is committed or another node leads. A call that waits for it
  fails with COORDINATOR_NOT_AVAILABLE after ``commit_timeout_ms``, except for calls that wait for other clients as
  well.

When the leadership ends, the core and all its state are dropped, and every call is answered with NOT_COORDINATOR. The
same happens, followed by a reload of the shard, if the view cannot be read or written or an unexpected error occurs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, Generic

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.metrics import Histogram, Kind, Metric
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination.calls import WaitingCalls
from tidelog_node.coordination.shard_contents import ShardContents
from tidelog_node.coordination.shard_kind import CommandT, NewsFeed, NewsT, RequestT, ResponseT, ShardCore, ShardKind
from tidelog_node.coordination.shard_loader import LeadershipEndedError, ShardLoader
from tidelog_node.coordination.view_layout import ViewPosition
from tidelog_node.coordination.views import ShardViews, View, ViewFailedError
from tidelog_node.event_loop import Clock
from tidelog_node.partitions import Partition
from tidelog_node.replication import LeaderState
from tidelog_node.replication.fetch_session import TopicRef
from tidelog_node.shards.events import (
    ClientIdentity,
    RecordsCommitted,
    RecordsTransaction,
    RecordsWritten,
    RequestAbandoned,
    RequestReceived,
    Respond,
    ShardEvent,
    ShardRecord,
    TimePassed,
    WriteFailed,
    WriteRecords,
)

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
LOAD_TIME: Final = Metric(
    "tidelog_coordinator_load_duration_seconds",
    Kind.HISTOGRAM,
    "The time from the beginning of a leadership until the coordinator of a shard serves.",
    unit="seconds",
    labels=("coordinator",),
    kafka=(
        "kafka.server:type=group-coordinator-metrics: partition-load-time-max, partition-load-time-avg",
        "kafka.server:type=transaction-coordinator-metrics: partition-load-time-max, partition-load-time-avg",
    ),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
_MAX_UNCOMMITTED_BYTES = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class ShardEnvironment:
    """The dependencies that the shards of a coordinator share."""

    views: ShardViews
    clock: Clock
    is_hosted: Callable[[Partition], bool]
    """Returns whether this node still hosts a partition."""
    compression: str
    commit_timeout_ms: int
    load_times: Histogram = field(default_factory=LOAD_TIME.histogram)


class ShardDriver(Generic[RequestT, ResponseT, NewsT, CommandT]):
    """Runs the shard of one partition during one leadership term. The task :meth:`run` ends with the term."""

    def __init__(
        self,
        partition: Partition,
        leader: LeaderState,
        kind: ShardKind[RequestT, ResponseT, NewsT, CommandT],
        environment: ShardEnvironment,
    ) -> None:
        self.partition = partition
        self._leader = leader
        self._kind = kind
        self._environment = environment
        self._core: ShardCore[RequestT, ResponseT, NewsT, CommandT] | None = None
        self._news: NewsFeed[NewsT] | None = None
        self._calls: WaitingCalls[ResponseT] = WaitingCalls()
        self._inbox: deque[ShardEvent[RequestT] | NewsT] = deque()
        self._writes = _UncommittedWrites()
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def index(self) -> int:
        """The partition."""
        return self.partition.index

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this node leads the partition."""
        return self._leader.leader_epoch

    @property
    def core(self) -> ShardCore[RequestT, ResponseT, NewsT, CommandT] | None:
        """The shard, None while it is loaded."""
        return self._core

    @property
    def is_leading(self) -> bool:
        """True if this node leads the partition in the term of this driver."""
        return self.partition.state.leader is self._leader and self._environment.is_hosted(self.partition)

    @property
    def hindrance(self) -> str | None:
        """The reason why the shard is not served although this node leads, or None if they are."""
        if self._core is not None or not self.is_leading:
            return None
        committed, end = self.partition.high_watermark, self.partition.log.log_end_offset
        if committed < end:
            return f"{self.partition} is committed up to offset {committed} of {end}"
        return f"{self.partition} is being read"

    def wake(self, topic: TopicRef, index: int) -> None:
        """Check the partition again after a change of its high watermark or role."""
        self._woken.set()

    def mark(self, topic: TopicRef, index: int) -> None:
        """Do nothing: a change that is not urgent does not affect a coordinator."""

    def tell_news(self) -> None:
        """Notify the core of all changes that it does not know."""
        if self._news is not None:
            for event in self._news.take():
                self.post(event)

    def post(self, event: ShardEvent[RequestT] | NewsT) -> None:
        """Deliver an event to the core. Drop the event if no core is loaded."""
        if self._core is not None:
            self._inbox.append(event)
            self._woken.set()

    async def call(self, request: RequestT, client: ClientIdentity) -> ResponseT:
        """Return the shard's answer.

        Raises:
            TidelogError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        self._check_may_call()
        if self._kind.needs_news(request):
            self.tell_news()
        call_id, future = self._calls.add()
        self.post(RequestReceived(call_id, request, client))
        limit_ms = None if self._kind.waits_for_clients(request) else self._environment.commit_timeout_ms
        try:
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                response = await future
        except TimeoutError:
            text = f"{self.partition}: what was written is not on all in-sync replicas after {limit_ms} ms"
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from None
        finally:
            if self._calls.abandon(call_id):
                self.post(RequestAbandoned(call_id))
        refusal = self._kind.refusal(request, self.partition)
        if refusal is not None:
            raise refusal
        return response

    async def end_transaction(
        self, batch: bytes, producer_id: int, transaction_version: int, *, committed: bool
    ) -> None:
        """Append a marker. Wait until it is committed and the records of the transaction are applied or dropped.

        Raises:
            TidelogError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; the errors of the append.
        """
        self._check_may_call()
        info = self.partition.append_marker(batch, transaction_version)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        marker = _Marker(producer_id, committed, written)
        self._writes.add(_Uncommitted(0, info.first_offset, info.last_offset + 1, (), len(batch), None, marker))
        self._woken.set()
        await written

    async def run(self) -> None:
        """Load and run the shard until the leadership ends or the task is cancelled."""
        partition = self.partition
        waiters = partition.waiters.high_watermark
        waiters.add(self, partition.topic, partition.index)
        try:
            view: View | None = None
            while self.is_leading:
                view = await self._environment.views.current(broken=view)
                view = await self._run_on(view)
        finally:
            waiters.discard(self, partition.topic, partition.index)
            self._drop()

    async def _run_on(self, view: View) -> View | None:
        """Load and run the shard until it fails, and return the view if the view is the cause."""
        try:
            await self._load_and_serve(view)
        except LeadershipEndedError:
            return None
        except ViewFailedError as error:
            logger.error("%s: %s", self.partition, error.message)
            return view
        except TidelogError as error:
            logger.error("%s: the shard is loaded again: %s", self.partition, error)
        except Exception:
            logger.exception("%s: the shard failed with an unexpected error and is loaded again", self.partition)
        finally:
            self._drop()
        await asyncio.sleep(_RETRY_S)
        return None

    async def _load_and_serve(self, view: View) -> None:
        environment = self._environment
        loader = ShardLoader(self.partition, lambda: self.is_leading, self._woken, environment.views, environment.clock)
        begun_ns = time.monotonic_ns()
        store = await loader.load(view)
        environment.load_times.observe(time.monotonic_ns() - begun_ns)
        self._core = core = self._kind.new_core(store)
        self._news = self._kind.news()
        self.tell_news()
        await self._serve(core, store)

    async def _serve(self, core: ShardCore[RequestT, ResponseT, NewsT, CommandT], store: ShardContents) -> None:
        slices = TimeSlices()
        while True:
            self._woken.clear()
            if not self.is_leading:
                raise LeadershipEndedError
            event = self._next_event(core, store)
            if event is not None:
                self._handle(core, event)
                if slices.is_over:
                    await slices.give_way()
            else:
                self._set_timer(core.next_deadline_ms)
                await self._woken.wait()
                slices = TimeSlices()

    def _next_event(
        self, core: ShardCore[RequestT, ResponseT, NewsT, CommandT], store: ShardContents
    ) -> ShardEvent[RequestT] | NewsT | None:
        while (write := self._writes.pop(self.partition.high_watermark)) is not None:
            now_ms = self._environment.clock.wall_ms()
            event = self._commit(write, store, ViewPosition(write.end_offset, self._leader.leader_epoch, now_ms))
            if event is not None:
                return event
        if self._inbox:
            return self._inbox.popleft()
        deadline_ms = core.next_deadline_ms
        is_due = deadline_ms is not None and deadline_ms <= self._environment.clock.monotonic_ms()
        return TimePassed() if is_due else None

    def _commit(
        self, write: _Uncommitted, contents: ShardContents, position: ViewPosition
    ) -> ShardEvent[RequestT] | NewsT | None:
        """Add a committed write to the shard's records, and return the event for the core."""
        marker, transaction = write.marker, write.transaction
        if marker is not None:
            owners = contents.end(marker.producer_id, position, committed=marker.committed)
            if not marker.written.done():
                marker.written.set_result(None)
            return self._kind.transaction_ended(owners)
        if transaction is not None:
            contents.add(transaction.producer_id, write.first_offset, write.records, position)
        else:
            contents.apply(write.records, position)
        return RecordsCommitted(write.write_id)

    def _handle(
        self, core: ShardCore[RequestT, ResponseT, NewsT, CommandT], event: ShardEvent[RequestT] | NewsT
    ) -> None:
        """Process an event, and then the results of its writes before any other event."""
        events: deque[ShardEvent[RequestT] | NewsT] = deque([event])
        clock = self._environment.clock
        while events:
            for command in core.step(events.popleft(), clock.monotonic_ms(), clock.wall_ms()):
                match command:
                    case WriteRecords():
                        events.append(self._write(command))
                    case Respond():
                        self._calls.answer(command.call_id, command.response)
                    case _:
                        self._kind.execute(self, command)

    def _write(self, command: WriteRecords) -> RecordsWritten | WriteFailed:
        transaction = command.transaction
        now_ms = self._environment.clock.wall_ms()
        batch = _encode_batch(command.records, self._environment.compression, now_ms, transaction)
        try:
            if transaction is None:
                info = self.partition.append(batch, needs_all_replicas=True)
            else:
                info = self.partition.append_coordinated(batch, transaction.guard)
        except TidelogError as error:
            logger.warning("%s: records of %s cannot be written: %s", self.partition, self._kind.noun, error)
            return WriteFailed(command.write_id, error)
        self._writes.add(
            _Uncommitted(
                command.write_id, info.first_offset, info.last_offset + 1, command.records, len(batch), transaction
            )
        )
        return RecordsWritten(command.write_id)

    def _check_may_call(self) -> None:
        if not self.is_leading:
            raise self._gone()
        if self._core is None:
            raise error_for(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the {self._kind.noun} of {self.partition} are being loaded"
            )
        if self._writes.bytes > _MAX_UNCOMMITTED_BYTES:
            text = f"{self._writes.bytes} bytes wait for the replicas of {self.partition}"
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{text}, more than {_MAX_UNCOMMITTED_BYTES}")

    def _set_timer(self, deadline_ms: int | None) -> None:
        """Set the timer for the deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - self._environment.clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._woken.set)

    def _drop(self) -> None:
        """Drop the shard's state and answer all calls."""
        if self._core is not None:
            self._core = self._news = None
            self._kind.end(self)
        self._set_timer(None)
        self._inbox.clear()
        self._writes.abandon(self._gone())
        self._calls.fail_all(self._gone())

    def _gone(self) -> TidelogError:
        return error_for(
            ErrorCode.NOT_COORDINATOR, f"this node does not serve the {self._kind.noun} of {self.partition} any more"
        )


@dataclass(frozen=True, slots=True)
class _Marker:
    """A transaction's marker, and the future of the call that waits until it is committed."""

    producer_id: int
    committed: bool
    written: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Uncommitted:
    """A write that is in the log. It is committed when the high watermark reaches ``end_offset``."""

    write_id: int
    first_offset: int
    end_offset: int
    records: tuple[ShardRecord, ...]
    size: int
    transaction: RecordsTransaction | None = None
    marker: _Marker | None = None


class _UncommittedWrites:
    """The uncommitted writes of a shard, in the order of the log."""

    def __init__(self) -> None:
        self._writes: deque[_Uncommitted] = deque()
        self.bytes = 0

    def add(self, write: _Uncommitted) -> None:
        """Record an appended write."""
        self._writes.append(write)
        self.bytes += write.size

    def abandon(self, error: TidelogError) -> None:
        """Forget all writes, whose outcome is unknown, and fail the calls that wait for markers."""
        for write in self._writes:
            if write.marker is not None and not write.marker.written.done():
                write.marker.written.set_exception(error)
        self._writes.clear()
        self.bytes = 0

    def pop(self, high_watermark: int) -> _Uncommitted | None:
        """Return and remove the oldest write if it is committed."""
        if not self._writes or self._writes[0].end_offset > high_watermark:
            return None
        write = self._writes.popleft()
        self.bytes -= write.size
        return write


def _encode_batch(
    records: Sequence[ShardRecord], compression: str, now_ms: int, transaction: RecordsTransaction | None
) -> bytes:
    """Return the batch of these records."""
    builder = RecordBatchBuilder(compression)
    for record in records:
        builder.append(record.key, record.value, (), now_ms)
    if transaction is None:
        return builder.build()
    return builder.build(transaction.producer_id, transaction.producer_epoch, is_transactional=True)
