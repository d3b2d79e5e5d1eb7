"""The rules by which images reach a node's replicas and handlers, as scenarios of events and commands."""

from __future__ import annotations

from typing import Any

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node.broker.image_application import (
    ChangeReplicas,
    ChangeSettings,
    Command,
    DiscardUnknown,
    End,
    Event,
    ImageApplication,
    ImageReceived,
    Publish,
    PublishBrokers,
    Registered,
    ReplicasChanged,
    ReportOffset,
    RequestHeartbeat,
)
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord

OWN, OTHER = b"i" * 16, b"x" * 16
NODE = BrokerId(7)


class Node:
    """An application whose core is checked after every step."""

    def __init__(self) -> None:
        self.core = ImageApplication(NODE, OWN)

    def tell(self, event: Event) -> list[Command]:
        commands = self.core.step(event)
        self.core.check_invariants()
        return commands


def image(before: MetadataImage, *records: Any) -> MetadataImage:
    return before.apply(max(1, before.offset + 1), 1, records)


def registered_in(before: MetadataImage, epoch: int, incarnation: bytes = OWN) -> MetadataImage:
    return image(before, RegisterBrokerRecord(NODE, incarnation, BrokerEpoch(epoch), Endpoint("h", 1)))


def stands(before: MetadataImage, *, fenced: bool) -> MetadataImage:
    return image(before, BrokerRegistrationChangeRecord(NODE, before.brokers[NODE].broker_epoch, fenced=fenced))


def begun(before: MetadataImage, after: MetadataImage) -> list[Command]:
    return [PublishBrokers(after), ChangeSettings(after), ChangeReplicas(before, after)]


def test_image_is_applied_once_this_process_is_registered_in_it_and_knows_it() -> None:
    node = Node()
    first = registered_in(MetadataImage(), 1)
    assert node.tell(ImageReceived(first)) == [], "it may be the registration of an earlier start"
    assert node.tell(Registered(BrokerEpoch(2))) == []
    second = registered_in(first, 2)
    assert node.tell(ImageReceived(second)) == begun(MetadataImage(), second)


def test_registration_that_is_known_after_its_record_begins_the_image() -> None:
    node = Node()
    first = registered_in(MetadataImage(), 1)
    node.tell(ImageReceived(first))
    assert node.tell(Registered(BrokerEpoch(1))) == begun(MetadataImage(), first)


def test_first_image_discards_unknown_logs_before_handlers_see_it() -> None:
    node = Node()
    node.tell(Registered(BrokerEpoch(1)))
    first = registered_in(MetadataImage(), 1)
    node.tell(ImageReceived(first))
    assert not node.core.is_current
    assert node.tell(ReplicasChanged()) == [ReportOffset(1), DiscardUnknown(), Publish(first)]
    assert node.core.is_current
    second = image(first)
    node.tell(ImageReceived(second))
    assert node.tell(ReplicasChanged()) == [ReportOffset(2), Publish(second)]


def test_images_that_come_while_one_is_applied_become_one_step() -> None:
    node = Node()
    node.tell(Registered(BrokerEpoch(1)))
    first = registered_in(MetadataImage(), 1)
    node.tell(ImageReceived(first))
    second = image(first)
    third = image(second)
    assert node.tell(ImageReceived(second)) == node.tell(ImageReceived(third)) == []
    assert node.core.applied == MetadataImage()
    assert node.tell(ReplicasChanged())[-3:] == begun(first, third)
    assert node.core.applied is first


def test_process_that_is_fenced_and_lives_asks_for_a_heartbeat() -> None:
    node = Node()
    node.tell(Registered(BrokerEpoch(1)))
    current = registered_in(MetadataImage(), 1)
    node.tell(ImageReceived(current))
    assert RequestHeartbeat() not in node.tell(ReplicasChanged()), "a node that has just registered is fenced"
    for fenced in (False, True, True, False):
        current = stands(current, fenced=fenced) if fenced != current.brokers[NODE].fenced else image(current)
        was_unfenced = not node.core.applied.brokers[NODE].fenced
        node.tell(ImageReceived(current))
        assert (RequestHeartbeat() in node.tell(ReplicasChanged())) == (was_unfenced and fenced)


def test_process_ends_when_another_one_has_registered_with_its_id() -> None:
    node = Node()
    node.tell(Registered(BrokerEpoch(1)))
    first = registered_in(MetadataImage(), 1)
    node.tell(ImageReceived(first))
    node.tell(ReplicasChanged())
    [end] = node.tell(ImageReceived(registered_in(first, 2, OTHER)))
    assert isinstance(end, End)
    assert isinstance(end.error, TidelogError)
    assert end.error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
