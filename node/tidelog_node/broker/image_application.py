"""Metadata images on their way to a node's replicas and handlers, as a pure state machine.

- Only an image with this process's own registration is applied. An older one may still say that the node leads
  partitions that it led in an earlier life. A later one speaks of another process that has taken the node's id; this
  process then ends, for what the node leads is led there.
- One image is applied at a time, and after it the newest one: many entries in a row become one step.
- The order of an image: the addresses of brokers, which followers look up as soon as they start; the settings; the
  replicas; what heartbeats report; the handlers. With the first image the logs that it does not name are set aside
  before handlers see it.
- A process that stood unfenced in the image before and stands fenced in this one asks for a heartbeat: it lives and
  was fenced all the same, after a pause or by mistake, and need not be so until the next heartbeat is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_node.broker.lifecycle import NOT_REGISTERED
from tidelog_quorum.metadata import MetadataImage


@dataclass(frozen=True, slots=True)
class Registered:
    """This process has a broker epoch. The record of it may have come before."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class ImageReceived:
    """The newest committed image."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """The last :class:`ChangeReplicas` is done."""


Event: TypeAlias = Registered | ImageReceived | ReplicasChanged


@dataclass(frozen=True, slots=True)
class PublishBrokers:
    """Make the brokers' addresses and the topics' ids known."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Take over the settings of an image."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ChangeReplicas:
    """Bring the replicas from one image to another; answer with :class:`ReplicasChanged`."""

    before: MetadataImage
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ReportOffset:
    """The replicas have reached this metadata offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class RequestHeartbeat:
    """The controller has fenced this process, which lives."""


@dataclass(frozen=True, slots=True)
class DiscardUnknown:
    """Set aside the logs of an earlier run that no image has named so far."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Give the image to the handlers."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class End:
    """This process must not go on."""

    error: TidelogError


Command: TypeAlias = (
    PublishBrokers | ChangeSettings | ChangeReplicas | ReportOffset | RequestHeartbeat | DiscardUnknown | Publish | End
)


class ImageApplication:
    """One per process. ``applied`` is the image that the replicas have reached."""

    def __init__(self, broker_id: BrokerId, incarnation_id: bytes) -> None:
        self.applied = MetadataImage()
        self.is_current = False
        """True if an image has been applied."""
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._broker_epoch = NOT_REGISTERED
        self._received = self.applied
        self._under_way: MetadataImage | None = None

    def step(self, event: Event) -> list[Command]:
        """Take in an event, and return what is to be done, in its order; time does not matter."""
        match event:
            case Registered():
                self._broker_epoch = event.broker_epoch
                return self._begin()
            case ImageReceived():
                assert event.image.offset > self._received.offset, "images come in their order"
                self._received = event.image
                return self._begin()
            case ReplicasChanged():
                return [*self._finish(), *self._begin()]
            case _:
                assert_never(event)

    def check_invariants(self) -> None:
        """Assert what must always hold."""
        assert self.applied.offset <= self._received.offset
        assert self._under_way is None or self.applied.offset < self._under_way.offset
        own = self.applied.brokers.get(self._broker_id)
        assert not self.is_current or (own is not None and own.incarnation_id == self._incarnation_id)

    def _begin(self) -> list[Command]:
        image = self._received
        if self._under_way is not None or image is self.applied or not self._is_registered(image):
            return []
        own = image.brokers[self._broker_id]
        if own.incarnation_id != self._incarnation_id:
            text = f"another process has registered as node {self._broker_id}, at {own.endpoint}: this one must stop"
            return [End(error_for(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text))]
        self._under_way = image
        return [PublishBrokers(image), ChangeSettings(image), ChangeReplicas(self.applied, image)]

    def _finish(self) -> list[Command]:
        before, image = self.applied, self._under_way
        assert image is not None, "no image is being applied"
        is_first, self.is_current = not self.is_current, True
        self.applied, self._under_way = image, None
        commands: list[Command] = [ReportOffset(image.offset)]
        if self._is_unfenced(before) and not self._is_unfenced(image):
            commands.append(RequestHeartbeat())
        if is_first:
            commands.append(DiscardUnknown())
        return [*commands, Publish(image)]

    def _is_registered(self, image: MetadataImage) -> bool:
        """Return whether an image has this process's registration, or a later one of the node."""
        own = image.brokers.get(self._broker_id)
        is_registered = self._broker_epoch != NOT_REGISTERED
        return is_registered and own is not None and own.broker_epoch >= self._broker_epoch

    def _is_unfenced(self, image: MetadataImage) -> bool:
        broker = image.brokers.get(self._broker_id)
        return broker is not None and not broker.fenced
