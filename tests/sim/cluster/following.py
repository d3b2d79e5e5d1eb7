"""The metadata that a simulated node follows: the product's cores on both sides, on streams that break.

A controller's feed gives the responses, one for each call; now and then the connection breaks between two that belong
together. One of these lasts for one life of the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from raft_properties import require
from random_numbers import mix

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_node.broker import image_application, metadata_stream
from tidelog_node.broker.image_application import ImageApplication
from tidelog_node.broker.lifecycle import HeartbeatRequested, MetadataApplied, ServingStarted
from tidelog_node.broker.metadata_stream import EntryPart, MetadataStream, Responded, StreamEnded, StreamTimings
from tidelog_node.broker.report import Report
from tidelog_node.server.metadata_follower import built_image
from tidelog_quorum.controller.feed import FeedResponse
from tidelog_quorum.metadata.image import MetadataImage

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess

_TIMINGS = StreamTimings(silence_ms=450, pause_ms=20, max_pause_ms=100)
_CALL_MS = 60_000
"""Longer than the silence after which the core turns to the next controller."""
_BREAKS_ONE_IN = 5
_OPENING_MS = 2


class Following:
    """The shell of one life's :class:`MetadataStream` and :class:`ImageApplication`."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        addresses = [f"controller:{number}" for number in node.controllers]
        self._stream = MetadataStream(node.identity, {}, addresses, _TIMINGS)
        self._application = ImageApplication(node.identity, node.standing.incarnation)
        self._image = MetadataImage()
        self._responses: deque[Responded | StreamEnded] = deque()
        self._from_offset: int | None = None
        self._count = 0
        self._controller = 0
        self._turn = 0
        self._timer_ms: int | None = None

    def begin(self) -> None:
        """Follow the metadata from now on."""
        self._node.soon(self._step, metadata_stream.Started())

    def note_registration(self, broker_epoch: BrokerEpoch) -> None:
        """There is a broker epoch."""
        self._tell(image_application.Registered(broker_epoch))

    def _step(self, event: metadata_stream.Event) -> None:
        node, stream = self._node, self._stream
        commands = stream.step(event, node.monotonic_ms())
        if node.checks_invariants:
            stream.check_invariants()
        for command in commands:
            self._perform(command)
        deadline_ms = stream.next_deadline_ms
        if deadline_ms is not None and (self._timer_ms is None or deadline_ms < self._timer_ms):
            self._set_timer(deadline_ms)

    def _set_timer(self, deadline_ms: int) -> None:
        node = self._node
        self._timer_ms = deadline_ms
        node.world.at(node.due_us(deadline_ms), node.enter, node.life, self._wake, deadline_ms)

    def _wake(self, deadline_ms: int) -> None:
        if self._timer_ms == deadline_ms:
            self._timer_ms = None
            self._step(metadata_stream.TimePassed())

    def _perform(self, command: metadata_stream.Command) -> None:
        match command:
            case metadata_stream.OpenStream():
                self._turn += 1
                self._controller = int(command.address.rpartition(":")[2])
                self._from_offset = command.from_offset
                self._responses.clear()
                self._read(self._turn)
            case metadata_stream.CloseStream():
                self._turn += 1
            case metadata_stream.BuildImage() | metadata_stream.AdvanceImage():
                self._node.soon(self._built, self._turn, built_image(self._image, command))
            case metadata_stream.End():
                raise command.error
            case metadata_stream.UseLeader() | metadata_stream.UseVoters() | Report():
                pass
            case _:
                assert_never(command)

    def _built(self, turn: int, image: MetadataImage) -> None:
        is_of_log = image == self._node.checker.metadata.images[image.offset]
        text = f"node {self._node.number} has another image at {image.offset} than the controllers"
        require(is_of_log, "ImageOfLog", text)
        self._image = image
        self._tell(image_application.ImageReceived(image))
        self._step(metadata_stream.ImageBuilt(image.offset))
        self._read(turn)

    def _read(self, turn: int) -> None:
        """Give the core the next response of a stream, when it is there."""
        if turn != self._turn:
            return
        if not self._responses:
            self._ask(turn)
            return
        self._step(self._responses.popleft())
        is_building = self._stream.next_deadline_ms is None
        if not is_building:
            self._node.soon(self._read, turn)

    def _ask(self, turn: int) -> None:
        node, from_offset = self._node, self._from_offset
        self._from_offset = None

        def take(response: FeedResponse | None) -> None:
            if turn == self._turn:
                self._responses.extend(self._received(response))
                self._read(turn)

        stream = node.number, node.life, turn
        controller = node.world.processes[self._controller]
        node.call(controller, "follow_metadata", (stream, from_offset), take, _CALL_MS)

    def _received(self, response: FeedResponse | None) -> Iterator[Responded | StreamEnded]:
        """Yield a response, and now and then an end of the stream where more of the same must follow."""
        if response is None:
            yield _broken()
            return
        self._count += 1
        entries = tuple(EntryPart(e.offset, e.epoch, e.batch, e.is_continued) for e in response.entries)
        is_snapshot, is_begun = bool(response.snapshot_begin), any(e.is_continued for e in entries)
        yield Responded(BrokerId(response.leader_id), entries, None, is_snapshot, response.snapshot_end)
        is_begun = is_begun or (is_snapshot and not response.snapshot_end)
        if is_begun and mix(self._node.world.seed, self._node.number, self._count) % _BREAKS_ONE_IN == 0:
            yield _broken()

    def _tell(self, event: image_application.Event) -> None:
        commands = self._application.step(event)
        if self._node.checks_invariants:
            self._application.check_invariants()
        for command in commands:
            self._apply(command)

    def _apply(self, command: image_application.Command) -> None:
        node = self._node
        match command:
            case image_application.ChangeReplicas():
                node.after(node.topology.apply_ms, self._change_replicas, command)
            case image_application.ReportOffset():
                node.standing.step(MetadataApplied(command.offset))
            case image_application.RequestHeartbeat():
                node.standing.step(HeartbeatRequested())
            case image_application.DiscardUnknown():
                node.replicas.discard_unknown()
                node.after(_OPENING_MS + node.topology.apply_ms, node.standing.step, ServingStarted())
            case image_application.End():
                raise command.error
            case image_application.PublishBrokers() | image_application.ChangeSettings() | image_application.Publish():
                pass
            case _:
                assert_never(command)

    def _change_replicas(self, command: image_application.ChangeReplicas) -> None:
        self._node.replicas.apply(command.image)
        self._tell(image_application.ReplicasChanged())


def _broken() -> StreamEnded:
    return StreamEnded(error_for(ErrorCode.NETWORK_EXCEPTION, "the connection is gone"))
