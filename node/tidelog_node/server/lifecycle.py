"""A node's standing with the controllers: registered, alive, fenced or not, leaving (KIP-631).

The node registers with an id of this start of the process; the controller answers with the broker epoch. From then on a
heartbeat says what metadata offset is applied; the controller unfences the node when that has reached the registration.
It says too which log directories have failed since, until the process ends (KIP-858).
A stop asks for controlled shutdown and waits until the node leads nothing; it does not wait for controllers that do not
answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import Callable, Sequence

from tidelog.config.endpoints import GRPC, NamedListener
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerEpoch, BrokerId
from tidelog.v1 import common_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.waiting import ReportedWait
from tidelog_node.partitions import Clock, SystemClock
from tidelog_node.server.controller_client import ControllerClient, is_transient
from tidelog_quorum.metadata import SUPPORTED_FEATURES

logger = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 4.0
_HEARTBEATS_PER_ATTEMPT = 3
_SHORTEST_ATTEMPT_S = 0.5
_LONGEST_ATTEMPT_S = 2.0
_RETRY_S = 0.25
_SHUTDOWN_HEARTBEAT_S = 0.1
_TRY_TO_REGISTER = (
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""Refusals that end: the session of an earlier start of this node, or trouble of the controller's own."""
_REGISTER_AGAIN = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class BrokerLifecycle:
    """One per node. ``run`` is its task; ``broker_epoch`` is -1 before the first registration.

    ``listeners`` are as others reach them, one of them by gRPC. ``on_heard`` is called whenever a controller has
    answered a heartbeat.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        cluster_id: str,
        listeners: Sequence[NamedListener],
        rack: str,
        log_dirs: Sequence[bytes],
        previous_broker_epoch: int,
        heartbeat_interval_ms: int,
        controller: ControllerClient,
        reported_offset: Callable[[], int],
        offline_log_dirs: Callable[[], Sequence[bytes]] = tuple,
        clock: Clock | None = None,
        on_heard: Callable[[BrokerEpoch], None] = lambda _: None,
    ) -> None:
        self.broker_epoch = BrokerEpoch(-1)
        self.incarnation_id = uuid.uuid4().bytes
        self.is_fenced = True
        self._registration = pb.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=self.incarnation_id,
            endpoint=next(
                common_pb2.Endpoint(host=x.host, port=x.port) for x in listeners if x.security_protocol == GRPC
            ),
            rack=rack,
            log_dirs=log_dirs,
            previous_broker_epoch=previous_broker_epoch,
            features=[
                common_pb2.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level)
                for f in SUPPORTED_FEATURES.values()
            ],
            listeners=[_endpoint(x) for x in listeners],
        )
        self._interval_s = heartbeat_interval_ms / 1000
        # A session is some heartbeats long: that at the next leader must not end while a silent one is waited for.
        attempt_s = _HEARTBEATS_PER_ATTEMPT * self._interval_s
        self._attempt_s = min(max(attempt_s, _SHORTEST_ATTEMPT_S), _LONGEST_ATTEMPT_S)
        self._controller = controller
        self._reported_offset = reported_offset
        self._offline_log_dirs = offline_log_dirs
        self._clock = clock or SystemClock()
        self._on_heard = on_heard
        self._session_end_ms: float = -math.inf
        self._session_offset: float = math.inf
        self._on_registered: Callable[[], None] = _do_nothing
        self._wants_shut_down = False
        self._may_stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self, on_registered: Callable[[], None]) -> None:
        """Register, then send heartbeats until cancelled; calls ``on_registered`` whenever there is a broker epoch.

        Raises:
            TidelogError: the controller refuses this node for good: another cluster's, an invalid address.
        """
        self._on_registered = on_registered
        await self._register()
        while True:
            pause_s = await self._heartbeat()
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which forgets that it was cancelled when it is told to hurry at the same time.
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
            self._hurry.clear()

    @property
    def has_session(self) -> bool:
        """Whether no controller can have fenced this node without its knowing, so that it leads what it thinks it does.

        It is reckoned from when a heartbeat was sent: the session at the controller began later. A process that was
        stopped for a while knows by this that it may have been replaced, before anybody tells it. When a new session
        begins it has to learn first what befell it in between.
        """
        return self._clock.monotonic_ms() < self._session_end_ms and self._reported_offset() >= self._session_offset

    def hurry(self) -> None:
        """Send the next heartbeat at once: there is something that the controller waits for."""
        self._hurry.set()

    async def shut_down(self, timeout_s: float) -> None:
        """Ask the controller to move all leaderships away and wait until it has, for ``timeout_s`` at most.

        Ends when no controller answered a heartbeat for some seconds, or when the node is no longer registered.
        """
        if self.broker_epoch < 0:
            return
        self._wants_shut_down = True
        self.hurry()
        try:
            with ReportedWait("the controller to move this node's leaderships away"):
                async with asyncio.timeout(timeout_s):
                    await self._may_stop.wait()
        except TimeoutError:
            logger.warning(
                "The controller did not move all leaderships within %.1f s; stopping all the same", timeout_s
            )

    async def _register(self) -> None:
        self._session_end_ms = -math.inf
        with ReportedWait("a controller to register this node") as wait:
            was_refused = False
            while True:
                try:
                    response = await self._controller.register_broker(self._registration, _CALL_TIMEOUT_S)
                except TidelogError as error:
                    if not (error.code in _TRY_TO_REGISTER or is_transient(error)):
                        raise
                    if not was_refused:
                        logger.warning("Registering failed, trying again: %s", error)
                    was_refused = True
                    wait.note(error)
                    if self._wants_shut_down:
                        self._stop_without_handover(error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                self.broker_epoch = BrokerEpoch(response.broker_epoch)
                logger.info("Registered with broker epoch %d", self.broker_epoch)
                self._on_registered()
                return

    async def _heartbeat(self) -> float:
        """Send one and return how long to wait for the next."""
        request = pb.BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._reported_offset(),
            want_shut_down=self._wants_shut_down,
            offline_log_dirs=self._offline_log_dirs(),
        )
        sent_ms = self._clock.monotonic_ms()
        try:
            response = await self._controller.broker_heartbeat(request, _CALL_TIMEOUT_S, self._attempt_s)
        except TidelogError as error:
            if request.want_shut_down and (is_transient(error) or error.code in _REGISTER_AGAIN):
                self._stop_without_handover(error)
            elif error.code in _REGISTER_AGAIN:
                logger.warning("Registering again: %s", error)
                await self._register()
                return 0
            else:
                logger.warning("A heartbeat failed, trying again: %s", error)
            return min(_RETRY_S, self._interval_s)
        if response.is_fenced != self.is_fenced:
            logger.info("The controller has %s this node", "fenced" if response.is_fenced else "unfenced")
        self.is_fenced = response.is_fenced
        self._prolong_session(response, sent_ms)
        self._on_heard(self.broker_epoch)
        if response.should_shut_down and self._wants_shut_down:
            self._may_stop.set()
        return self._pause_s()

    def _prolong_session(self, response: pb.BrokerHeartbeatResponse, sent_ms: int) -> None:
        if response.is_fenced:
            self._session_end_ms = -math.inf
            return
        if self._clock.monotonic_ms() >= self._session_end_ms:
            self._session_offset = response.metadata_offset
        # A controller that does not say how long a session is leaves it open.
        self._session_end_ms = sent_ms + (response.session_timeout_ms or math.inf)

    def _stop_without_handover(self, error: TidelogError) -> None:
        if not self._may_stop.is_set():
            logger.warning("The leaderships cannot be moved, stopping all the same: %s", error)
        self._may_stop.set()

    def _pause_s(self) -> float:
        if self._wants_shut_down:
            return min(_SHUTDOWN_HEARTBEAT_S, self._interval_s)
        return min(_RETRY_S, self._interval_s) if self.is_fenced else self._interval_s


def _do_nothing() -> None:
    pass


def _endpoint(listener: NamedListener) -> common_pb2.ListenerEndpoint:
    return common_pb2.ListenerEndpoint(
        name=listener.name, host=listener.host, port=listener.port, security_protocol=listener.security_protocol
    )
