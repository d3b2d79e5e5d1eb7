"""Requests to controllers from many concurrent workers, and a ledger of the acknowledged ones."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar

import grpc.aio

from tidelog.admin import QuorumAdmin
from tidelog.v1 import admin_service_pb2 as admin
from tidelog.v1 import common_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import REQUEST_ID_SIZE
from tidelog_foundation.transport import error_from_rpc, network_loop, open_channel, run_sync
from tidelog_foundation.transport.status import trailing_value
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES

T = TypeVar("T")
BROKER_ID = 1
_BETWEEN_TOPICS_S = 0.01
_DEADLINE_S = 30.0
_ATTEMPT_S = 2.0
_PAUSE_S = 0.02
_RETRIED = (ErrorCode.NOT_CONTROLLER, ErrorCode._TRANSPORT, ErrorCode.REQUEST_TIMED_OUT)


class Controllers:
    """A client of controllers that follows the leader. Its methods block; otherwise it acts like a storage node."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.addresses = list(addresses)
        self._target = self.addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}

    def close(self) -> None:
        run_sync(self._close())

    def leader_of(self, address: str, timeout_s: float = 0.5) -> int | None:
        """Return the leader according to a controller, or None if it knows none or does not answer."""
        return run_sync(self._leader_of(address, timeout_s))

    def leader(self) -> int | None:
        """Return the controller that believes that it leads, by its position among the addresses, from 1."""
        return run_sync(self._leader())

    def topics(self, timeout_s: float = _DEADLINE_S) -> dict[str, bytes]:
        """Return the id of each topic, from a linearizable read by the leader."""

        async def ask(channel: grpc.aio.Channel, attempt_s: float) -> admin.ListTopicsResponse:
            return await AdminServiceStub(channel).ListTopics(admin.ListTopicsRequest(), timeout=attempt_s)

        return {t.name: t.topic_id for t in run_sync(self.call(ask, timeout_s)).topics}

    def register_broker(self) -> None:
        """Register and unfence the only broker, on which all topics are placed."""
        run_sync(self._register_broker())

    def transfer(self, controller_id: int) -> None:
        """Transfer the leadership to a controller, and wait until it leads."""
        with QuorumAdmin({"bootstrap.controllers": ",".join(self.addresses)}) as quorum:
            deadline = time.monotonic() + _DEADLINE_S
            while quorum.describe_metadata_quorum().leader_id != controller_id:
                assert time.monotonic() < deadline, f"controller {controller_id} does not come to lead"
                # The transfer may fail while the leader has committed nothing yet or the target is behind.
                with contextlib.suppress(TidelogError):
                    quorum.transfer_leadership(controller_id, request_timeout=5)

    def is_acknowledged(self, name: str, address: str, timeout_s: float) -> bool:
        """Return whether one controller, called alone, creates a topic in time."""
        try:
            run_sync(self.create_topic(name, timeout_s, address))
        except TimeoutError:
            return False
        return True

    def create_topics(self, *names: str) -> None:
        """Create topics on that broker."""
        for name in names:
            run_sync(self.create_topic(name))

    async def create_topic(self, name: str, timeout_s: float = _DEADLINE_S, address: str | None = None) -> bytes:
        """Create a topic and return its id, with retries. If ``address`` is given, call only that controller."""
        topic = admin.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = admin.CreateTopicsRequest(
            topics=[topic], timeout_ms=int(timeout_s * 1000), request_id=os.urandom(REQUEST_ID_SIZE)
        )

        async def ask(channel: grpc.aio.Channel, attempt_s: float) -> admin.CreateTopicsResponse:
            return await AdminServiceStub(channel).CreateTopics(request, timeout=attempt_s)

        result = (await self.call(ask, timeout_s, address)).topics[0]
        assert not result.HasField("error"), result
        return result.topic_id

    async def call(
        self,
        ask: Callable[[grpc.aio.Channel, float], Awaitable[T]],
        timeout_s: float,
        address: str | None = None,
    ) -> T:
        """Call the current leader.

        Raises:
            TimeoutError: No leader answered in time.
        """
        deadline = time.monotonic() + timeout_s
        failure = "never asked"
        while (left_s := deadline - time.monotonic()) > 0:
            target = address or self._target
            try:
                return await ask(self._channel(target), min(_ATTEMPT_S, left_s))
            except grpc.aio.AioRpcError as rpc_error:
                error = error_from_rpc(rpc_error)
                if error.code not in _RETRIED:
                    raise error from rpc_error
                failure = f"{target}: {error}"
                hint = trailing_value(rpc_error, "tidelog-leader-endpoint")
                if target == self._target:
                    self._target = hint or self._after(target)
            await asyncio.sleep(_PAUSE_S)
        raise TimeoutError(failure)

    async def _close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def _leader_of(self, address: str, timeout_s: float) -> int | None:
        try:
            view = await AdminServiceStub(self._channel(address)).DescribeCluster(
                admin.DescribeClusterRequest(), timeout=timeout_s
            )
        except grpc.aio.AioRpcError:
            return None
        return None if view.controller_id < 0 else int(view.controller_id)

    async def _leader(self) -> int | None:
        views = await asyncio.gather(*(self._leader_of(a, 0.5) for a in self.addresses))
        leading = [i for i, view in enumerate(views, 1) if view == i]
        return leading[0] if len(leading) == 1 else None

    async def _register_broker(self) -> None:
        features = [
            common_pb2.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level)
            for f in SUPPORTED_FEATURES.values()
        ]

        # Any controller's description contains the id of the cluster.
        async def describe(channel: grpc.aio.Channel, attempt_s: float) -> admin.DescribeClusterResponse:
            return await AdminServiceStub(channel).DescribeCluster(admin.DescribeClusterRequest(), timeout=attempt_s)

        cluster_id = (await self.call(describe, _DEADLINE_S)).cluster_id
        request = pb.RegisterBrokerRequest(
            broker_id=BROKER_ID,
            cluster_id=cluster_id,
            incarnation_id=os.urandom(16),
            endpoint=common_pb2.Endpoint(host="127.0.0.1", port=1),
            features=features,
        )

        async def register(channel: grpc.aio.Channel, attempt_s: float) -> pb.RegisterBrokerResponse:
            return await ControllerServiceStub(channel).RegisterBroker(request, timeout=attempt_s)

        epoch = (await self.call(register, _DEADLINE_S)).broker_epoch
        # The highest offset, since a controller that has just become leader requires more than the registration.
        beat = pb.BrokerHeartbeatRequest(broker_id=BROKER_ID, broker_epoch=epoch, current_metadata_offset=1 << 62)

        async def heartbeat(channel: grpc.aio.Channel, attempt_s: float) -> pb.BrokerHeartbeatResponse:
            return await ControllerServiceStub(channel).BrokerHeartbeat(beat, timeout=attempt_s)

        assert not (await self.call(heartbeat, _DEADLINE_S)).is_fenced

    def _after(self, address: str) -> str:
        position = self.addresses.index(address) + 1 if address in self.addresses else 0
        return self.addresses[position % len(self.addresses)]

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return self._channels[address]


class TopicLoad:
    """Creates topics until its end, as a context manager. ``acknowledged`` has the id of each acknowledged topic."""

    def __init__(self, addresses: Sequence[str], workers: int = 8) -> None:
        self.acknowledged: dict[str, bytes] = {}
        self.failed: list[Exception] = []
        self._controllers = [Controllers(addresses) for _ in range(workers)]
        self._names = itertools.count()
        self._stopping = False
        self._tasks: list[Future[None]] = []

    def __enter__(self) -> TopicLoad:
        self._tasks = [asyncio.run_coroutine_threadsafe(self._work(c), network_loop()) for c in self._controllers]
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the answers in progress, then end."""
        self._stopping = True
        for task in self._tasks:
            task.result(_DEADLINE_S + 10)
        for controllers in self._controllers:
            controllers.close()

    def wait_for_progress(self, topics: int = 30, timeout_s: float = _DEADLINE_S) -> float:
        """Wait until ``topics`` more are acknowledged, and return the seconds until the first one."""
        started, before = time.monotonic(), len(self.acknowledged)
        first_s: float | None = None
        while len(self.acknowledged) < before + topics:
            assert not self.failed, self.failed[:3]
            if first_s is None and len(self.acknowledged) > before:
                first_s = time.monotonic() - started
            assert time.monotonic() - started < timeout_s, f"{len(self.acknowledged) - before} of {topics} topics"
            time.sleep(0.005)
        return first_s if first_s is not None else time.monotonic() - started

    def assert_nothing_lost(self, topics: dict[str, bytes]) -> None:
        """Assert that every acknowledged topic exists with its acknowledged id."""
        assert not self.failed, self.failed[:3]
        missing = [name for name, topic_id in self.acknowledged.items() if topics.get(name) != topic_id]
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged topics are missing: {missing[:5]}"

    async def _work(self, controllers: Controllers) -> None:
        while not self._stopping:
            name = f"t{next(self._names)}"
            try:
                self.acknowledged[name] = await controllers.create_topic(name)
            except (TidelogError, TimeoutError, AssertionError) as error:
                self.failed.append(error)
                return
            # As fast as possible, the load would leave no processor to elections.
            await asyncio.sleep(_BETWEEN_TOPICS_S)
