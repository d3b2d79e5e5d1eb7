"""A consumer's membership on the network thread. Heartbeats do not need poll(); rebalances are queued for poll()."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

from tidelog.cluster import ClusterClient, ClusterMetadata, Connection, Coordinators, Topic
from tidelog.cluster.tasks import TaskSet
from tidelog.consumer.assignors import KnownTopic
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core.partition import may_pass
from tidelog.consumer.core.subscription import Subscription
from tidelog.consumer.membership.events import (
    AskTopics,
    Assign,
    Call,
    CallFailed,
    Closing,
    Command,
    Event,
    Left,
    MembershipChanged,
    MembershipResponse,
    Polled,
    RebalanceServed,
    ReportError,
    Responded,
    Revoke,
    Subscribed,
    TimePassed,
    TopicsLearned,
    Unsubscribed,
)
from tidelog.consumer.membership.factory import Membership
from tidelog.telemetry.measures import RebalanceMeasures
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import call_soon
from tidelog_foundation.transport.loop import monotonic_ms, step_when_due
from tidelog_foundation.waiting import Outage, ReportedWait

logger = logging.getLogger(__name__)

_POLLS_PER_INTERVAL = 10
"""The number of poll reports per max.poll.interval.ms."""


class Application(Protocol):
    """The consumer's reactions to its membership, called on the network thread."""

    def has_read(self) -> bool:
        """Return True if the application got messages since the last call."""

    def on_rebalance(self, command: Revoke | Assign) -> None:
        """Queue the rebalance for the application's thread."""

    def on_member(self, command: MembershipChanged) -> None:
        """Set the member that makes subsequent commits."""

    def on_error(self, error: TidelogError, topic: str = "") -> None:
        """Queue the error for poll()."""

    def on_left(self) -> None:
        """Record that the consumer has left the group."""


class GroupMember:
    """The driver of a membership. It runs from :meth:`start` to :meth:`stop`. Thread-safe methods are marked."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: ClusterClient,
        coordinators: Coordinators,
        membership: Membership,
        application: Application,
        rebalances: RebalanceMeasures,
        log: logging.Logger | None = None,
    ) -> None:
        self._log = log or logger
        assert config.group_id is not None
        self._group_id = config.group_id
        self._config = config
        self._cluster = cluster
        self._coordinators = coordinators
        self._membership = membership
        self._application = application
        self._rebalances = rebalances
        self._subscription: Subscription | None = None
        self._topics: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()
        self._known: dict[str, KnownTopic] | None = None
        self._reported: set[str] = set()
        self._awake = asyncio.Event()
        self._refresh = asyncio.Event()
        self._tasks = TaskSet()
        self._is_unresolved = False
        self._is_outage_told = False
        self._outage = Outage()
        self._told: ErrorCode | None = None
        self._told_ms = 0.0
        self._has_polled = False
        self._is_polling = False
        self._awaits_poll = False

    async def start(self) -> None:
        """Start the tasks."""
        work = step_when_due(self._step, self._awake, self._config.retry_backoff_max_ms, "the consumer's membership")
        self._tasks.start(work, "consumer-membership")
        self._tasks.start(self._keep_topics(), "consumer-topics")

    async def stop(self) -> None:
        """End all tasks without leaving the group."""
        await self._tasks.cancel()

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription. Thread-safe."""
        call_soon(lambda: self._subscribe(subscription))

    def tell(self, event: Event) -> None:
        """Pass an event to the membership. Thread-safe."""
        call_soon(lambda: self._handle(event))

    def begin_poll(self) -> None:
        """Record that the application's thread enters poll() or returns to it from a callback."""
        self._is_polling = True
        self.polled()

    def end_poll(self) -> None:
        """Record that the application's thread leaves poll()."""
        self._has_polled = True
        self._is_polling = False

    def polled(self) -> None:
        """Record a call of poll() that returned at once."""
        self._has_polled = True
        if self._awaits_poll:
            self._awaits_poll = False
            self.tell(Polled())

    def _subscribe(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._reported.clear()
        self._topics = subscription.resolve(())
        # The matches of patterns are unknown before a request to the cluster; joining without them would be useless.
        self._is_unresolved = bool(subscription.patterns)
        if not self._is_unresolved:
            self._handle(Subscribed(self._topics))
        self._known = None
        self._refresh.set()

    def _step(self) -> float | None:
        now_ms = monotonic_ms()
        tick_ms = self._config.max_poll_interval_ms / _POLLS_PER_INTERVAL
        if now_ms >= self._told_ms + tick_ms:
            has_read = self._application.has_read()
            if has_read or self._is_polling or self._has_polled:
                self._has_polled = False
                self._told_ms = now_ms
                self._execute(self._membership.step(Polled(), now_ms))
        deadline_ms = self._deadline_ms()
        if deadline_ms <= now_ms:
            self._execute(self._membership.step(TimePassed(), now_ms))
        return min(max(self._deadline_ms(), now_ms), now_ms + tick_ms)

    def _deadline_ms(self) -> float:
        deadline_ms = self._membership.next_deadline_ms
        return math.inf if deadline_ms is None else deadline_ms

    def _handle(self, event: Event) -> None:
        if isinstance(event, Unsubscribed | Closing):
            self._subscription = None
            self._topics = frozenset()
        commands = self._membership.step(event, monotonic_ms())
        self._execute(commands)
        if _ends_rebalance(self._config.group_protocol, event, commands):
            self._rebalances.end(monotonic_ms())
        self._awake.set()

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Call():
                    if isinstance(command.request, pb.JoinGroupRequest):
                        self._rebalances.begin(monotonic_ms())
                    self._tasks.start(self._call(command), f"group-{type(command.request).__name__}")
                case AskTopics():
                    self._asked = command.topics
                    self._known = None
                    self._refresh.set()
                case Revoke() | Assign():
                    if self._config.group_protocol == "consumer":
                        self._rebalances.begin(monotonic_ms())
                    self._application.on_rebalance(command)
                case MembershipChanged():
                    self._application.on_member(command)
                case ReportError():
                    self._awaits_poll = True
                    self._application.on_error(command.error)
                case Left():
                    self._application.on_left()
                case _:
                    assert_never(command)

    async def _call(self, call: Call) -> None:
        try:
            with ReportedWait(f'{type(call.request).__name__} of group "{self._group_id}"'):
                # A call may take minutes while others join; a missing coordinator must be reported before that.
                find_ms = min(call.timeout_ms, self._config.request_timeout_ms)
                await self._coordinators.find(self._group_id, timeout_ms=find_ms)
                response = await self._coordinators.ask_once(
                    self._group_id,
                    _asking(call),
                    lambda r: [r.error] if r.HasField("error") else [],
                    timeout_ms=call.timeout_ms,
                )
        except TidelogError as error:
            self._tell_once(error)
            self._handle(CallFailed(call.call_id, error))
        except Exception as error:  # noqa: BLE001 any error is logged, and the consumer continues
            self._log.exception("a request of a member of group %s failed", self._group_id)
            self._handle(CallFailed(call.call_id, error_for(ErrorCode._FAIL, f"the consumer failed: {error!r}")))
        else:
            self._told = None
            self._handle(Responded(call.call_id, response))

    def _tell_once(self, error: TidelogError) -> None:
        """Report a missing coordinator once. Metadata requests and fetches report outages."""
        is_told = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE or not may_pass(error)
        if is_told and error.code is not self._told:
            self._told = error.code
            self._application.on_error(error)

    async def _keep_topics(self) -> None:
        attempt = 0
        while True:
            self._refresh.clear()
            try:
                is_known = self._subscription is None or await self._learn_topics()
            except Exception:  # noqa: BLE001 any error is logged, and the consumer continues
                self._log.exception("fetching the topics of group %s failed; retrying", self._group_id)
                is_known = False
            attempt = 0 if is_known else attempt + 1
            wait_ms = self._config.metadata_max_age_ms if is_known else self._cluster.backoff.wait_ms(attempt)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._refresh.wait()
            except TimeoutError:
                continue
            if not is_known:
                await asyncio.sleep(self._cluster.backoff.wait_ms(1) / 1000)

    async def _learn_topics(self) -> bool:
        """Request the metadata of the group's topics; return True if all are known."""
        subscription = self._subscription
        assert subscription is not None
        try:
            names = None if subscription.patterns else self._topics | self._asked
            creates = self._config.allow_auto_create_topics
            await self._cluster.refresh(names, allow_auto_topic_creation=creates and not subscription.patterns)
        except TidelogError as error:
            if self._outage.is_news(error):
                self._log.warning("the consumer cannot get metadata: %s", error)
            if error.code in OUTAGES and not self._is_outage_told:
                self._is_outage_told = True
                self._application.on_error(error)
            return False
        self._is_outage_told = False
        self._outage.end()
        if subscription is self._subscription:
            self._resolve(subscription)
        return self._topics <= (self._known or {}).keys()

    def _resolve(self, subscription: Subscription) -> None:
        metadata = self._cluster.metadata
        existing = {name: topic for name, topic in metadata.topics.items() if topic.error is None}
        topics = subscription.resolve(name for name, topic in existing.items() if not topic.is_internal)
        if topics != self._topics or self._is_unresolved:
            self._topics, self._is_unresolved = topics, False
            self._handle(Subscribed(topics, subscription.pattern))
        wanted = sorted((topics | self._asked) & existing.keys())
        known = {name: _known(metadata, existing[name]) for name in wanted}
        if known != self._known:
            self._known = known
            self._handle(TopicsLearned(known))
        self._reported &= topics - known.keys()
        for name in sorted(topics - known.keys() - self._reported):
            self._reported.add(name)
            self._application.on_error(_not_there(metadata, name), name)


def _ends_rebalance(protocol: str, event: Event, commands: list[Command]) -> bool:
    """Return whether an event ends a rebalance, as Kafka's clients measure it.

    The classic protocol measures from the request to join to the assignment, and the protocol ``consumer`` (KIP-848)
    a reconciliation, with the application's callbacks.
    """
    if protocol == "consumer":
        is_served = isinstance(event, RebalanceServed)
        return is_served and not any(isinstance(command, Revoke | Assign) for command in commands)
    response = event.response if isinstance(event, Responded) else None
    return isinstance(response, pb.SyncGroupResponse) and not response.HasField("error")


def _asking(call: Call) -> Callable[[Connection, float], Awaitable[MembershipResponse]]:
    async def ask(connection: Connection, timeout_s: float) -> MembershipResponse:
        groups, request = connection.groups, call.request
        match request:
            case pb.JoinGroupRequest():
                return await groups.JoinGroup(request, timeout=timeout_s)
            case pb.SyncGroupRequest():
                return await groups.SyncGroup(request, timeout=timeout_s)
            case pb.HeartbeatRequest():
                return await groups.Heartbeat(request, timeout=timeout_s)
            case pb.LeaveGroupRequest():
                return await groups.LeaveGroup(request, timeout=timeout_s)
            case pb.ConsumerGroupHeartbeatRequest():
                return await groups.ConsumerGroupHeartbeat(request, timeout=timeout_s)
        assert_never(request)

    return ask


def _known(metadata: ClusterMetadata, topic: Topic) -> KnownTopic:
    racks = tuple(
        frozenset(metadata.brokers[node].rack for node in p.replicas if node in metadata.brokers) - {""}
        for p in topic.partitions.values()
    )
    return KnownTopic(topic.topic_id, len(topic.partitions), racks)


def _not_there(metadata: ClusterMetadata, name: str) -> TidelogError:
    topic = metadata.topics.get(name)
    if topic is not None and topic.error is not None:
        return error_for(topic.error.error_code(), f'subscribed topic "{name}": {topic.error.str()}')
    return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'subscribed topic "{name}": there is no such topic')
