"""FollowMetadata's stream: snapshots, the tail, idle responses, slow and late followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_quorum.metadata import FeatureLevelRecord, MetadataImage, from_message, to_message
from tidelog_quorum.server import metadata_feed
from tidelog_quorum.server.metadata_feed import MetadataFeed


class Log:
    """Publishes entries that each set one feature level."""

    def __init__(self, **limits: int) -> None:
        self.feed = MetadataFeed(**limits)
        self.image = MetadataImage()

    def publish(self, *names: str) -> None:
        for name in names:
            record = FeatureLevelRecord(name, 1)
            self.image = self.image.apply(self.image.offset + 1 if self.image.offset > 0 else 1, 1, [record])
            entry = pb.MetadataEntry(offset=self.image.offset, epoch=1, records=[to_message(record)])
            self.feed.publish(entry, self.image)
        self.feed.wake()


class Observer:
    """Builds its image as a node does."""

    def __init__(self, feed: MetadataFeed, from_offset: int = 0) -> None:
        self.stream: AsyncIterator[pb.FollowMetadataResponse] = feed.follow(from_offset)
        self.image = MetadataImage()
        self.snapshots = 0
        self.collected: list[Any] | None = None

    async def next(self) -> pb.FollowMetadataResponse:
        response = await asyncio.wait_for(anext(self.stream), 5)
        if response.snapshot_begin:
            self.collected = []
            self.snapshots += 1
        for entry in response.entries:
            records = [from_message(m) for m in entry.records]
            if self.collected is None:
                self.image = self.image.apply(entry.offset, entry.epoch, records)
            else:
                self.collected += records
        if response.snapshot_end:
            assert self.collected is not None
            last = response.entries[-1]
            self.image = MetadataImage.from_records(last.offset, last.epoch, self.collected)
            self.collected = None
        return response


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


def test_feed_splits_a_large_snapshot() -> None:
    async def run() -> None:
        log = Log()
        log.publish(*(f"f{i}" for i in range(2_500)))
        observer = Observer(log.feed)
        flags = [((r := await observer.next()).snapshot_begin, r.snapshot_end) for _ in range(3)]
        assert flags == [(True, False), (False, False), (False, True)]
        assert observer.image == log.image
        log.publish("g")
        await observer.next()
        assert observer.image == log.image

    asyncio.run(run())


def test_feed_takes_entries_published_while_a_snapshot_is_read() -> None:
    async def run() -> None:
        log = Log()
        log.publish(*(f"f{i}" for i in range(1_500)))
        observer = Observer(log.feed)
        await observer.next()
        log.publish("new")
        while observer.image != log.image:
            await observer.next()
        assert observer.snapshots == 1

    asyncio.run(run())


def test_feed_says_the_committed_offset_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_feed, "IDLE_INTERVAL_S", 0.01)

    async def run() -> None:
        log = Log()
        observer = Observer(log.feed)
        assert (await observer.next()).committed_offset == -1
        log.publish("a")
        log.feed.set_leader(3)
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
        assert [e.offset for e in (await observer.next()).entries] == [3]

    asyncio.run(run())
