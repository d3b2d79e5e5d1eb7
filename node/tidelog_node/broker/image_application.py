"""The application of metadata images to a node's replicas and handlers, as a pure state machine.

- Only an image with this process's own registration is applied. An older one may still name this node as leader of
  partitions that it led before a restart. A later one has the registration of another process with the same id; this
  process then ends, since that process leads the node's partitions.
- One image is applied at a time, followed by the newest one, so that many entries in a row become one step.
- An image is applied in this order: brokers' addresses, which followers look up as soon as they start; settings;
  replicas; the offset that heartbeats report; handlers. With the first image, logs that it does not name become stray
  before handlers see it.
- A process that was unfenced in the previous image and is fenced in this one requests a heartbeat. It was fenced
  although it is alive, after a pause or by mistake, and should not stay so until the next regular heartbeat.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_node.broker.lifecycle import NOT_REGISTERED
from tidelog_quorum.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class Registered:
    """This process has a broker epoch. The metadata may have shown its record before."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class ImageReceived:
    """The newest committed image."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """The last :class:`ChangeReplicas` is complete."""


Event: TypeAlias = Registered | ImageReceived | ReplicasChanged


@dataclass(frozen=True, slots=True)
class PublishBrokers:
    """Publish the brokers' addresses and the topics' ids."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Apply the settings of an image."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ChangeReplicas:
    """Change the replicas from one image to another. The answer is :class:`ReplicasChanged`."""

    before: MetadataImage
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ReportOffset:
    """The replicas have reached this metadata offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class RequestHeartbeat:
    """Request a heartbeat, since the controller has fenced this live process."""


@dataclass(frozen=True, slots=True)
class DiscardUnknown:
    """Rename the logs of an earlier run that no image has named so far to stray."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the image to the handlers."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class End:
    """End this process."""

    error: TidelogError


Command: TypeAlias = (
    PublishBrokers | ChangeSettings | ChangeReplicas | ReportOffset | RequestHeartbeat | DiscardUnknown | Publish | End
)


class ImageApplication:
    """Applies one image at a time. ``applied`` is the image that the replicas have reached."""

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
        """Process an event and return the commands in order."""
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
        """Assert the invariants."""
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
            text = f"another process has registered as node {self._broker_id}, at {own.endpoint}, so this process stops"
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
        """Return True if an image has this process's registration, or a later one of the node."""
        own = image.brokers.get(self._broker_id)
        is_registered = self._broker_epoch != NOT_REGISTERED
        return is_registered and own is not None and own.broker_epoch >= self._broker_epoch

    def _is_unfenced(self, image: MetadataImage) -> bool:
        broker = image.brokers.get(self._broker_id)
        return broker is not None and not broker.fenced
