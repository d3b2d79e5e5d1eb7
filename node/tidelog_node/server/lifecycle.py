"""The asyncio shell of :class:`~tidelog_node.broker.lifecycle.Lifecycle`: its calls, its clock, its log lines.

:class:`LivenessConnection` keeps a call open at the leading controller, which lets the controller detect at once that
the process is gone. It follows the heartbeats: each answered one ensures that there is a call at the controller that
answered. Nothing is retried there, and a controller of a version without the call costs one refusal per heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import assert_never

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    HoldConnectionRequest,
    RegisterBrokerRequest,
)
from tidelog_foundation.waiting import ReportedWait
from tidelog_node.broker import lifecycle as core
from tidelog_node.broker.report import Report
from tidelog_node.event_loop import Clock, SystemClock
from tidelog_node.server.controller_client import ControllerClient
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES

logger = logging.getLogger(__name__)


class BrokerLifecycle:
    """Runs the lifecycle of a node in the task :meth:`run`. Other methods may be called at any time on its event loop.

    ``listeners`` have their advertised addresses, one of them for gRPC. ``on_heard`` is called whenever a controller
    has answered a heartbeat.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        cluster_id: str,
        listeners: Sequence[NamedListener],
        rack: str,
        log_dirs: Sequence[bytes],
        previous_broker_epoch: BrokerEpoch,
        timings: core.LifecycleTimings,
        controller: ControllerClient,
        offline_log_dirs: Callable[[], Sequence[bytes]] = tuple,
        clock: Clock | None = None,
        on_heard: Callable[[BrokerEpoch], None] = lambda _: None,
    ) -> None:
        self.incarnation_id = uuid.uuid4().bytes
        self._registration = registration_request(
            broker_id, cluster_id, self.incarnation_id, listeners, rack, log_dirs, previous_broker_epoch
        )
        self._core = core.Lifecycle(timings)
        self._controller = controller
        self._offline_log_dirs = offline_log_dirs
        self._clock = clock or SystemClock()
        self._on_heartbeat_answered = on_heard
        self._on_registered: Callable[[BrokerEpoch], None] = lambda _: None
        self._calls: asyncio.Queue[core.Register | core.SendHeartbeat | core.End] = asyncio.Queue(maxsize=1)
        self._may_stop = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The epoch of the latest registration, -1 before the first."""
        return self._core.broker_epoch

    @property
    def clean_shutdown_epoch(self) -> BrokerEpoch:
        """The broker epoch that a clean stop stores for the next start."""
        return self._core.clean_shutdown_epoch

    @property
    def is_fenced(self) -> bool:
        """True if the controller's last answer says that this node is fenced."""
        return self._core.is_fenced

    @property
    def is_serving(self) -> bool:
        """True after :meth:`note_serving`."""
        return self._core.is_serving

    @property
    def applied_offset(self) -> int:
        """The metadata offset that the partitions have reached, -1 before the first image."""
        return self._core.applied_offset

    @property
    def known_offset(self) -> int:
        """The newest metadata offset that a controller has named, -1 before the first."""
        return self._core.known_offset

    @property
    def has_session(self) -> bool:
        """True if it is certain that no controller has fenced this node without its knowledge."""
        return self._core.has_session(self._clock.monotonic_ms())

    async def run(self, on_registered: Callable[[BrokerEpoch], None]) -> None:
        """Register, then send heartbeats until cancelled. ``on_registered`` is called with each broker epoch.

        Raises:
            TidelogError: The controller refuses this node permanently, for example because of another cluster id or an
                invalid address.
        """
        self._on_registered = on_registered
        self._step(core.Started(self._registration.previous_broker_epoch))
        try:
            while True:
                if self._core.is_registering:
                    await self._register()
                else:
                    await self._make_call()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._may_stop.set()

    def note_applied(self, offset: int) -> None:
        """Record the metadata offset that the partitions have reached."""
        self._step(core.MetadataApplied(offset))

    def note_serving(self) -> None:
        """Record that clients are served from now on."""
        self._step(core.ServingStarted())

    def request_heartbeat(self) -> None:
        """Send the next heartbeat at once, since it has information that the controller waits for."""
        self._step(core.HeartbeatRequested())

    async def shut_down(self, timeout_s: float, *, may_wait: bool = False) -> None:
        """Request the move of all leaderships, and wait until they have moved, for ``timeout_s`` at most.

        If it ``may_wait``, replicas that catch up and are needed in place of this node's are waited for. It ends early
        if no controller answers a heartbeat for some seconds or if the node is no longer registered.
        """
        self._step(core.ShutdownRequested(round(timeout_s * 1000), may_wait))
        with ReportedWait("the controller to move this node's leaderships away"):
            await self._may_stop.wait()

    async def _register(self) -> None:
        with ReportedWait("a controller to register this node") as wait:
            while self._core.is_registering:
                error = await self._make_call()
                if error is not None:
                    wait.note(error)

    async def _make_call(self) -> TidelogError | None:
        """Make the next call and process its answer. Return its error, if any."""
        call = await self._calls.get()
        if isinstance(call, core.End):
            raise call.error
        try:
            answer = await (
                self._register_broker(call) if isinstance(call, core.Register) else self._send_heartbeat(call)
            )
        except TidelogError as error:
            self._step(core.CallFailed(error))
            return error
        self._step(answer)
        return None

    async def _register_broker(self, command: core.Register) -> core.Registered:
        response = await self._controller.register_broker(self._registration, command.timeout_ms / 1000)
        return core.Registered(response.broker_epoch)

    async def _send_heartbeat(self, command: core.SendHeartbeat) -> core.HeartbeatAnswered:
        request = heartbeat_request(self._registration.broker_id, command, self._offline_log_dirs())
        timeouts_s = command.timeout_ms / 1000, command.attempt_timeout_ms / 1000
        return heartbeat_answer(await self._controller.broker_heartbeat(request, *timeouts_s))

    def _step(self, event: core.Event) -> None:
        for command in self._core.step(event, self._clock.monotonic_ms()):
            self._perform(command)
        self._set_timer()

    def _perform(self, command: core.Command) -> None:
        match command:
            case core.Register() | core.SendHeartbeat() | core.End():
                self._calls.put_nowait(command)
            case core.UseBrokerEpoch():
                self._on_registered(command.broker_epoch)
            case core.HoldConnection():
                self._on_heartbeat_answered(command.broker_epoch)
            case core.Stop():
                self._may_stop.set()
            case Report():
                logger.log(command.level, command.text, *command.arguments)
            case _:
                assert_never(command)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline_ms = self._core.next_deadline_ms
        self._timer = None
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._step, core.TimePassed())


def registration_request(
    broker_id: BrokerId,
    cluster_id: str,
    incarnation_id: bytes,
    listeners: Sequence[NamedListener],
    rack: str,
    log_dirs: Sequence[bytes],
    previous_broker_epoch: BrokerEpoch,
) -> RegisterBrokerRequest:
    """Return a node's registration. One of the listeners is for gRPC."""
    return RegisterBrokerRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        endpoint=next(Endpoint(x.host, x.port) for x in listeners if x.speaks_grpc),
        rack=rack,
        log_dirs=tuple(map(DirectoryId, log_dirs)),
        previous_broker_epoch=previous_broker_epoch,
        features=tuple(SUPPORTED_FEATURES.values()),
        listeners=tuple(ListenerEndpoint(x.name, x.host, x.port, x.security_protocol) for x in listeners),
    )


def heartbeat_request(
    broker_id: BrokerId, command: core.SendHeartbeat, offline_log_dirs: Sequence[bytes]
) -> BrokerHeartbeatRequest:
    """Return a heartbeat, with the log directories that have failed since the registration (KIP-858)."""
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=command.broker_epoch,
        current_metadata_offset=command.metadata_offset,
        want_shut_down=command.wants_shutdown,
        shutdown_may_wait=command.shutdown_may_wait,
        offline_log_dirs=tuple(map(DirectoryId, offline_log_dirs)),
    )


def heartbeat_answer(response: BrokerHeartbeatResponse) -> core.HeartbeatAnswered:
    """Return the event for a controller's answer to a heartbeat."""
    return core.HeartbeatAnswered(
        response.is_fenced, response.should_shut_down, response.session_timeout_ms, response.metadata_offset
    )


class LivenessConnection:
    """Keeps the most recently requested call to a controller open, in the task :meth:`run`."""

    def __init__(self, broker_id: BrokerId, controller: ControllerClient) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._wanted: tuple[str, BrokerEpoch] | None = None
        self._held: tuple[str, BrokerEpoch] | None = None
        self._asked = asyncio.Event()

    def hold(self, broker_epoch: BrokerEpoch) -> None:
        """Request an open call, for this registration, at the controller that is called first now."""
        self._wanted = self._controller.address, broker_epoch
        if self._wanted != self._held:
            self._asked.set()

    async def run(self) -> None:
        """Make the calls until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            call: asyncio.Task[None] | None = None
            while True:
                await self._asked.wait()
                self._asked.clear()
                if call is not None:
                    call.cancel()
                if self._wanted is not None:
                    self._held = self._wanted
                    call = tasks.create_task(self._call(self._wanted), name="liveness-connection")

    async def _call(self, place: tuple[str, BrokerEpoch]) -> None:
        address, broker_epoch = place
        request = HoldConnectionRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        try:
            await self._controller.hold_connection(address, request)
        except TidelogError as error:
            logger.debug("The liveness connection to %s ended: %s", address, error)
        finally:
            if self._held == place:
                self._held = None
