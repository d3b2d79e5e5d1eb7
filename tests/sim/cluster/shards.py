"""The shards of a simulated node's coordinators: the product's driver and loader, whose tasks are called back here.

The product decides what a shard appends, when a write is committed and added to the view, and what a load reads. This
module delivers the shard's events and its answers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from sim.cluster.sleeping import returned
from sim.cluster.world import OnAnswer

from tidelog_foundation.errors import TidelogError
from tidelog_node.coordination.shard_driver import ShardDriver, ShardEnvironment, _Marker, _Uncommitted
from tidelog_node.coordination.shard_kind import ShardKind
from tidelog_node.coordination.shard_loader import LeadershipEndedError, ShardLoader
from tidelog_node.replication.fetch_session import TopicRef
from tidelog_node.shards.events import ClientIdentity, RequestReceived
from tidelog_testing.memory_view import MemoryView

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition

_CLIENT = ClientIdentity("simulated", "/127.0.0.1")


class SimulatedView(MemoryView):
    """The view of all shards of a node, which outlives its process; also in the place of what opens and replaces it."""

    async def in_thread(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Run a blocking function."""
        return function(*arguments, **named)


class _Calls:
    """The calls of one shard by id, each with what hears its answer; in the place of futures."""

    def __init__(self) -> None:
        self._open: dict[int, OnAnswer] = {}
        self._ids = itertools.count()

    def open(self, answer: OnAnswer) -> int:
        call_id = next(self._ids)
        self._open[call_id] = answer
        return call_id

    def answer(self, call_id: int, response: Any) -> None:
        self._open.pop(call_id)(response)

    def fail_all(self, error: TidelogError) -> None:
        calls, self._open = self._open, {}
        for answer in calls.values():
            answer(error)


class _Written:
    """The future of a call that waits for a marker."""

    def __init__(self, answer: OnAnswer) -> None:
        self._answer: OnAnswer | None = answer

    def done(self) -> bool:
        return self._answer is None

    def set_result(self, result: None) -> None:
        assert self._answer is not None
        answer, self._answer = self._answer, None
        answer(result)

    def set_exception(self, error: TidelogError) -> None:
        self.set_result(cast(Any, error))


class SimulatedShard(ShardDriver[Any, Any, Any, Any]):
    """One shard in one leadership term, from :meth:`begin` until it finds that the term has ended."""

    def __init__(
        self, node: NodeProcess, partition: SimulatedPartition, kind: ShardKind[Any, Any, Any, Any], view: SimulatedView
    ) -> None:
        leader = partition.state.leader
        assert leader is not None
        environment = ShardEnvironment(cast(Any, view), node, self._is_hosted, "none", 0)
        super().__init__(partition, leader, kind, environment)
        self._node = node
        self._view = view
        self._calls = cast(Any, _Calls())
        self._contents: Any = None
        self._due_ms: int | None = None
        self._is_woken = False

    @property
    def is_loaded(self) -> bool:
        """True if the shard answers."""
        return self._core is not None

    def begin(self) -> None:
        """Begin to load and serve."""
        partition = self.partition
        partition.waiters.high_watermark.add(self, partition.topic, partition.index)
        self._step()

    def end(self) -> None:
        """Drop the shard's state and answer all calls."""
        partition = self.partition
        partition.waiters.high_watermark.discard(self, partition.topic, partition.index)
        self._drop()

    def wake(self, topic: TopicRef, index: int) -> None:
        """Look at the partition soon: its high watermark or role has changed."""
        if not self._is_woken:
            self._is_woken = True
            self._node.soon(self._step)

    def post(self, event: Any) -> None:
        super().post(event)
        self.wake(self.partition.topic, self.partition.index)

    def ask(self, request: Any, answer: OnAnswer) -> None:
        """Process a request. The answer is the response or a TidelogError.

        Raises:
            TidelogError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        self._check_may_call()
        if self._kind.needs_news(request):
            self.tell_news()
        call_id = self._calls.open(lambda response: answer(self._kind.refusal(request, self.partition) or response))
        self.post(RequestReceived(call_id, request, _CLIENT))

    def append_marker(
        self, batch: bytes, producer_id: int, transaction_version: int, answer: OnAnswer, *, committed: bool
    ) -> None:
        """Append a marker. The answer, None or a TidelogError, follows when it is committed and has taken effect.

        Raises:
            TidelogError: The errors of :meth:`ask` and of the append.
        """
        self._check_may_call()
        info = self.partition.append_marker(batch, transaction_version)
        marker = _Marker(producer_id, committed, cast(Any, _Written(answer)))
        self._writes.add(_Uncommitted(0, info.first_offset, info.last_offset + 1, (), len(batch), None, marker))
        self.wake(self.partition.topic, self.partition.index)

    def _is_hosted(self, partition: object) -> bool:
        return self._node.partitions.get((self.partition.topic, self.partition.index)) is partition

    def _step(self) -> None:
        """Do everything that is due, as the task of the driver does between two waits."""
        self._is_woken = False
        if self.is_leading and self._core is None:
            self._load()
        core = self._core
        while core is not None and self.is_leading and (event := self._next_event(core, self._contents)) is not None:
            self._handle(core, event)
            if self._node.checks_invariants:
                core.check_invariants()  # type: ignore[attr-defined]
                self._contents.check_invariants()
        if core is not None and self.is_leading:
            self._set_timer(core.next_deadline_ms)

    def _load(self) -> None:
        partition = self.partition
        if partition.high_watermark < partition.log.log_end_offset:
            return
        loader = ShardLoader(partition, lambda: self.is_leading, asyncio.Event(), cast(Any, self._view), self._node)
        try:
            self._contents = returned(loader.load(cast(Any, self._view)))
        except (LeadershipEndedError, TidelogError):
            return
        self._core = self._kind.new_core(self._contents)
        self._news = self._kind.news()
        self.tell_news()
        self._node.checker.count(f"shards of {self._kind.noun} loaded")

    def _set_timer(self, deadline_ms: int | None) -> None:
        node = self._node
        if deadline_ms is not None and (self._due_ms is None or deadline_ms < self._due_ms):
            self._due_ms = deadline_ms
            node.world.at(node.due_us(deadline_ms), node.enter, node.life, self._pass_time, deadline_ms)

    def _pass_time(self, deadline_ms: int) -> None:
        if self._due_ms == deadline_ms:
            self._due_ms = None
            self._step()
