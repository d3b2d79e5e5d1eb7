"""The metadata feed step by step: whatever is published and dropped meanwhile, followers build the published images."""

from __future__ import annotations

import random

import pytest

from tidelog_quorum.controller.feed import (
    BatchEncoded,
    Command,
    DropImage,
    EncodeBatch,
    Event,
    FeedEntry,
    FeedLimits,
    FeedResponse,
    Joined,
    KeepImage,
    LeaderAnnounced,
    Left,
    MetadataFeed,
    Published,
    Ready,
    Respond,
    Restored,
    VotersAnnounced,
    Waited,
)
from tidelog_quorum.metadata.batches import encode_batches, image_from_batches
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import FeatureLevelRecord, MetadataRecord
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry

VOTERS = VoterSet([Voter.at(1, "a", 1), Voter.at(2, "b", 2)])


class Follower:
    """Builds images of what it gets."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.batches: list[bytes] | None = None
        self.parts: list[MetadataRecord] = []
        self.response: FeedResponse | None = None
        self.encodes: EncodeBatch | None = None

    def take(self, response: FeedResponse) -> None:
        self.response = response
        if response.snapshot_begin:
            assert not self.parts, "a snapshot comes between the parts of an entry"
            self.batches = []
        for entry in response.entries:
            self._take_entry(entry)
        if response.snapshot_end:
            assert self.batches is not None
            last = response.entries[-1]
            self.image, self.batches = image_from_batches(last.offset, last.epoch, self.batches), None

    def _take_entry(self, entry: FeedEntry) -> None:
        if self.batches is not None:
            self.batches.append(entry.batch)
            return
        self.parts += decode_batch(entry.batch)
        if not entry.is_continued:
            assert entry.offset == self.image.offset + 1, "an entry is left out"
            self.image, self.parts = self.image.apply(entry.offset, entry.epoch, self.parts), []


class World:
    def __init__(self, limits: FeedLimits) -> None:
        self.feed = MetadataFeed(limits)
        self.images: dict[int, MetadataImage] = {}
        self.published = {0: MetadataImage()}
        self.image = MetadataImage().apply(0, 0, [])
        self.followers: dict[int, Follower] = {}
        self.now_ms = 0

    def step(self, event: Event) -> list[Command]:
        commands = self.feed.step(event, self.now_ms)
        for command in commands:
            match command:
                case KeepImage(image):
                    self.images[image.offset] = image
                case DropImage(offset):
                    del self.images[offset]
                case EncodeBatch(follower_id):
                    self.followers[follower_id].encodes = command
                case Respond(follower_id, response):
                    self.followers[follower_id].take(response)
        self.feed.check_invariants()
        return commands

    def publish(self, *names: str) -> list[Command]:
        records = [FeatureLevelRecord(name, 1) for name in names]
        self.image = self.image.apply(self.image.offset + 1, 1, records)
        self.published[self.image.offset] = self.image
        entry = CommittedEntry(self.image.offset, 1, encode_batch(records))
        return self.step(Published([entry], self.image))

    def join(self, follower_id: int, image: MetadataImage | None = None) -> Follower:
        follower = self.followers[follower_id] = Follower(image or MetadataImage())
        self.step(Joined(follower_id, follower.image.offset + 1))
        return follower

    def go_on(self, follower_id: int) -> list[Command]:
        """Let a follower have its next batch, or its next response."""
        follower = self.followers[follower_id]
        if follower.encodes is not None:
            encode, follower.encodes = follower.encodes, None
            batches = list(encode_batches(self.images[encode.offset].to_records(), 20))
            is_last = encode.index == len(batches) - 1
            return self.step(BatchEncoded(follower_id, batches[encode.index], is_last))
        follower.response = None
        return self.step(Ready(follower_id))

    def catch_up(self, follower_id: int) -> None:
        for _ in range(1_000):
            follower = self.followers[follower_id]
            if follower.image.offset == self.image.offset and follower.encodes is None:
                return
            self.go_on(follower_id)
        raise AssertionError("it never catches up")


def test_parts_of_an_entry_follow_also_when_the_tail_has_dropped_it() -> None:
    world = World(FeedLimits(max_entries=1, max_response_bytes=10))
    follower = world.join(1)
    world.publish("a")
    world.catch_up(1)
    world.publish("b1", "b2", "b3")
    assert world.go_on(1) != []
    assert follower.parts
    world.publish("c")
    world.publish("d")
    world.catch_up(1)
    assert follower.image == world.image


def test_snapshot_is_shared_while_the_tail_goes_on_behind_it_and_dropped_when_unused() -> None:
    world = World(FeedLimits(max_entries=2))
    for name in "abc":
        world.publish(name)
    world.join(1)
    world.join(2)
    assert KeepImage(world.image) in world.go_on(1)
    world.publish("d")
    world.publish("e")
    assert not any(isinstance(c, KeepImage) for c in world.go_on(2))
    world.publish("f")
    world.join(3)
    kept = world.go_on(3)
    assert [type(c) for c in kept] == [KeepImage, EncodeBatch], "the first is still sent to others"
    for follower_id in (1, 2, 3):
        world.catch_up(follower_id)
    assert list(world.images) == [6]
    world.now_ms += 40_000
    world.go_on(1)
    assert DropImage(6) in world.step(Waited(1))


def test_image_of_a_follower_that_has_gone_is_dropped() -> None:
    world = World(FeedLimits())
    world.publish("a")
    world.join(1)
    world.go_on(1)
    restored = MetadataImage().apply(50, 2, [FeatureLevelRecord("x", 1)])
    assert world.step(Restored(restored)) == [], "it is still sent"
    assert world.step(Left(1)) == [DropImage(1)]


def test_follower_that_waits_hears_of_entries_voters_and_the_interval() -> None:
    world = World(FeedLimits())
    world.publish("a")
    follower = world.join(1)
    world.catch_up(1)
    assert world.go_on(1) == []
    world.publish("b")
    assert follower.image == world.image
    assert world.go_on(1) == []
    world.step(VotersAnnounced(VOTERS))
    assert follower.response == FeedResponse((), 2, -1, VOTERS)
    assert world.step(LeaderAnnounced(3)) == []
    assert world.go_on(1) == []
    world.step(Waited(1))
    assert follower.response == FeedResponse((), 2, 3)
    assert world.step(Waited(1)) == [], "it has a response"


@pytest.mark.parametrize("seed", range(20))
def test_followers_build_the_published_images_whatever_happens_between_two_responses(seed: int) -> None:
    rng = random.Random(seed)
    world = World(FeedLimits(rng.choice([1, 3, 50]), rng.choice([30, 1_000]), rng.choice([10, 40, 500])))
    for number in range(300):
        follower_id = rng.randrange(4)
        follower = world.followers.get(follower_id)
        match rng.randrange(8):
            case 0 | 1:
                world.publish(*(f"f{number}-{i}" for i in range(rng.choice([0, 1, 1, 5]))))
            case 2:
                if follower is not None:
                    world.step(Left(follower_id))
                world.join(follower_id, rng.choice([*world.published.values()]))
            case 3:
                world.step(rng.choice([LeaderAnnounced(number % 3), VotersAnnounced(VOTERS.without(number % 3))]))
            case _:
                if follower is not None and (follower.encodes is not None or follower.response is not None):
                    world.go_on(follower_id)
                elif follower is not None:
                    world.step(Waited(follower_id))
                    follower.response = follower.response or FeedResponse((), 0, -1)
        for each in world.followers.values():
            assert each.image == world.published.get(each.image.offset, each.image)
