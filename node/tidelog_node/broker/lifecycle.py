"""A broker's registration, heartbeats, session and controlled shutdown as a pure state machine (KIP-631).

- A broker registers with the id of this start of the process. It retries after a temporary refusal and ends after any
  other. The answer is the broker epoch, and the first heartbeat follows at once.
- One call is in progress at a time. Heartbeats are ``heartbeat_interval_ms`` apart. A broker that is fenced, is
  shutting down, or got no answer sends them sooner. A request for a heartbeat ends the pause; during a call it ends the
  pause after that call.
- A heartbeat reports the metadata offset that the partitions have reached, and no offset before clients are served: the
  controller unfences a broker once its registration is reported.
- A broker whose epoch the controller does not know registers again, as the same incarnation.
- A session lasts ``session_timeout_ms`` from the time when a heartbeat was sent, so that it ends here before it ends at
  the controller. The answer to the first heartbeat of a session names a metadata offset; the broker has the session
  once it has applied that offset, because it may have lost leaderships in between. A fenced broker has no session.
- Controlled shutdown is part of each heartbeat until the controller answers that the broker leads nothing. For a part
  of its time, the controller may let it wait for replicas that catch up and are needed in its place. The broker
  stops without a handover if it has nothing to hand over, if no controller answers, if its registration is gone, or at
  the deadline.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeAlias, assert_never

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import UNKNOWN_OFFSET, BrokerEpoch
from tidelog_node.broker.report import Level, Report

NOT_REGISTERED = BrokerEpoch(-1)
UNREACHABLE = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode._TRANSPORT,
    ErrorCode._SSL,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.ILLEGAL_SASL_STATE,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
)
"""Errors of a call that no leading controller has answered, those of logins included.

A controller that lags behind does not know a new user yet.
"""

_REGISTER_LATER = (
    *UNREACHABLE,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""Temporary refusals: the session of an earlier start of this node, or internal errors of the controller."""
_REGISTER_AGAIN = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
_HEARTBEATS_PER_ATTEMPT = 3
_WAITING_PERCENTAGE = 70
"""The part of the time for a shutdown in which it may wait for replicas. The rest is for the handover."""


@dataclass(frozen=True, slots=True)
class LifecycleTimings:
    """The interval of heartbeats, and the timeouts and pauses of calls."""

    heartbeat_interval_ms: int
    registration_retry_ms: int = 250
    heartbeat_retry_ms: int = 250
    """Also the pause of a fenced broker. The heartbeat interval limits all pauses between heartbeats."""
    shutdown_heartbeat_ms: int = 10
    """The first pause during a controlled shutdown. Each following pause is twice as long, up to the longest one."""
    longest_shutdown_heartbeat_ms: int = 100
    call_timeout_ms: int = 4_000
    shortest_attempt_ms: int = 500
    longest_attempt_ms: int = 2_000

    @property
    def attempt_timeout_ms(self) -> int:
        """The timeout of a heartbeat at one controller.

        A session lasts several heartbeats. It must not expire at the next leader while the broker waits for a silent
        controller.
        """
        attempt_ms = _HEARTBEATS_PER_ATTEMPT * self.heartbeat_interval_ms
        return min(max(attempt_ms, self.shortest_attempt_ms), self.longest_attempt_ms)


@dataclass(frozen=True, slots=True)
class Started:
    """The process has opened its log directories. ``previous_broker_epoch`` is from their last clean stop, or -1."""

    previous_broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to :class:`Register`."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """The answer to :class:`SendHeartbeat`. A ``session_timeout_ms`` of 0 means no timeout."""

    is_fenced: bool
    should_shut_down: bool
    session_timeout_ms: int
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The registration or heartbeat in progress failed."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class MetadataApplied:
    """The partitions have reached this metadata offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class ServingStarted:
    """Clients are served from now on."""


@dataclass(frozen=True, slots=True)
class HeartbeatRequested:
    """The controller waits for information in the next heartbeat."""


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The process ends. Leaderships must be handed over within ``timeout_ms``.

    If it ``may_wait``, the handover begins when other replicas have caught up, in the first part of that time.
    """

    timeout_ms: int
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed."""


Event: TypeAlias = (
    Started
    | Registered
    | HeartbeatAnswered
    | CallFailed
    | MetadataApplied
    | ServingStarted
    | HeartbeatRequested
    | ShutdownRequested
    | TimePassed
)


@dataclass(frozen=True, slots=True)
class Register:
    """Register this incarnation. The answer is :class:`Registered` or :class:`CallFailed`."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat. The answer is :class:`HeartbeatAnswered` or :class:`CallFailed`."""

    broker_epoch: BrokerEpoch
    metadata_offset: int
    wants_shutdown: bool
    shutdown_may_wait: bool
    timeout_ms: int
    attempt_timeout_ms: int


@dataclass(frozen=True, slots=True)
class UseBrokerEpoch:
    """Allow the application of images with the registration of this epoch."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class HoldConnection:
    """Keep a call open, for this registration, at the controller that has answered."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Stop:
    """End the wait for the handover. ``is_handed_over`` is True if a controller has confirmed it."""

    is_handed_over: bool


@dataclass(frozen=True, slots=True)
class End:
    """End this broker, which the controller refuses permanently."""

    error: TidelogError


Command: TypeAlias = Register | SendHeartbeat | UseBrokerEpoch | HoldConnection | Stop | End | Report


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Nothing has been sent."""


@dataclass(frozen=True, slots=True)
class Registering:
    """A registration is in progress. ``was_refused`` is True if an earlier attempt failed and was logged."""

    was_refused: bool


@dataclass(frozen=True, slots=True)
class RegistrationDelayed:
    """The registration was refused and is retried at ``until_ms``."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class SendingHeartbeat:
    """A heartbeat is in progress since ``sent_ms``. With ``next_at_once`` another one follows without a pause."""

    sent_ms: int
    wants_shutdown: bool
    next_at_once: bool = False


@dataclass(frozen=True, slots=True)
class Pausing:
    """The next heartbeat is due at ``until_ms``."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The controller has refused this broker permanently."""


Phase: TypeAlias = NotStarted | Registering | RegistrationDelayed | SendingHeartbeat | Pausing | Ended


@dataclass(frozen=True, slots=True)
class Session:
    """The session at the controller, which lasts until ``end_ms`` and is usable from ``metadata_offset`` on."""

    end_ms: float
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A controlled shutdown, which ends at ``deadline_ms`` at the latest. It may begin until ``waits_until_ms``.

    The next pause between heartbeats is ``pause_ms``.
    """

    timeout_ms: int
    deadline_ms: int
    waits_until_ms: int
    pause_ms: int
    may_stop: bool = False


NO_SESSION = Session(-math.inf, 0)


class Lifecycle:
    """The lifecycle of one broker process. ``broker_epoch`` is that of the latest registration, -1 before the first."""

    def __init__(self, timings: LifecycleTimings) -> None:
        self.phase: Phase = NotStarted()
        self.broker_epoch = NOT_REGISTERED
        self.is_fenced = True
        self.is_serving = False
        self.session = NO_SESSION
        self.shutdown: Shutdown | None = None
        self.applied_offset = UNKNOWN_OFFSET
        self.known_offset = UNKNOWN_OFFSET
        """The newest metadata offset that a controller has named."""
        self._timings = timings
        self._previous_broker_epoch = NOT_REGISTERED

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next :class:`TimePassed`, or None if there is no deadline."""
        deadlines = [self.phase.until_ms] if isinstance(self.phase, RegistrationDelayed | Pausing) else []
        if self.shutdown is not None and not self.shutdown.may_stop:
            deadlines.append(self.shutdown.deadline_ms)
        return min(deadlines, default=None)

    @property
    def is_registering(self) -> bool:
        """True if a registration is in progress or will be retried."""
        return isinstance(self.phase, Registering | RegistrationDelayed)

    @property
    def reported_offset(self) -> int:
        """The metadata offset that heartbeats report."""
        return self.applied_offset if self.is_serving else UNKNOWN_OFFSET

    @property
    def clean_shutdown_epoch(self) -> BrokerEpoch:
        """The broker epoch that a clean stop stores for the next start (KIP-966)."""
        return max(self.broker_epoch, self._previous_broker_epoch)

    def has_session(self, now_ms: int) -> bool:
        """Return True if no session of this broker can have ended without its knowledge.

        A process that was paused thus detects that it may have been replaced, before the controller reports it.
        """
        return now_ms < self.session.end_ms and self.reported_offset >= self.session.metadata_offset

    def step(self, event: Event, now_ms: int) -> list[Command]:
        """Process an event and return the commands in order."""
        match event:
            case Started():
                assert isinstance(self.phase, NotStarted), self.phase
                self._previous_broker_epoch = event.previous_broker_epoch
                return self._register(was_refused=False)
            case Registered():
                return self._registered(event.broker_epoch, now_ms)
            case HeartbeatAnswered():
                return self._heartbeat_answered(event, now_ms)
            case CallFailed():
                return self._call_failed(event.error, now_ms)
            case MetadataApplied():
                self.applied_offset = event.offset
                return []
            case ServingStarted():
                self.is_serving = True
                return self._heartbeat_at_once(now_ms)
            case HeartbeatRequested():
                return self._heartbeat_at_once(now_ms)
            case ShutdownRequested():
                return self._request_shutdown(event, now_ms)
            case TimePassed():
                return self._pass_time(now_ms)
            case _:
                assert_never(event)

    def check_invariants(self) -> None:
        """Assert the invariants."""
        is_known = isinstance(self.phase, SendingHeartbeat | Pausing)
        assert self.broker_epoch >= 0 or not is_known, f"{self.phase} without a registration"
        assert self.session == NO_SESSION or not (self.is_fenced or self.is_registering), self.session
        assert self.is_serving or self.reported_offset == UNKNOWN_OFFSET

    def _register(self, *, was_refused: bool) -> list[Command]:
        self.phase = Registering(was_refused)
        self.session = NO_SESSION
        return [Register(self._timings.call_timeout_ms)]

    def _registered(self, broker_epoch: BrokerEpoch, now_ms: int) -> list[Command]:
        assert isinstance(self.phase, Registering), self.phase
        self.broker_epoch = broker_epoch
        report = Report(Level.INFO, "Registered with broker epoch %d", (broker_epoch,))
        return [report, UseBrokerEpoch(broker_epoch), *self._send_heartbeat(now_ms)]

    def _send_heartbeat(self, now_ms: int) -> list[Command]:
        wants_shutdown = self.shutdown is not None
        self.phase = SendingHeartbeat(now_ms, wants_shutdown)
        timings = self._timings
        timeouts = timings.call_timeout_ms, timings.attempt_timeout_ms
        may_wait = self.shutdown is not None and now_ms < self.shutdown.waits_until_ms
        return [SendHeartbeat(self.broker_epoch, self.reported_offset, wants_shutdown, may_wait, *timeouts)]

    def _call_failed(self, error: TidelogError, now_ms: int) -> list[Command]:
        if isinstance(self.phase, Registering):
            return self._registration_failed(self.phase, error, now_ms)
        return self._heartbeat_failed(error, now_ms)

    def _registration_failed(self, phase: Registering, error: TidelogError, now_ms: int) -> list[Command]:
        if error.code not in _REGISTER_LATER:
            self.phase = Ended()
            return [End(error)]
        self.phase = RegistrationDelayed(now_ms + self._timings.registration_retry_ms)
        report = Report(Level.WARNING, "Registration failed, retrying: %s", (error,))
        return [*([] if phase.was_refused else [report]), *self._stop_without_handover(error)]

    def _heartbeat_failed(self, error: TidelogError, now_ms: int) -> list[Command]:
        phase = self.phase
        assert isinstance(phase, SendingHeartbeat), phase
        is_unknown = error.code in _REGISTER_AGAIN
        if is_unknown and self.shutdown is None:
            return [Report(Level.WARNING, "Registering again: %s", (error,)), *self._register(was_refused=False)]
        pause = self._pause(phase, self._timings.heartbeat_retry_ms, now_ms)
        if is_unknown or (phase.wants_shutdown and error.code in UNREACHABLE):
            return [*self._stop_without_handover(error), *pause]
        return [Report(Level.WARNING, "A heartbeat failed, retrying: %s", (error,)), *pause]

    def _heartbeat_answered(self, answer: HeartbeatAnswered, now_ms: int) -> list[Command]:
        phase = self.phase
        assert isinstance(phase, SendingHeartbeat), phase
        commands: list[Command] = []
        if answer.is_fenced != self.is_fenced:
            change = "fenced" if answer.is_fenced else "unfenced"
            commands.append(Report(Level.INFO, "The controller has %s this node", (change,)))
        self.is_fenced = answer.is_fenced
        self.known_offset = max(self.known_offset, answer.metadata_offset)
        self._prolong_session(answer, phase.sent_ms, now_ms)
        commands.append(HoldConnection(self.broker_epoch))
        if answer.should_shut_down:
            commands += self._stop(is_handed_over=True)
        return commands + self._pause(phase, self._next_pause_ms(), now_ms)

    def _prolong_session(self, answer: HeartbeatAnswered, sent_ms: int, now_ms: int) -> None:
        if answer.is_fenced:
            self.session = NO_SESSION
            return
        is_new = now_ms >= self.session.end_ms
        offset = answer.metadata_offset if is_new else self.session.metadata_offset
        self.session = Session(sent_ms + (answer.session_timeout_ms or math.inf), offset)

    def _next_pause_ms(self) -> int:
        timings, shutdown = self._timings, self.shutdown
        if shutdown is not None:
            doubled_ms = min(2 * shutdown.pause_ms, timings.longest_shutdown_heartbeat_ms)
            self.shutdown = replace(shutdown, pause_ms=doubled_ms)
            return shutdown.pause_ms
        return timings.heartbeat_retry_ms if self.is_fenced else timings.heartbeat_interval_ms

    def _pause(self, phase: SendingHeartbeat, pause_ms: int, now_ms: int) -> list[Command]:
        if phase.next_at_once:
            return self._send_heartbeat(now_ms)
        self.phase = Pausing(now_ms + min(pause_ms, self._timings.heartbeat_interval_ms))
        return []

    def _heartbeat_at_once(self, now_ms: int) -> list[Command]:
        if isinstance(self.phase, Pausing):
            return self._send_heartbeat(now_ms)
        if isinstance(self.phase, SendingHeartbeat):
            self.phase = SendingHeartbeat(self.phase.sent_ms, self.phase.wants_shutdown, next_at_once=True)
        return []

    def _request_shutdown(self, event: ShutdownRequested, now_ms: int) -> list[Command]:
        if self.shutdown is not None:
            return []
        wait_ms = event.timeout_ms * _WAITING_PERCENTAGE // 100 if event.may_wait else 0
        first_ms = self._timings.shutdown_heartbeat_ms
        self.shutdown = Shutdown(event.timeout_ms, now_ms + event.timeout_ms, now_ms + wait_ms, first_ms)
        if self.broker_epoch == NOT_REGISTERED or not self.is_serving:
            return self._stop(is_handed_over=False)
        return self._heartbeat_at_once(now_ms)

    def _stop(self, *, is_handed_over: bool) -> list[Command]:
        if self.shutdown is None or self.shutdown.may_stop:
            return []
        self.shutdown = replace(self.shutdown, may_stop=True)
        return [Stop(is_handed_over)]

    def _stop_without_handover(self, error: TidelogError) -> list[Command]:
        stop = self._stop(is_handed_over=False)
        text = "The leaderships cannot be moved, stopping anyway: %s"
        return [Report(Level.WARNING, text, (error,)), *stop] if stop else []

    def _pass_time(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        shutdown, phase = self.shutdown, self.phase
        if shutdown is not None and not shutdown.may_stop and now_ms >= shutdown.deadline_ms:
            text = "The controller did not move all leaderships within %.1f s; stopping anyway"
            commands += [Report(Level.WARNING, text, (shutdown.timeout_ms / 1000,)), *self._stop(is_handed_over=False)]
        if isinstance(phase, RegistrationDelayed) and now_ms >= phase.until_ms:
            commands += self._register(was_refused=True)
        elif isinstance(phase, Pausing) and now_ms >= phase.until_ms:
            commands += self._send_heartbeat(now_ms)
        return commands
