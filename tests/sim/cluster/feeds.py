"""The shell of a simulated controller's metadata feed: a stream is a call per response, the product decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from random_numbers import mix
from sim.cluster.world import OnAnswer

from tidelog_quorum.controller import feed as core
from tidelog_quorum.metadata.batches import encode_batches
from tidelog_quorum.metadata.image import MetadataImage

if TYPE_CHECKING:
    from sim.cluster.controllers import ControllerProcess

IDLE_MS = 250
"""The interval of an idle stream's signs of life."""
_BATCH_BYTES = 150
_MAX_ENCODING_MS = 3
_LIMITS = (core.FeedLimits(), core.FeedLimits(3, 1_000, 60), core.FeedLimits(20, 400, 100))
"""Of the product, and so small that parts and snapshots are the rule."""

Stream = tuple[int, int, int]
"""A node, its life, and how many streams it has opened in it."""


class Feed:
    """Of one life of a controller."""

    def __init__(self, process: ControllerProcess) -> None:
        self._process = process
        self.core = core.MetadataFeed(_LIMITS[mix(process.world.seed, 7) % len(_LIMITS)])
        self._followers: dict[Stream, int] = {}
        self._answers: dict[int, OnAnswer] = {}
        self._images: dict[int, MetadataImage] = {}
        self._count = 0

    def follow(self, stream: Stream, from_offset: int | None, answer: OnAnswer) -> None:
        """Answer with a stream's next response; ``from_offset`` begins it, and ends the node's other streams."""
        if from_offset is not None:
            self._join(stream, from_offset)
        if stream not in self._followers:
            answer(None)
            return
        follower_id = self._followers[stream]
        self._answers[follower_id] = answer
        self.step(core.Ready(follower_id))
        self._process.after(IDLE_MS, self._wait, follower_id, answer)

    def step(self, event: core.Event) -> None:
        """Take an event and execute its commands."""
        for command in self.core.step(event, self._process.monotonic_ms()):
            self._execute(command)
        if self._process.checks_often:
            self.core.check_invariants()

    def _join(self, stream: Stream, from_offset: int) -> None:
        for other in [s for s in self._followers if s[0] == stream[0]]:
            follower_id = self._followers.pop(other)
            self._answers.pop(follower_id, None)
            self.step(core.Left(follower_id))
        self._count += 1
        self._followers[stream] = self._count
        self.step(core.Joined(self._count, from_offset))

    def _execute(self, command: core.Command) -> None:
        match command:
            case core.Respond(follower_id, response):
                self._answers.pop(follower_id)(response)
            case core.KeepImage(image):
                self._images[image.offset] = image
            case core.DropImage(offset):
                del self._images[offset]
            case core.EncodeBatch(follower_id, offset, index):
                delay_ms = mix(self._process.world.seed, follower_id, index) % _MAX_ENCODING_MS
                self._process.after(delay_ms, self._encode, follower_id, self._images[offset], index)
            case _:
                assert_never(command)

    def _encode(self, follower_id: int, image: MetadataImage, index: int) -> None:
        if follower_id in self._followers.values():
            batches = list(encode_batches(image.to_records(), _BATCH_BYTES))
            self.step(core.BatchEncoded(follower_id, batches[index], index == len(batches) - 1))

    def _wait(self, follower_id: int, answer: OnAnswer) -> None:
        if self._answers.get(follower_id) is answer:
            self.step(core.Waited(follower_id))
