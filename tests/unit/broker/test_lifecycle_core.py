"""The rules of a broker's registration, heartbeats, session and shutdown, as scenarios of events and commands."""

from __future__ import annotations

import dataclasses

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch
from tidelog_node.broker.lifecycle import (
    CallFailed,
    Command,
    End,
    Event,
    HeartbeatAnswered,
    HeartbeatRequested,
    HoldConnection,
    Lifecycle,
    LifecycleTimings,
    MetadataApplied,
    Register,
    Registered,
    SendHeartbeat,
    ServingStarted,
    ShutdownRequested,
    Started,
    Stop,
    TimePassed,
    UseBrokerEpoch,
)
from tidelog_node.broker.report import Report

FENCED = HeartbeatAnswered(is_fenced=True, should_shut_down=False, session_timeout_ms=9_000, metadata_offset=5)
ALIVE = dataclasses.replace(FENCED, is_fenced=False)
TIMED_OUT = CallFailed(error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered"))


class Broker:
    """A lifecycle with its clock; commands other than reports are returned, reports are kept as text."""

    def __init__(self, **timings: int) -> None:
        self.core = Lifecycle(LifecycleTimings(**{"heartbeat_interval_ms": 2_000} | timings))
        self.now_ms = 1_000
        self.reports: list[str] = []

    def tell(self, event: Event) -> list[Command]:
        commands = self.core.step(event, self.now_ms)
        self.core.check_invariants()
        self.reports += [c.text % c.arguments for c in commands if isinstance(c, Report)]
        return [c for c in commands if not isinstance(c, Report)]

    def pass_time(self, ms: int) -> list[Command]:
        self.now_ms += ms
        return self.tell(TimePassed())

    def wait(self) -> list[Command]:
        """Let time pass until the next deadline."""
        assert self.core.next_deadline_ms is not None
        return self.pass_time(self.core.next_deadline_ms - self.now_ms)

    def heartbeat(self) -> SendHeartbeat:
        [command] = self.wait()
        assert isinstance(command, SendHeartbeat)
        return command


def failed(code: ErrorCode) -> CallFailed:
    return CallFailed(error_for(code, f"{code.name} for the test"))


def registered(epoch: int = 7, *, serving: bool = True, previous: int = -1, **timings: int) -> Broker:
    """Return a broker whose first heartbeat is under way."""
    broker = Broker(**timings)
    broker.tell(Started(BrokerEpoch(previous)))
    broker.tell(Registered(BrokerEpoch(epoch)))
    if serving:
        broker.tell(MetadataApplied(epoch))
        broker.tell(ServingStarted())
        broker.tell(FENCED)
    return broker


def alive(**timings: int) -> Broker:
    """Return a broker that is unfenced and pauses before its next heartbeat."""
    broker = registered(**timings)
    broker.tell(ALIVE)
    return broker


def test_lifecycle_sends_the_first_heartbeat_at_once_when_it_is_registered() -> None:
    broker = Broker()
    assert broker.core.next_deadline_ms is None
    assert broker.tell(Started(BrokerEpoch(-1))) == [Register(4_000)]
    commands = broker.tell(Registered(BrokerEpoch(7)))
    assert commands == [UseBrokerEpoch(BrokerEpoch(7)), SendHeartbeat(BrokerEpoch(7), -1, False, False, 4_000, 2_000)]
    assert broker.reports == ["Registered with broker epoch 7"]


def test_lifecycle_tries_to_register_again_after_a_refusal_that_ends_and_reports_it_once() -> None:
    broker = Broker()
    broker.tell(Started(BrokerEpoch(-1)))
    for code in (
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ):
        assert broker.tell(failed(code)) == []
        assert broker.core.next_deadline_ms == broker.now_ms + 250
        assert broker.pass_time(249) == []
        assert broker.pass_time(1) == [Register(4_000)]
    assert len(broker.reports) == 1


def test_lifecycle_ends_when_it_is_refused_for_good() -> None:
    broker = Broker()
    broker.tell(Started(BrokerEpoch(-1)))
    [end] = broker.tell(failed(ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert isinstance(end, End)
    assert isinstance(end.error, TidelogError)
    assert broker.core.next_deadline_ms is None


def test_heartbeat_reports_no_metadata_before_clients_are_served() -> None:
    broker = registered(serving=False)
    broker.tell(FENCED)
    broker.tell(MetadataApplied(9))
    assert broker.heartbeat().metadata_offset == -1
    broker.tell(FENCED)
    [command] = broker.tell(ServingStarted())
    assert isinstance(command, SendHeartbeat)
    assert command.metadata_offset == 9


@pytest.mark.parametrize(
    ("answer", "pause_ms"), [(FENCED, 250), (ALIVE, 2_000), (TIMED_OUT, 250)], ids=["fenced", "unfenced", "no answer"]
)
def test_heartbeat_follows_after_a_pause_by_what_was_answered(answer: Event, pause_ms: int) -> None:
    broker = registered(serving=False)
    broker.tell(answer)
    assert broker.pass_time(pause_ms - 1) == []
    assert len(broker.pass_time(1)) == 1


def test_no_pause_is_longer_than_the_interval_of_heartbeats() -> None:
    broker = registered(serving=False, heartbeat_interval_ms=40)
    broker.tell(FENCED)
    assert broker.core.next_deadline_ms == broker.now_ms + 40


def test_requested_heartbeat_ends_the_pause_or_the_next_one_when_a_call_is_under_way() -> None:
    broker = alive()
    [first] = broker.tell(HeartbeatRequested())
    assert isinstance(first, SendHeartbeat)
    assert broker.tell(HeartbeatRequested()) == []
    _, second = broker.tell(ALIVE)
    assert isinstance(second, SendHeartbeat)
    assert broker.tell(ALIVE) == [HoldConnection(BrokerEpoch(7))]
    assert broker.core.next_deadline_ms == broker.now_ms + 2_000


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_lifecycle_registers_again_and_has_no_session_when_its_epoch_is_not_known(code: ErrorCode) -> None:
    broker = alive()
    assert broker.core.has_session(broker.now_ms)
    broker.heartbeat()
    assert broker.tell(failed(code)) == [Register(4_000)]
    assert not broker.core.has_session(broker.now_ms)
    _, heartbeat = broker.tell(Registered(BrokerEpoch(12)))
    assert isinstance(heartbeat, SendHeartbeat)
    assert heartbeat.broker_epoch == 12


def test_session_lasts_from_when_the_heartbeat_was_sent() -> None:
    broker = registered()
    sent_ms = broker.now_ms
    broker.now_ms += 3_000
    broker.tell(ALIVE)
    assert broker.core.has_session(sent_ms + 8_999)
    assert not broker.core.has_session(sent_ms + 9_000)


def test_session_that_began_anew_is_usable_once_the_metadata_up_to_its_begin_is_applied() -> None:
    broker = alive()
    broker.heartbeat()
    broker.tell(dataclasses.replace(ALIVE, metadata_offset=20))
    assert broker.core.has_session(broker.now_ms), "the broker cannot have been fenced in between"
    broker.now_ms += 9_000
    broker.tell(TimePassed())
    broker.tell(dataclasses.replace(ALIVE, metadata_offset=20))
    assert not broker.core.has_session(broker.now_ms), "the broker may have been fenced in between"
    broker.tell(MetadataApplied(20))
    assert broker.core.has_session(broker.now_ms)


def test_fenced_broker_has_no_session() -> None:
    broker = alive()
    broker.heartbeat()
    broker.tell(FENCED)
    assert not broker.core.has_session(broker.now_ms)
    assert broker.reports[-2:] == ["The controller has unfenced this node", "The controller has fenced this node"]


def test_shutdown_waits_until_the_controller_says_that_the_broker_leads_nothing() -> None:
    broker = alive()
    [first] = broker.tell(ShutdownRequested(60_000))
    assert isinstance(first, SendHeartbeat)
    assert first.wants_shutdown
    assert broker.tell(ALIVE) == [HoldConnection(BrokerEpoch(7))]
    assert broker.core.next_deadline_ms == broker.now_ms + 10
    assert broker.heartbeat().wants_shutdown
    assert Stop(is_handed_over=True) in broker.tell(dataclasses.replace(FENCED, should_shut_down=True))
    broker.heartbeat()
    assert broker.tell(TIMED_OUT) == [], "a broker stops once"


def test_shutdown_asks_again_after_pauses_that_double_up_to_the_longest() -> None:
    broker = alive()
    broker.tell(ShutdownRequested(60_000))
    pauses = []
    for _ in range(6):
        broker.tell(ALIVE)
        assert broker.core.next_deadline_ms is not None
        pauses.append(broker.core.next_deadline_ms - broker.now_ms)
        assert broker.heartbeat().wants_shutdown
    assert pauses == [10, 20, 40, 80, 100, 100]


def test_shutdown_may_wait_for_replicas_in_the_first_part_of_its_time() -> None:
    broker = alive()
    [first] = broker.tell(ShutdownRequested(10_000, may_wait=True))
    assert isinstance(first, SendHeartbeat)
    assert (first.wants_shutdown, first.shutdown_may_wait) == (True, True)
    broker.tell(ALIVE)
    assert broker.heartbeat().shutdown_may_wait
    broker.tell(ALIVE)
    [last] = broker.pass_time(7_000)
    assert isinstance(last, SendHeartbeat)
    assert (last.wants_shutdown, last.shutdown_may_wait) == (True, False)


def test_shutdown_after_a_failure_does_not_wait_for_replicas() -> None:
    broker = alive()
    [first] = broker.tell(ShutdownRequested(10_000))
    assert isinstance(first, SendHeartbeat)
    assert not first.shutdown_may_wait


def test_shutdown_that_is_asked_for_during_a_heartbeat_is_in_the_next_one() -> None:
    broker = alive()
    broker.heartbeat()
    assert broker.tell(ShutdownRequested(60_000)) == []
    *_, following = broker.tell(TIMED_OUT)
    assert isinstance(following, SendHeartbeat), "the heartbeat that failed did not ask for a shutdown"
    assert following.wants_shutdown


def test_shutdown_ends_at_its_deadline_while_a_call_is_under_way() -> None:
    broker = alive()
    broker.tell(ShutdownRequested(500))
    assert broker.pass_time(499) == []
    assert broker.pass_time(1) == [Stop(is_handed_over=False)]
    assert broker.reports[-1] == "The controller did not move all leaderships within 0.5 s; stopping anyway"
    assert broker.core.next_deadline_ms is None


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH])
def test_shutdown_stops_without_a_controller_that_could_move_leaderships(code: ErrorCode) -> None:
    broker = alive()
    broker.tell(ShutdownRequested(60_000))
    assert broker.tell(failed(code)) == [Stop(is_handed_over=False)]
    assert "stopping anyway" in broker.reports[-1]


def test_shutdown_that_is_asked_for_during_a_heartbeat_stops_when_the_registration_is_gone() -> None:
    broker = alive()
    broker.heartbeat()
    assert broker.tell(ShutdownRequested(60_000)) == []
    assert Stop(is_handed_over=False) in broker.tell(failed(ErrorCode.STALE_BROKER_EPOCH))
    assert broker.core.is_registering is False


def test_shutdown_stops_when_the_broker_cannot_register_again() -> None:
    broker = alive()
    broker.heartbeat()
    broker.tell(failed(ErrorCode.STALE_BROKER_EPOCH))
    assert broker.tell(ShutdownRequested(60_000)) == []
    assert broker.tell(TIMED_OUT) == [Stop(is_handed_over=False)]


@pytest.mark.parametrize("is_registered", [False, True])
def test_shutdown_of_a_broker_that_serves_nobody_stops_at_once(is_registered: bool) -> None:
    broker = registered(serving=False) if is_registered else Broker()
    assert broker.tell(ShutdownRequested(60_000)) == [Stop(is_handed_over=False)]


def test_clean_shutdown_epoch_is_that_of_the_last_registration() -> None:
    broker = Broker()
    broker.tell(Started(BrokerEpoch(5)))
    assert broker.core.clean_shutdown_epoch == 5
    broker.tell(Registered(BrokerEpoch(9)))
    assert broker.core.clean_shutdown_epoch == 9


@pytest.mark.parametrize(("interval_ms", "attempt_ms"), [(20, 500), (300, 900), (2_000, 2_000)])
def test_heartbeat_waits_for_one_controller_no_longer_than_for_a_few_heartbeats(
    interval_ms: int, attempt_ms: int
) -> None:
    assert LifecycleTimings(interval_ms).attempt_timeout_ms == attempt_ms
