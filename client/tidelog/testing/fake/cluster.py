"""`FakeCluster`: a cluster of one in-memory node, served over real gRPC on loopback by threads of its own."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import grpc

from tidelog.testing.fake.admin_service import AdminServicer
from tidelog.testing.fake.faults import Fault, Gate
from tidelog.testing.fake.group_service import GroupServicer
from tidelog.testing.fake.groups import FakeGroups
from tidelog.testing.fake.log_service import LogServicer, NodeInfo
from tidelog.testing.fake.topics import TopicTable
from tidelog.v1 import admin_service_pb2_grpc, group_service_pb2_grpc, log_service_pb2_grpc
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import Record
from tidelog_foundation.transport import server_options

_HOST = "127.0.0.1"
_MAX_CALLS = 64


class FakeCluster:
    """One node for tests, ready in milliseconds and gone with the ``with`` block.

    ::

        with FakeCluster() as cluster:
            cluster.create_topic("flights", partitions=3)
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    It stores and serves real RecordBatches and answers with the same errors as a real node. What needs
    more than one replica is not there: a replication factor above 1 is refused. It shares no event loop with
    clients; every method may be called from any thread. At most 64 calls (long polls and streams
    included) run at a time.
    """

    def __init__(
        self, *, cluster_id: str = "fake-cluster", default_partitions: int = 1, auto_create_topics: bool = False
    ) -> None:
        self.cluster_id = cluster_id
        self._auto_create_topics = auto_create_topics
        self._table = TopicTable(default_partitions)
        self._gate = Gate()
        self._groups = FakeGroups(self._table)
        self._server: grpc.Server | None = None
        self._log_servicer: LogServicer | None = None
        self._group_servicer: GroupServicer | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the node, for ``bootstrap.servers``; empty before `start`."""
        return f"{_HOST}:{self._port}" if self._port else ""

    def start(self) -> None:
        """Serve; after `stop` again at the same address, with the records of before (a restarted process)."""
        server = grpc.server(ThreadPoolExecutor(_MAX_CALLS, "fake-cluster"), options=server_options())
        self._port = server.add_insecure_port(f"{_HOST}:{self._port}")
        info = NodeInfo(self.cluster_id, _HOST, self._port, self._auto_create_topics)
        self._log_servicer = LogServicer(self._table, self._gate, info)
        log_service_pb2_grpc.add_LogServiceServicer_to_server(self._log_servicer, server)
        self._group_servicer = GroupServicer(self._table, self._groups, self._gate, info)
        group_service_pb2_grpc.add_GroupServiceServicer_to_server(self._group_servicer, server)
        # What one node in memory has no use for, as elections, it answers with UNIMPLEMENTED.
        admin = AdminServicer(self._table, self._gate, info)  # type: ignore[abstract]
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Break every connection, as a killed process does. Does nothing when stopped."""
        server, self._server = self._server, None
        if server is None or self._log_servicer is None or self._group_servicer is None:
            return
        done = server.stop(grace=None)
        self._gate.resume()
        self._log_servicer.stop()
        self._group_servicer.stop()
        done.wait()
        with self._table.changed:
            self._groups.restart()

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        """Create a topic as a client would.

        Raises:
            TidelogError: what the controller would answer, e.g. TOPIC_ALREADY_EXISTS.
        """
        with self._table.changed:
            self._table.create(name, partitions, replication_factor, configs=configs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        with self._table.changed:
            self._table.delete(name)
            self._table.changed.notify_all()

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """Append one produced RecordBatch without a client; return its base offset."""
        with self._table.changed:
            appended = self._table.append(topic, partition, batch)
            self._table.changed.notify_all()
        return appended.base_offset

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """Return what a partition holds, in order of offset."""
        with self._table.changed:
            return list(self._table.partition(topic, partition).records())

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Return one past the last offset of a partition."""
        with self._table.changed:
            return self._table.partition(topic, partition).log_end_offset

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the log start offset up to ``before_offset``, as retention does, whatever the cleanup.policy."""
        with self._table.changed:
            self._table.partition(topic, partition).delete_records(before_offset)
            self._table.changed.notify_all()

    def elect_leader(self, topic: str, partition: int) -> int:
        """Do as if the node had won another election of the partition; return the new leader epoch."""
        with self._table.changed:
            return self._table.partition(topic, partition).start_next_epoch()

    def fail_next(
        self, api: str, error_code: ErrorCode, times: int = 1, *, whole_call: bool = False, applied: bool = False
    ) -> None:
        """Let the next ``times`` calls of ``api`` (``Produce``, ``Fetch``, ``CreateTopics`` ...) fail.

        Each partition or topic of the response carries the error. With ``whole_call`` the call ends with a
        gRPC status instead; so does a code of the client's own side: ``_TRANSPORT`` is a broken
        connection. With ``applied`` the request takes effect and only its answer is lost. A message of
        a ProduceStream counts as a call of ``Produce``, and a fault of the whole call ends the stream.

        Raises:
            ValueError: there is no such API.
        """
        self._gate.fail_next(api, Fault(error_code, whole_call, applied), times)

    def clear_faults(self) -> None:
        """Forget the faults that no call has met yet."""
        self._gate.clear()

    def calls(self, api: str) -> int:
        """Return how many calls of ``api`` have come in."""
        return self._gate.calls(api)

    def pause(self) -> None:
        """Answer nothing from now on, as a process does that was sent SIGSTOP."""
        self._gate.pause()

    def resume(self) -> None:
        """Answer again, first of all the calls that came in while paused."""
        self._gate.resume()

    def check_invariants(self) -> None:
        """Assert the invariants of every partition."""
        with self._table.changed:
            self._table.check_invariants()
