"""A broker's call breaks: what the controller asks at its listeners, and what it makes of the answers."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from topic_ids import SequentialTopicIds

from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.connections import (
    Answer,
    Broker,
    BrokerConnections,
    CallBroken,
    CallEnded,
    CallOpened,
    Command,
    Connect,
    Connected,
    Event,
    FindListeners,
    ListenersFound,
    Pause,
    PauseEnded,
    Report,
    Reported,
)
from tidelog_quorum.controller.sessions import BrokerRefused
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord

REFUSED, HEARD, NONE = Answer.REFUSED, Answer.ACCEPTED, Answer.NONE
ORIGIN = ip_address("10.0.0.7")
PORTS = [9092, 9093]


class World:
    """Brokers 1 to 40 are registered and serve; broker 7 is examined."""

    def __init__(self) -> None:
        self.controller = Controller(ControllerConfig("c1"), SequentialTopicIds())
        for number in range(1, 41):
            endpoint = Endpoint("h", number)
            record = RegisterBrokerRecord(BrokerId(number), b"i" * 16, BrokerEpoch(number), endpoint, fenced=False)
            self.controller.replay(number, 1, [record])
        self.core = BrokerConnections(self.controller)
        self.now_ms = 5
        self.calls = 0

    def step(self, event: Event) -> list[Command]:
        commands = self.core.step(event, self.now_ms)
        self.core.check_invariants()
        return commands

    def hold(self, broker: Broker) -> int:
        self.calls += 1
        assert self.step(CallOpened(self.calls, broker, ORIGIN)) == []
        return self.calls

    def answer(self, *answers: Answer) -> list[Command]:
        """Answer an attempt after the other at both ports, with the pauses in between."""
        for answer in answers:
            commands = self.step(Connected(SEVEN, [answer, REFUSED]))
            if commands == [Pause(SEVEN, 30)]:
                commands = self.step(PauseEnded(SEVEN))
        return commands

    def begin(self) -> None:
        registration = self.controller.committed.brokers[SEVEN[0]]
        assert self.step(CallBroken(self.hold(SEVEN))) == [FindListeners(SEVEN, ORIGIN, registration)]
        assert self.step(ListenersFound(SEVEN, PORTS)) == [Connect(SEVEN, ORIGIN, PORTS)]


SEVEN: Broker = (BrokerId(7), BrokerEpoch(7))
REPORT = Report(BrokerRefused(*SEVEN, since_ms=5), ORIGIN, PORTS)


@pytest.fixture
def world() -> World:
    return World()


def test_broker_is_reported_when_all_its_listeners_refuse_several_times_in_a_row(world: World) -> None:
    world.begin()
    assert world.answer(REFUSED, REFUSED) == [Connect(SEVEN, ORIGIN, PORTS)]
    world.now_ms = 99
    assert world.answer(REFUSED) == [REPORT]
    assert world.step(Reported(SEVEN, is_settled=True)) == []


def test_refusals_count_anew_after_a_listener_is_heard(world: World) -> None:
    world.begin()
    assert world.answer(REFUSED, REFUSED, HEARD, REFUSED, REFUSED) == [Connect(SEVEN, ORIGIN, PORTS)]
    assert world.answer(REFUSED) == [REPORT]


@pytest.mark.parametrize("answers", [[NONE], [REFUSED, REFUSED, NONE], [HEARD] * 12])
def test_silence_or_a_listener_that_stays_open_ends_the_examination(world: World, answers: list[Answer]) -> None:
    world.begin()
    assert world.answer(*answers) == []
    world.begin()


def test_broker_is_examined_again_when_the_controller_has_heard_of_it_since(world: World) -> None:
    world.begin()
    for _ in range(2):
        world.answer(REFUSED, REFUSED, REFUSED)
        assert world.step(Reported(SEVEN, is_settled=False)) != []
        world.step(ListenersFound(SEVEN, PORTS))
    assert isinstance(world.answer(REFUSED, REFUSED, REFUSED)[0], Report)
    assert world.step(Reported(SEVEN, is_settled=False)) == [], "three rounds are enough"


def test_broker_that_holds_another_call_is_not_reported(world: World) -> None:
    world.begin()
    world.hold(SEVEN)
    assert world.answer(REFUSED, REFUSED, REFUSED) == []


def test_call_that_was_replaced_or_ended_by_the_controller_says_nothing(world: World) -> None:
    earlier, later = world.hold(SEVEN), world.hold(SEVEN)
    assert world.step(CallBroken(earlier)) == []
    assert world.core.has_call(*SEVEN)
    assert world.step(CallEnded(later)) == []
    assert not world.core.has_call(*SEVEN)


def test_broker_of_another_registration_or_without_a_listener_there_is_left_alone(world: World) -> None:
    assert world.step(CallBroken(world.hold((BrokerId(7), BrokerEpoch(6))))) == []
    assert world.step(CallBroken(world.hold((BrokerId(99), BrokerEpoch(7))))) == []
    world.step(CallBroken(world.hold(SEVEN)))
    assert world.step(ListenersFound(SEVEN, [])) == []
    world.controller.replay(41, 1, [BrokerRegistrationChangeRecord(SEVEN[0], SEVEN[1], fenced=True)])
    assert world.step(CallBroken(world.hold(SEVEN))) == []


def test_broker_is_examined_once_at_a_time(world: World) -> None:
    world.begin()
    assert world.step(CallBroken(world.hold(SEVEN))) == []


def test_few_brokers_are_examined_at_once_and_the_others_wait(world: World) -> None:
    begun = [c for n in range(1, 41) for c in world.step(CallBroken(world.hold((BrokerId(n), BrokerEpoch(n)))))]
    assert len(begun) == 32
    [following] = world.step(ListenersFound((BrokerId(1), BrokerEpoch(1)), []))
    assert isinstance(following, FindListeners)
    assert following.broker == (33, 33)
