"""A node's metadata image: snapshots, entries in parts, changes of the controller, its own registration."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc.aio
import pytest

from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerEpoch
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.transport import open_channel, server_options
from tidelog_node.partitions import MetadataCache
from tidelog_node.server.metadata_follower import MetadataFollower
from tidelog_quorum.controller.feed import FeedLimits, LeaderAnnounced, Published, Restored, VotersAnnounced
from tidelog_quorum.metadata.codec import encode_batch
from tidelog_quorum.metadata.delta import MetadataDelta
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.server.metadata_feed import MetadataFeed

INCARNATION = b"i" * 16


class Log:
    """The committed log, which all controllers serve alike."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.controllers: list[Controller] = []

    def change(self, *records: MetadataRecord) -> None:
        self.image = self.image.apply(max(1, self.image.offset + 1), 1, records)
        for controller in self.controllers:
            controller.feed.step(Published([CommittedEntry(self.image.offset, 1, encode_batch(records))], self.image))

    def stand(self, *, fenced: bool) -> None:
        broker = self.image.brokers[7]  # type: ignore[index]
        self.change(BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=fenced))

    def register(self, epoch: int, incarnation: bytes = INCARNATION) -> None:
        self.change(RegisterBrokerRecord(7, incarnation, epoch, Endpoint("h", 1)))  # type: ignore[arg-type]


class Controller(ControllerServiceServicer):
    """One controller's stream, behind real gRPC."""

    def __init__(self, log: Log, max_response_bytes: int) -> None:
        self.feed = MetadataFeed(FeedLimits(max_response_bytes=max_response_bytes))
        self.feed.step(LeaderAnnounced(1))
        self.server = grpc.aio.server(options=server_options())
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.streams = 0
        add_ControllerServiceServicer_to_server(self, self.server)
        log.controllers.append(self)

    async def FollowMetadata(
        self, request: pb.FollowMetadataRequest, context: Any
    ) -> AsyncIterator[pb.FollowMetadataResponse]:
        self.streams += 1
        async for response in self.feed.follow(request.from_offset):
            yield response


class Registry:
    """Takes images over, slowly while ``gate`` is closed."""

    def __init__(self) -> None:
        self.images: list[MetadataImage] = []
        self.deltas: list[MetadataDelta] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_asked = False

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.is_asked = True
        await self.gate.wait()
        self.images.append(image)
        self.deltas.append(delta)

    async def discard_unknown(self) -> None:
        pass


class Node:
    running: asyncio.Task[None]

    def __init__(self, controllers: Sequence[Controller], epoch: int | None, *, by_bootstrap: bool) -> None:
        addresses = [("127.0.0.1", c.port) for c in controllers]
        self.registry = Registry()
        self.cache = MetadataCache()
        self.told: list[dict[int, tuple[str, int]]] = []
        self.fenced_at: list[int] = []
        self.applied: list[int] = []
        self.channels: dict[str, grpc.aio.Channel] = {}
        self.follower = MetadataFollower(
            7,  # type: ignore[arg-type]
            INCARNATION,
            "c",
            {} if by_bootstrap else dict(enumerate(addresses, 1)),
            self.channel,
            self.registry,  # type: ignore[arg-type]
            self.cache,
            lambda voters: self.told.append(dict(voters)),
            lambda image: None,
            addresses if by_bootstrap else (),
            lambda: self.fenced_at.append(self.applied[-1]),
            self.applied.append,
        )
        if epoch is not None:
            self.follower.note_registration(BrokerEpoch(epoch))

    def channel(self, address: str) -> grpc.aio.Channel:
        if address not in self.channels:
            self.channels[address] = open_channel(address)
        return self.channels[address]

    async def reaches(self, image: MetadataImage) -> None:
        async with asyncio.timeout(10):
            await self.cache.wait_until(lambda i: i.offset >= image.offset, 10)
        assert self.cache.image == image


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 what is waited for has no event
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def cluster(
    controllers: int = 1,
    max_response_bytes: int = 256 * 1024,
    *,
    by_bootstrap: bool = False,
    epoch: int | None = 1,
) -> AsyncIterator[tuple[Log, Node]]:
    log = Log()
    for _ in range(controllers):
        await Controller(log, max_response_bytes).server.start()
    node = Node(log.controllers, epoch, by_bootstrap=by_bootstrap)
    node.running = asyncio.create_task(node.follower.run())
    try:
        yield log, node
    finally:
        node.running.cancel()
        await asyncio.wait([node.running])
        for controller in log.controllers:
            await controller.server.stop(0)
        for channel in node.channels.values():
            await channel.close()


def topic(number: int, partitions: int) -> list[MetadataRecord]:
    topic_id = number.to_bytes(16, "big")
    partition_records = [PartitionRecord(topic_id, i, (7, 8), (7, 8), 7) for i in range(partitions)]  # type: ignore[arg-type]
    return [TopicRecord(f"t{number}", topic_id), *partition_records]  # type: ignore[arg-type]


def test_follower_takes_a_snapshot_then_entries_small_and_large() -> None:
    async def run() -> None:
        async with cluster(max_response_bytes=2_000) as (log, node):
            log.register(1)
            await node.reaches(log.image)
            log.change(*topic(1, 3))
            await node.reaches(log.image)
            log.change(*topic(2, 1_000))
            log.change(FeatureLevelRecord("f", 1))
            await node.reaches(log.image)
            assert log.controllers[0].streams == 1
            assert node.applied[-1] == log.image.offset
            age, size, loaded = (family.values[()] for family in node.follower.snapshots.families())
            assert (loaded, isinstance(age, float) and age < 60, isinstance(size, int) and size > 0) == (1, True, True)

    asyncio.run(run())


def test_follower_applies_many_entries_as_one_step_when_the_partitions_are_busy() -> None:
    async def run() -> None:
        async with cluster() as (log, node):
            log.register(1)
            await node.reaches(log.image)
            node.registry.gate.clear()
            for number in range(1, 50):
                log.change(*topic(number, 2))
                await asyncio.sleep(0)
            await until(lambda: node.follower._stream.offset >= log.image.offset)
            node.registry.gate.set()
            await node.reaches(log.image)
            assert len(node.registry.images) <= 4
            assert sum(len(d.changed_partitions) for d in node.registry.deltas) == 98

    asyncio.run(run())


def test_follower_applies_nothing_older_than_its_registration() -> None:
    async def run() -> None:
        async with cluster(epoch=3) as (log, node):
            log.register(1)
            log.change(*topic(1, 1))
            await until(lambda: node.follower._stream.offset >= 2)
            assert node.applied == []
            assert node.cache.image == MetadataImage()
            log.register(3)
            await node.reaches(log.image)
            assert [i.offset for i in node.registry.images] == [3]

    asyncio.run(run())


def test_follower_applies_what_came_before_the_answer_to_the_registration_and_stops_in_the_middle_of_it() -> None:
    async def run() -> None:
        async with cluster(epoch=None) as (log, node):
            log.register(1)
            await until(lambda: node.follower._stream.offset >= 1)
            node.registry.gate.clear()
            node.follower.note_registration(BrokerEpoch(1))
            await until(lambda: node.registry.is_asked)
        node.registry.gate.set()
        await asyncio.sleep(0.01)
        assert node.registry.images == [], "nothing is applied any more when the follower has ended"

    asyncio.run(run())


def test_follower_tells_whenever_its_node_is_fenced_that_was_not() -> None:
    async def run() -> None:
        async with cluster() as (log, node):
            log.register(1)
            await node.reaches(log.image)
            expected = []
            for _ in range(2):
                log.stand(fenced=False)
                log.change(*topic(log.image.offset, 1))
                await node.reaches(log.image)
                assert node.fenced_at == expected, "a node that has just registered is fenced as it should be"
                log.stand(fenced=True)
                expected.append(log.image.offset)
                await node.reaches(log.image)
                log.change(*topic(log.image.offset, 1))
                await node.reaches(log.image)
            assert node.fenced_at == expected

    asyncio.run(run())


def test_follower_ends_when_another_process_has_its_id() -> None:
    async def run() -> None:
        async with cluster() as (log, node):
            log.register(1)
            await node.reaches(log.image)
            log.register(2, b"x" * 16)
            with pytest.raises(BaseExceptionGroup) as caught:
                await asyncio.wait_for(node.running, 10)
            [error] = caught.value.exceptions
            assert isinstance(error, TidelogError)
            assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    asyncio.run(run())


def test_follower_learns_new_controllers_and_goes_on_with_them_when_the_old_are_gone() -> None:
    async def run() -> None:
        async with cluster() as (log, node):
            log.register(1)
            await node.reaches(log.image)
            old = log.controllers[0]
            new = Controller(log, 256 * 1024)
            new.feed.step(Restored(log.image))
            await new.server.start()
            old.feed.step(VotersAnnounced(VoterSet([Voter.at(5, "127.0.0.1", new.port)])))
            await until(lambda: {5: ("127.0.0.1", new.port)} in node.told)
            await old.server.stop(0)
            log.change(*topic(1, 1))
            await node.reaches(log.image)
            assert new.streams >= 1

    asyncio.run(run())


def test_follower_learns_the_voters_from_bootstrap_controllers_also_where_they_are_the_same() -> None:
    async def run() -> None:
        async with cluster(controllers=2, by_bootstrap=True) as (log, node):
            voters = {i: ("127.0.0.1", c.port) for i, c in enumerate(log.controllers, 1)}
            for controller in log.controllers:
                controller.feed.step(VotersAnnounced(VoterSet(Voter.at(i, *address) for i, address in voters.items())))
            log.register(1)
            await node.reaches(log.image)
            await until(lambda: node.told == [voters])

    asyncio.run(run())


def test_follower_goes_on_from_a_controller_that_loaded_a_snapshot() -> None:
    async def run() -> None:
        async with cluster(controllers=2) as (log, node):
            log.register(1)
            log.change(*topic(1, 5))
            await node.reaches(log.image)
            image = MetadataImage().apply(90, 4, [*log.image.to_records(), *topic(2, 5)])
            log.image = image
            for controller in log.controllers:
                controller.feed.step(Restored(image))
            await node.reaches(image)
            assert [c.topic_name for c in node.registry.deltas[-1].changed_partitions] == ["t2"] * 5

    asyncio.run(run())
