"""`FakeCluster`: a cluster of one node and one controller, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Self

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import TopicId
from tidelog_foundation.records import Record, data_batches, iter_headers, iter_records
from tidelog_foundation.requests.configs import ConfigEntry
from tidelog_foundation.requests.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
)
from tidelog_foundation.transport import run_sync
from tidelog_node.handlers import NodeContext, create_topics, delete_topics
from tidelog_node.partitions import Partition
from tidelog_quorum.controller.result import Result
from tidelog_quorum.metadata.records import PartitionChangeRecord
from tidelog_testing.embedded import HOST, NODE_ID, EmbeddedCluster, Settings, Storage
from tidelog_testing.faults import Gate

_TIMEOUT_S: Final = 30.0
_READ_BYTES: Final = 1024**2
_GROUP_LIMITS: Final = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    # Members of KIP-848's protocol learn their assignment from heartbeats. Tests do not wait seconds for one.
    "group.consumer.heartbeat.interval.ms": "100",
}
_NODE: Final = {
    **_GROUP_LIMITS,
    "group.min.session.timeout.ms": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.two.phase.commit.enable": "true",
}


class FakeCluster:
    """One node for tests. It starts in milliseconds and stops at the end of the ``with`` block.

    ::

        with FakeCluster() as cluster:
            cluster.create_topic("flights", partitions=3)
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    The node and its controller are the real ones. They keep everything in memory and run on the network thread that
    this process's clients use. Clients of Kafka connect to ``kafka_bootstrap_servers``. There is one node, so it
    refuses a replication factor above 1. Methods may be called from any thread. Faults and pauses apply to gRPC.
    """

    def __init__(
        self,
        *,
        cluster_id: str = "fake-cluster",
        default_partitions: int = 1,
        auto_create_topics: bool = False,
        node_config: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``node_config`` has further settings of the node, such as those of its security."""
        self.cluster_id = cluster_id
        own = {"cluster.id": cluster_id}
        auto_create = {"auto.create.topics.enable": str(auto_create_topics).lower()}
        self._settings = Settings(
            {**_GROUP_LIMITS, **own, "num.partitions": str(default_partitions)},
            {**_NODE, **own, **auto_create, **node_config},
        )
        self._storage = Storage()
        self._gate = Gate()
        self._running: EmbeddedCluster | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the node, for ``bootstrap.servers``; empty before `start`."""
        return _address(self._storage.grpc_port)

    @property
    def kafka_bootstrap_servers(self) -> str:
        """``host:port`` for the ``bootstrap.servers`` of Kafka's clients; empty before `start`."""
        return _address(self._storage.kafka_port)

    def client_settings(self) -> dict[str, str]:
        """Return the settings with which Tidelog's clients connect, as with a ``LocalCluster``."""
        return {"bootstrap.servers": self.bootstrap_servers}

    def start(self) -> None:
        """Start serving. After `stop`, serve the same records at the same addresses, as a restarted process does."""
        run_sync(self._start(), _TIMEOUT_S)

    def stop(self) -> None:
        """Break every connection and stop. Do nothing if the cluster is stopped."""
        running, self._running = self._running, None
        if running is not None:
            self._gate.resume()
            run_sync(running.stop(), _TIMEOUT_S)

    def reconfigure(self, node_config: Mapping[str, str | None]) -> None:
        """Change settings of the node, or remove them (None), from the next `start` on."""
        changed = {**self._settings.node, **node_config}
        self._settings = replace(self._settings, node={k: v for k, v in changed.items() if v is not None})

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        """Create a topic as a client would.

        Raises:
            TidelogError: the controller's error, e.g. TOPIC_ALREADY_EXISTS.
        """
        given = tuple(ConfigEntry(key, value) for key, value in (configs or {}).items())
        topic = CreatableTopic(name, partitions, replication_factor, configs=given)
        request = CreateTopicsRequest((topic,))
        _check(run_sync(create_topics(self._context(), request), _TIMEOUT_S).topics[0])

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        request = DeleteTopicsRequest((name,))
        _check(run_sync(delete_topics(self._context(), request), _TIMEOUT_S).topics[0])

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """Append one produced RecordBatch without a client; return its base offset."""

        async def append() -> int:
            return self._partition(topic, partition).append(batch, needs_all_replicas=True).first_offset

        return run_sync(append(), _TIMEOUT_S)

    def records(self, topic: str, partition: int = 0, *, read_committed: bool = False) -> list[Record]:
        """Return the records of a partition, in order of offset.

        ``read_committed`` leaves out the records of aborted transactions, and ends at the first open one.
        """
        return run_sync(self._records(topic, partition, read_committed), _TIMEOUT_S)

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Return one past the last offset of a partition."""

        async def end_offset() -> int:
            return self._partition(topic, partition).log.log_end_offset

        return run_sync(end_offset(), _TIMEOUT_S)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the log start offset up to ``before_offset``, as retention does, for any cleanup.policy."""

        async def delete() -> None:
            found = self._partition(topic, partition)
            if found.log.advance_log_start_offset(found.state.require_leader().deletion_offset(before_offset)):
                found.waiters.wake_readers()

        run_sync(delete(), _TIMEOUT_S)

    def elect_leader(self, topic: str, partition: int) -> int:
        """Elect the node leader of the partition again and return the new leader epoch."""
        return run_sync(self._elect_leader(topic, partition), _TIMEOUT_S)

    def fail_next(
        self, api: str, error_code: ErrorCode, times: int = 1, *, whole_call: bool = False, applied: bool = False
    ) -> None:
        """Let the next ``times`` gRPC calls of ``api`` (``Produce``, ``Fetch``, ``CreateTopics`` ...) fail.

        Each partition or topic of the response carries the error. With ``whole_call`` the call ends with a
        gRPC status instead; so does a client-side code: ``_TRANSPORT`` is a broken
        connection. With ``applied`` the request takes effect and only its answer is lost. A message of
        a ProduceStream counts as a call of ``Produce``, and a fault of the whole call ends the stream.

        Raises:
            ValueError: there is no such API.
        """
        self._gate.fail_next(api, error_code, times, whole_call=whole_call, applied=applied)

    def answer_with(self, api: str, script: Callable[[Any], Any]) -> None:
        """Let ``script`` answer each gRPC call of ``api`` in place of the node. It runs in a thread.

        Raises:
            ValueError: the API does not exist.
        """
        self._gate.answer_with(api, script)

    def clear_faults(self) -> None:
        """Remove the faults that no call has received yet."""
        self._gate.clear()

    def calls(self, api: str) -> int:
        """Return the number of gRPC calls of ``api`` so far."""
        return self._gate.calls(api)

    def pause(self) -> None:
        """Delay the gRPC calls that arrive from now on, as a stopped process does (SIGSTOP)."""
        self._gate.pause()

    def resume(self) -> None:
        """Answer calls again, first those that arrived during the pause."""
        self._gate.resume()

    def check_invariants(self) -> None:
        """Assert the invariants of every partition."""

        async def check() -> None:
            for partition in self._context().partitions:
                partition.state.check_invariants()

        run_sync(check(), _TIMEOUT_S)

    async def _start(self) -> None:
        assert self._running is None, "the cluster runs already"
        running = EmbeddedCluster(self._storage, self._gate, self._settings)
        try:
            await running.start()
        except BaseException:
            await running.stop()
            raise
        self._running = running

    async def _records(self, topic: str, index: int, read_committed: bool) -> list[Record]:
        partition = self._partition(topic, index)
        log, found = partition.log, list[Record]()
        position = log.log_start_offset
        end = log.last_stable_offset(partition.high_watermark) if read_committed else log.log_end_offset
        while position < end and (batches := log.read(position, _READ_BYTES, end)):
            start, position = position, max(header.next_offset for _, header in iter_headers(batches))
            aborted = log.aborted_transactions(start, position) if read_committed else []
            for at, _ in data_batches(batches, [(each.producer_id, each.first_offset) for each in aborted]):
                found += iter_records(batches, at, log.log_start_offset)
        return found

    async def _elect_leader(self, topic: str, index: int) -> int:
        context, found = self._context(), self._partition(topic, index)
        epoch = found.state.leader_epoch
        assert self._running is not None
        change = PartitionChangeRecord(TopicId(found.topic_id), index, leader=NODE_ID)
        await self._running.quorum.submit(lambda controller, now_ms: Result([change], None))
        while found.state.leader_epoch == epoch:
            await context.metadata.next_image(context.metadata.image)
        return found.state.leader_epoch

    def _context(self) -> NodeContext:
        if self._running is None:
            raise error_for(ErrorCode._STATE, "the cluster is not running: call start() or use it in a with block")
        return self._running.context

    def _partition(self, topic: str, index: int) -> Partition:
        return self._context().partition(topic, index)


def _address(port: int) -> str:
    return format_address(HOST, port) if port else ""


def _check(result: CreatableTopicResult | DeletableTopicResult) -> None:
    if result.error is not None:
        raise result.error
