"""FollowMetadata's stream: snapshots, the tail, idle responses, slow and late followers, voters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_quorum.controller.feed import FeedLimits, LeaderAnnounced, Published, Restored, VotersAnnounced
from tidelog_quorum.metadata.batches import image_from_batches
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import FeatureLevelRecord, MetadataRecord
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.raft.voters_record import voters_from_message
from tidelog_quorum.server import metadata_feed
from tidelog_quorum.server.metadata_feed import MetadataFeed

VOTERS = VoterSet([Voter.at(1, "a", 1), Voter.at(2, "b", 2)])


class Log:
    """Publishes entries that each set feature levels."""

    def __init__(self, **limits: int) -> None:
        self.feed = MetadataFeed(FeedLimits(**limits))
        self.image = MetadataImage()

    def publish(self, *names: str) -> None:
        self.feed.step(Published([self.entry(name) for name in names], self.image))

    def publish_entry(self, *names: str) -> None:
        self.feed.step(Published([self.entry(*names)], self.image))

    def entry(self, *names: str) -> CommittedEntry:
        records = [FeatureLevelRecord(name, 1) for name in names]
        self.image = self.image.apply(max(1, self.image.offset + 1), 1, records)
        return CommittedEntry(self.image.offset, 1, encode_batch(records))


class Observer:
    """Builds its image as a node does."""

    def __init__(self, feed: MetadataFeed, from_offset: int = 0) -> None:
        self.stream: AsyncIterator[pb.FollowMetadataResponse] = feed.follow(from_offset)
        self.image = MetadataImage()
        self.snapshots = 0
        self.largest = 0
        self.collected: list[bytes] | None = None
        self.parts: list[MetadataRecord] = []

    async def next(self) -> pb.FollowMetadataResponse:
        response = await asyncio.wait_for(anext(self.stream), 5)
        self.largest = max(self.largest, response.ByteSize())
        if response.snapshot_begin:
            self.collected = []
            self.snapshots += 1
        for entry in response.entries:
            if self.collected is not None:
                self.collected.append(entry.batch)
                continue
            self.parts += decode_batch(entry.batch)
            if not entry.is_continued:
                self.image = self.image.apply(entry.offset, entry.epoch, self.parts)
                self.parts = []
        if response.snapshot_end:
            assert self.collected is not None
            last = response.entries[-1]
            self.image = image_from_batches(last.offset, last.epoch, self.collected)
            self.collected = None
        return response

    async def reach(self, image: MetadataImage) -> None:
        while self.image != image:
            await self.next()


def test_feed_begins_with_a_snapshot_and_goes_on_with_entries() -> None:
    async def run() -> None:
        log = Log()
        log.publish("a", "b")
        observer = Observer(log.feed)
        first = await observer.next()
        assert (first.snapshot_begin, first.snapshot_end, first.committed_offset) == (True, True, 2)
        log.publish("c")
        second = await observer.next()
        assert not second.snapshot_begin
        assert [e.offset for e in second.entries] == [3]
        assert observer.image == log.image

    asyncio.run(run())


def test_feed_goes_on_where_an_observer_stopped() -> None:
    async def run() -> None:
        log = Log()
        log.publish("a", "b", "c")
        response = await Observer(log.feed, 2).next()
        assert not response.snapshot_begin
        assert [e.offset for e in response.entries] == [2, 3]

    asyncio.run(run())


@pytest.mark.parametrize("limits", [{"max_entries": 2}, {"max_bytes": 20}])
def test_feed_sends_a_snapshot_to_one_that_is_behind_the_tail(limits: dict[str, int]) -> None:
    async def run() -> None:
        log = Log(**limits)
        log.publish(*"abcdef")
        observer = Observer(log.feed, 2)
        assert (await observer.next()).snapshot_begin
        assert observer.image == log.image

    asyncio.run(run())


def test_feed_sends_a_snapshot_to_a_follower_that_became_too_slow() -> None:
    async def run() -> None:
        log = Log(max_entries=3)
        log.publish("a")
        observer = Observer(log.feed)
        await observer.next()
        log.publish(*"bcdefgh")
        assert (await observer.next()).snapshot_begin
        assert observer.image == log.image

    asyncio.run(run())


def test_feed_splits_a_large_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        log = Log()
        log.publish(*(f"f{i}" * 30 for i in range(2_500)))
        observer = Observer(log.feed)
        flags = [(False, False)]
        while not flags[-1][1]:
            response = await observer.next()
            flags.append((response.snapshot_begin, response.snapshot_end))
        assert flags[1:] == [(True, False), (False, True)]
        assert observer.largest < 300_000
        assert observer.image == log.image
        log.publish("g")
        await observer.next()
        assert observer.image == log.image

    asyncio.run(run())


def test_feed_cuts_an_entry_that_is_too_large_for_a_response() -> None:
    async def run() -> None:
        log = Log(max_response_bytes=200)
        log.publish("a")
        observer = Observer(log.feed)
        await observer.next()
        log.publish_entry(*(f"f{i}" for i in range(100)))
        log.publish("last")
        await observer.reach(log.image)
        assert observer.snapshots == 1
        assert observer.largest < 300

    asyncio.run(run())


def test_feed_encodes_an_image_once_for_all_who_join_while_entries_are_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encodings = []
    encode = metadata_feed.encode_batches
    monkeypatch.setattr(metadata_feed, "encode_batches", lambda r: (encodings.append(1), encode(r))[1])

    async def run() -> None:
        log = Log()
        log.publish(*(f"f{i}" * 30 for i in range(2_000)))
        observers = [Observer(log.feed) for _ in range(20)]
        joining = [asyncio.create_task(o.next()) for o in observers]
        log.publish("b", "c")
        await asyncio.gather(*joining)
        log.publish("d")
        await asyncio.gather(*(o.reach(log.image) for o in observers))
        late = Observer(log.feed)
        await late.reach(log.image)
        assert len(encodings) == 1

    asyncio.run(run())


def test_feed_makes_a_new_snapshot_when_the_tail_has_moved_on() -> None:
    async def run() -> None:
        log = Log(max_entries=2)
        log.publish("a")
        await Observer(log.feed).reach(log.image)
        log.publish(*"bcdef")
        late = Observer(log.feed)
        assert (await late.next()).snapshot_begin
        assert late.image == log.image

    asyncio.run(run())


def test_feed_takes_entries_published_while_a_snapshot_is_read() -> None:
    async def run() -> None:
        log = Log()
        log.publish(*(f"f{i}" * 30 for i in range(2_500)))
        observer = Observer(log.feed)
        await observer.next()
        log.publish("new")
        await observer.reach(log.image)
        assert observer.snapshots == 1

    asyncio.run(run())


def test_feed_of_a_controller_that_loaded_a_snapshot_sends_one_to_who_is_not_beyond_it() -> None:
    async def run() -> None:
        log = Log()
        log.publish("a", "b")
        observer = Observer(log.feed)
        await observer.reach(log.image)
        log.image = MetadataImage().apply(50, 2, [FeatureLevelRecord("x", 1)])
        log.feed.step(Restored(log.image))
        ahead = Observer(log.feed, 52)
        assert not (await ahead.next()).entries
        await observer.reach(log.image)
        assert observer.snapshots == 2
        log.publish("y", "z")
        await observer.reach(log.image)
        assert observer.snapshots == 2
        assert [e.offset for e in (await ahead.next()).entries] == [52]
        at_its_end = Observer(log.feed, 51)
        assert [e.offset for e in (await at_its_end.next()).entries] == [51, 52]

    asyncio.run(run())


def test_feed_says_the_committed_offset_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_feed, "IDLE_INTERVAL_S", 0.01)

    async def run() -> None:
        log = Log()
        observer = Observer(log.feed)
        assert (await observer.next()).committed_offset == -1
        log.publish("a")
        log.feed.step(LeaderAnnounced(3))
        await observer.next()
        idle = await observer.next()
        assert (list(idle.entries), idle.committed_offset, idle.leader_id) == ([], 1, 3)

    asyncio.run(run())


def test_feed_lets_an_observer_wait_that_is_ahead_of_this_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_feed, "IDLE_INTERVAL_S", 0.01)

    async def run() -> None:
        log = Log()
        log.publish("a")
        observer = Observer(log.feed, 3)
        assert not (await observer.next()).entries
        log.publish("b")
        assert not (await observer.next()).entries
        log.publish("c")
        entries: list[int] = []
        while not entries:
            entries = [e.offset for e in (await observer.next()).entries]
        assert entries == [3]

    asyncio.run(run())


def test_feed_names_the_addresses_of_the_listener_that_a_node_follows() -> None:
    async def run() -> None:
        log = Log()
        both = Endpoints([ControllerEndpoint("a", 1, "OPEN"), ControllerEndpoint("a", 2, "TLS")])
        log.feed.step(VotersAnnounced(VoterSet([Voter(1, both), Voter.at(2, "b", 1, listener="OPEN")])))
        for listener, expected in (("OPEN", [("a", 1), ("b", 1)]), ("TLS", [("a", 2)])):
            stream = log.feed.follow(0, listener)
            response = await asyncio.wait_for(anext(stream), 5)
            assert [(e.host, e.port) for v in response.voters.voters for e in v.endpoints] == expected
            await stream.aclose()

    asyncio.run(run())


def test_feed_names_the_voters_at_first_and_when_they_change() -> None:
    async def run() -> None:
        log = Log()
        log.feed.step(VotersAnnounced(VOTERS))
        observer = Observer(log.feed)
        assert voters_from_message((await observer.next()).voters) == VOTERS
        log.publish("a")
        assert not (await observer.next()).HasField("voters")
        log.feed.step(VotersAnnounced(VOTERS.without(1)))
        assert voters_from_message((await observer.next()).voters) == VOTERS.without(1)

    asyncio.run(run())
