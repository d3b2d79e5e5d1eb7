"""A whole node in this process, with a controller that is a fake behind real gRPC."""

import asyncio
import contextlib
import errno
import logging
from functools import partial

import grpc.aio
import pytest

from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.transport import abort_with, open_channel, server_options
from tidelog_node.broker.lifecycle import LifecycleTimings
from tidelog_node.kafka.server.listener import KafkaListeners
from tidelog_node.log.disk.files import OperatingSystemFiles
from tidelog_node.partitions import LogManager
from tidelog_node.server import process
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.server.process import BoundServer, Node
from tidelog_quorum.controller.feed import FeedLimits, Published
from tidelog_quorum.metadata.codec import encode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.server.metadata_feed import MetadataFeed

TOPIC_ID = b"0123456789abcdef"


class FakeController(ControllerServiceServicer):
    """Registers and unfences whoever asks; ``silent`` answers nothing, ``cut_streams`` ends the metadata streams."""

    def __init__(self):
        self.image = MetadataImage()
        self.feed = MetadataFeed(FeedLimits(max_entries=1))
        self.silent = False
        self.leads_something = False
        self.streams = set()
        self.registrations = []
        self.heartbeats = []
        self.snapshots = 0

    def change(self, *records):
        self.image = self.image.apply(self.image.offset + 1, 1, records)
        self.feed.step(Published([CommittedEntry(self.image.offset, 1, encode_batch(records))], self.image))

    def create_topic(self, name="t", topic_id=TOPIC_ID):
        self.change(TopicRecord(name, topic_id), PartitionRecord(topic_id, 0, (1,), (1,), 1))

    def cut_streams(self):
        for stream in self.streams:
            stream.cancel()

    async def RegisterBroker(self, request, context):
        await self._answer()
        self.registrations.append(request)
        epoch = self.image.offset + 1
        endpoint = Endpoint(request.endpoint.host, request.endpoint.port)
        self.change(RegisterBrokerRecord(request.broker_id, request.incarnation_id, epoch, endpoint))
        return pb.RegisterBrokerResponse(broker_epoch=epoch)

    async def BrokerHeartbeat(self, request, context):
        await self._answer()
        self.heartbeats.append(request)
        broker = self.image.brokers[request.broker_id]
        if broker.broker_epoch != request.broker_epoch:
            await abort_with(context, error_for(ErrorCode.STALE_BROKER_EPOCH, "there is a newer registration"))
        if broker.fenced and request.current_metadata_offset >= broker.broker_epoch:
            self.change(BrokerRegistrationChangeRecord(1, broker.broker_epoch, fenced=False))
        fenced = self.image.brokers[request.broker_id].fenced
        should_shut_down = request.want_shut_down and not self.leads_something
        return pb.BrokerHeartbeatResponse(is_fenced=fenced, should_shut_down=should_shut_down)

    async def AssignReplicasToDirs(self, request, context):
        topics = [
            pb.DirectoryAssignmentTopicResult(
                topic_id=t.topic_id, partitions=[pb.DirectoryAssignmentResult(index=i) for i in t.partitions]
            )
            for d in request.directories
            for t in d.topics
        ]
        return pb.AssignReplicasToDirsResponse(topics=topics)

    async def FollowMetadata(self, request, context):
        self.streams.add(asyncio.current_task())
        try:
            async for response in self.feed.follow(request.from_offset):
                self.snapshots += response.snapshot_begin
                yield response
        finally:
            self.streams.discard(asyncio.current_task())

    async def _answer(self):
        if self.silent:
            await asyncio.sleep(60)


class FailingFiles(OperatingSystemFiles):
    """The real disk until ``broken``: then no file reaches it any more."""

    def __init__(self):
        self.broken = False

    def fsync(self, handle):
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().fsync(handle)


class RunningNode:
    def __init__(self, controller_port, path, **settings):
        keys = {
            "node.id": "1",
            "cluster.id": "c",
            "listeners": "GRPC://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(path / "data"),
            "broker.heartbeat.interval.ms": "50",
            "log.flush.interval.ms": "50",
        }
        config = DynamicNodeConfig(keys | {k.replace("_", "."): v for k, v in settings.items()})
        self.files = FailingFiles()
        self.directories = LogManager.open(config.current.log_dirs, "c", 1, self.files)
        server = grpc.aio.server(options=server_options())
        self.port = server.add_insecure_port("127.0.0.1:0")
        self.kafka = KafkaListeners.bind(config.current.kafka_listeners, config.current.listener_limits())
        self.node = Node(config, {"GRPC": BoundServer(server, self.port)}, self.kafka, self.directories)
        self.stop = asyncio.Event()
        self.running = asyncio.create_task(self.node.run(self.stop), name="node")

    @property
    def registry(self):
        return self.node._registry

    async def ended(self):
        """Return the error that the node ended with, None for a clean stop."""
        try:
            await asyncio.wait_for(self.running, 10)
        except TidelogError as error:
            return error
        finally:
            self.directories.close(clean=False)
        return None


@pytest.fixture
def running_node(tmp_path, wait_for):
    """Return an async context manager that gives a node that serves, and its controller."""

    @contextlib.asynccontextmanager
    async def start(**settings):
        controller = FakeController()
        server = grpc.aio.server(options=server_options())
        add_ControllerServiceServicer_to_server(controller, server)
        node = RunningNode(server.add_insecure_port("127.0.0.1:0"), tmp_path, **settings)
        await server.start()
        try:
            await wait_for(lambda: controller.image.brokers and not controller.image.brokers[1].fenced)
            yield node, controller
        finally:
            await server.stop(0)
            node.running.cancel()
            await asyncio.gather(node.running, return_exceptions=True)
            node.directories.close(clean=False)
            with node.kafka:
                pass

    return start


async def produce(node, make_produce_request, records):
    async with open_channel(f"127.0.0.1:{node.port}") as channel:
        response = await LogServiceStub(channel).Produce(make_produce_request(records))
    return response.topics[0].partitions[0]


def test_node_stops_and_says_why_when_a_disk_fails(running_node, make_batch, make_produce_request, tmp_path, wait_for):
    async def run():
        async with running_node() as (node, controller):
            controller.create_topic()
            await wait_for(lambda: node.registry.get("t", 0) is not None)
            node.files.broken = True
            assert (await produce(node, make_produce_request, make_batch(b"a"))).base_offset == 0

            error = await node.ended()
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert "Input/output error" in error.message
            assert controller.heartbeats[-1].want_shut_down, "others lead sooner than when its session ends"
            assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    asyncio.run(run())


def test_stop_is_not_clean_when_a_disk_fails_during_it(
    running_node, make_batch, make_produce_request, tmp_path, wait_for
):
    async def run():
        async with running_node(log_flush_interval_ms="10", broker_heartbeat_interval_ms="5000") as (node, controller):
            controller.create_topic()
            await wait_for(lambda: node.registry.get("t", 0) is not None)
            controller.leads_something = True
            node.stop.set()
            await wait_for(lambda: controller.heartbeats[-1].want_shut_down)
            node.files.broken = True
            assert (await produce(node, make_produce_request, make_batch(b"a"))).base_offset == 0
            await wait_for(lambda: node.registry.get("t", 0) is None)
            node.files.broken = False
            controller.leads_something = False

            assert (await node.ended()).code is ErrorCode.KAFKA_STORAGE_ERROR
            assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    asyncio.run(run())


def test_node_stops_cleanly_when_told_to(running_node, tmp_path):
    async def run():
        async with running_node() as (node, controller):
            node.stop.set()

            assert await node.ended() is None
            assert controller.heartbeats[-1].want_shut_down
            assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    asyncio.run(run())


def test_node_answers_kafka_clients_until_it_stops(running_node):
    async def run():
        async with running_node() as (node, controller):
            [advertised] = [e for e in controller.registrations[0].listeners if e.name == "PLAINTEXT"]
            assert advertised.port == node.kafka.ports["PLAINTEXT"]
            reader, writer = await asyncio.open_connection("127.0.0.1", advertised.port)
            # ApiVersions 0, correlation id 5, no client id.
            writer.write(bytes.fromhex("0000000a 0012 0000 00000005 ffff"))
            head = await asyncio.wait_for(reader.readexactly(14), 10)
            assert head[4:10] == bytes.fromhex("00000005 0000")
            await reader.readexactly(int.from_bytes(head[:4], "big") - 10)
            node.stop.set()
            assert await asyncio.wait_for(reader.read(), 10) == b""
            assert await node.ended() is None
            writer.close()

    asyncio.run(run())


def test_node_proves_that_it_stopped_cleanly_but_not_after_a_crash(running_node):
    """The controller takes the broker epoch of the last clean stop for the proof (KIP-966)."""

    async def run():
        async with running_node() as (node, controller):
            assert controller.registrations[0].previous_broker_epoch == -1
            epoch = controller.image.brokers[1].broker_epoch
            node.stop.set()
            assert await node.ended() is None
        async with running_node() as (_, controller):
            assert controller.registrations[0].previous_broker_epoch == epoch
        async with running_node() as (_, controller):
            assert controller.registrations[0].previous_broker_epoch == -1

    asyncio.run(run())


def test_node_stops_soon_when_no_controller_answers_its_shut_down(running_node, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(process, "LifecycleTimings", partial(LifecycleTimings, call_timeout_ms=300))

    async def run():
        async with running_node() as (node, controller):
            controller.silent = True
            node.stop.set()
            started = asyncio.get_running_loop().time()

            assert await node.ended() is None
            assert asyncio.get_running_loop().time() - started < 4
            assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "no controller answered" in caplog.text


def test_node_takes_over_a_snapshot_that_comes_while_it_runs(running_node, make_batch, make_produce_request, wait_for):
    async def run():
        async with running_node() as (node, controller):
            for name, topic_id in (("t", TOPIC_ID), ("gone", b"g" * 16), ("again", b"1" * 16)):
                controller.create_topic(name, topic_id)
            await wait_for(lambda: all(node.registry.get(n, 0) for n in ("t", "gone", "again")))
            kept, replaced = node.registry.get("t", 0), node.registry.get("again", 0)
            assert (await produce(node, make_produce_request, make_batch(b"a"))).base_offset == 0

            snapshots = controller.snapshots
            controller.cut_streams()
            controller.change(RemoveTopicRecord(b"g" * 16))
            controller.change(RemoveTopicRecord(b"1" * 16))
            controller.create_topic("again", b"2" * 16)
            controller.change(PartitionChangeRecord(TOPIC_ID, 0, leader=1))
            controller.create_topic("new", b"n" * 16)
            await wait_for(lambda: node.node._cache.image.offset == controller.image.offset)

            assert controller.snapshots > snapshots, "the controller's tail had dropped what the node lacked"
            assert node.registry.get("t", 0) is kept
            assert (kept.state.leader_epoch, kept.log.log_end_offset, kept.high_watermark) == (1, 1, 1)
            assert node.registry.get("gone", 0) is None
            assert node.registry.get("again", 0) is not replaced
            assert node.registry.get("again", 0).topic_id == b"2" * 16

    asyncio.run(run())


def test_node_stops_when_another_process_has_registered_with_its_id(running_node):
    async def run():
        async with running_node() as (node, controller):
            controller.silent = True
            epoch = controller.image.offset + 1
            controller.change(RegisterBrokerRecord(1, b"another process.", epoch, Endpoint("elsewhere", 9)))
            controller.create_topic()

            error = await node.ended()
            assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            assert "elsewhere:9" in error.message
            assert node.registry.get("t", 0) is None, "it must not lead what the other process leads"

    asyncio.run(run())
