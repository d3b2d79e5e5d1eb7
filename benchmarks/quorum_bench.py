"""The quorum: commits, idle cost, creation of many partitions, and 100,000 partitions in controllers and nodes.

Commits are measured on the Raft engine alone, in the same rounds as the unavoidable parts of a commit: one synced write
to RocksDB and one call over loopback. Creation is measured on a whole cluster of three controllers and three nodes with
three replicas, from the call until all replicas of the last partition acknowledge a record. For 100,000 partitions the
brokers are only registered and have no processes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from benchmarks import process
from benchmarks.metadata_node import NodePlace, follow_in_a_process
from benchmarks.options import Options
from benchmarks.quorum_voter import VoterPlace, VoterProcess
from benchmarks.result import Bar, Result
from benchmarks.suite import run_alone
from tidelog.admin import AdminClient, NewTopic
from tidelog.producer import Producer
from tidelog.testing import LocalCluster
from tidelog.testing.ports import free_ports
from tidelog.v1 import admin_service_pb2 as admin_pb
from tidelog.v1 import common_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES

T = TypeVar("T")

_TIMEOUT_S = 120.0
_BROKERS = 100
_TOPICS, _PARTITIONS_PER_TOPIC = 2_000, 50
_DEFAULTS = {
    "broker.heartbeat.interval.ms": 2_000,
    "broker.session.timeout.ms": 9_000,
    "controller.quorum.election.timeout.ms": 1_000,
    "replica.lag.time.max.ms": 30_000,
}
"""The servers' defaults, since a local cluster has shorter times."""
_INCARNATION = bytes(range(16))


def run(options: Options) -> list[Result]:
    """Measure the engine, then whole clusters."""
    return [*_commits(options), *_creation(options), *_many_partitions(options)]


def _commits(options: Options) -> list[Result]:
    options.say("three voters: single commits and their parts")
    rounds, count = options.pick(15, 3), options.pick(100, 30)
    with options.scratch() as directory:
        ports = dict(enumerate(free_ports(3), 1))
        voters = [VoterProcess(VoterPlace(i, ports, directory / str(i))) for i in ports]
        try:
            leader = _wait_for(lambda: next((v for v in voters if v.ask("leads")), None))
            leader.ask("commit_one_by_one", count)
            commits, writes, calls = [], [], []
            for _ in range(rounds):
                commits.append(leader.ask("commit_one_by_one", count))
                writes.append(leader.ask("write_synced", count))
                calls.append(leader.ask("call_a_neighbour", count))
            options.say("three voters: 2,000 commits in flight")
            rates = [leader.ask("commit_many", 2_000, options.pick(3.0, 1.0)) for _ in range(options.pick(5, 1))]
        finally:
            for voter in voters:
                voter.stop()
    parts = [write + call for write, call in zip(writes, calls, strict=True)]
    ratio = statistics.median(part / commit for part, commit in zip(parts, commits, strict=True))
    reference = "a synced RocksDB write + a loopback call"
    return [
        Result(
            "commit of one record, 3 controllers",
            statistics.median(commits) * 1e3,
            "ms",
            reference,
            ratio,
            Bar.on_ratio(at_least=1 / 2.5),
        ),
        Result("a synced RocksDB write", statistics.median(writes) * 1e3, "ms"),
        Result("a loopback gRPC call", statistics.median(calls) * 1e3, "ms"),
        Result("commits, 2,000 in flight", statistics.median(rates), "1/s", bar=Bar.on_value(at_least=5_000)),
    ]


def _creation(options: Options) -> list[Result]:
    results = []
    partitions, topics = options.pick(10_000, 1_000), options.pick(2_000, 200)
    with LocalCluster(config=_DEFAULTS) as cluster:
        options.say("an idle quorum")
        share = max(_idle_share(c.pid, options.pick(20, 3)) for c in cluster.controllers.values())
        results.append(Result("idle controller: CPU", share * 100, "% of a core", bar=Bar.on_value(at_most=1)))
        options.say(f"creating 1 topic x {partitions:,} partitions")
        created_s, usable_s = _create(cluster, [NewTopic("wide", partitions, 3)])
        results += _creation_results(f"create 1 topic x {partitions:,} partitions x 3", created_s, usable_s, 5)
    with LocalCluster(config=_DEFAULTS) as cluster:
        options.say(f"creating {topics:,} topics x 5 partitions")
        created_s, usable_s = _create(cluster, [NewTopic(f"many-{i}", 5, 3) for i in range(topics)])
        results += _creation_results(f"create {topics:,} topics x 5 partitions x 3", created_s, usable_s, 10)
    return results


def _creation_results(name: str, created_s: float, usable_s: float, limit_s: float) -> list[Result]:
    return [
        Result(f"{name}, until the answer", created_s, "s", bar=Bar.on_value(at_most=limit_s)),
        Result(f"{name}, until the last takes acks=all", usable_s, "s"),
    ]


def _create(cluster: LocalCluster, topics: Sequence[NewTopic]) -> tuple[float, float]:
    """Return the seconds until all topics are created, and until the last partition has accepted a record."""
    with (
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer,
    ):
        started = time.perf_counter()
        for future in admin.create_topics(list(topics), request_timeout=_TIMEOUT_S).values():
            future.result(_TIMEOUT_S)
        created_s = time.perf_counter() - started
        producer.produce(topics[-1].topic, b"there", partition=topics[-1].num_partitions - 1)
        assert producer.flush(_TIMEOUT_S) == 0
        return created_s, time.perf_counter() - started


def _many_partitions(options: Options) -> list[Result]:
    topics = options.pick(_TOPICS, 200)
    total = topics * _PARTITIONS_PER_TOPIC
    config = {"broker.session.timeout.ms": 3_600_000, "controller.quorum.election.timeout.ms": 1_000}
    with LocalCluster(nodes=0, config=config) as cluster, _Controllers(cluster) as controllers:
        options.say(f"creating {total:,} partitions of {_BROKERS} brokers")
        before_mb = process.resident_mb(cluster.controllers[controllers.leader()].pid)
        epochs = controllers.register_brokers(_BROKERS)
        created_s = controllers.create_topics(topics)
        leader = controllers.leader()
        grown_mb = process.resident_mb(cluster.controllers[leader].pid) - before_mb
        options.say("following them as a node")
        with options.scratch() as directory:
            voters = {i: ("127.0.0.1", c.port) for i, c in cluster.controllers.items()}
            followed = follow_in_a_process(
                NodePlace(1, epochs[1], _INCARNATION, cluster.cluster_id, voters, directory / "data")
            )
        options.say("killing the leader")
        served_s, total_s = [], []
        for _ in range(options.pick(3, 1)):
            leader = controllers.leader()
            elected_to_served, killed_to_served = controllers.fail_over(leader)
            served_s.append(elected_to_served)
            total_s.append(killed_to_served)
            cluster.controllers[leader].start()
            cluster.wait_ready(_TIMEOUT_S)
    name = f"{total:,} partitions x 3"
    return [
        Result(f"create {name}, registered brokers only", created_s, "s"),
        Result(f"leading controller: memory for {name}", grown_mb, "MB", bar=Bar.on_value(at_most=200)),
        Result(f"node: memory for {name}, {followed.replicas:,} its own", followed.memory_bytes / 1e6, "MB"),
        Result(f"node: image of {name} built and applied", followed.seconds, "s"),
        Result("node: longest stall meanwhile", followed.longest_stall_s * 1e3, "ms", bar=Bar.on_value(at_most=50)),
        Result(f"failover, {name}: elected to serving", max(served_s), "s", bar=Bar.on_value(at_most=2)),
        Result(f"failover, {name}: killed to serving", max(total_s), "s"),
    ]


class _Controllers:
    """Calls to each controller separately."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
        self._channels = {i: grpc.insecure_channel(c.address, options) for i, c in cluster.controllers.items()}

    def __enter__(self) -> _Controllers:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()

    def leader(self) -> int:
        """Return the leader that all controllers agree on."""
        return _wait_for(self._agreed_leader)

    def register_brokers(self, count: int) -> dict[int, int]:
        """Register and unfence brokers 1 to ``count``, and return their epochs."""
        controller = ControllerServiceStub(self._channels[self.leader()])
        features = [
            common_pb2.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level)
            for f in SUPPORTED_FEATURES.values()
        ]
        epochs = {}
        for broker_id in range(1, count + 1):
            request = pb.RegisterBrokerRequest(
                broker_id=broker_id,
                cluster_id=self._cluster.cluster_id,
                incarnation_id=_INCARNATION,
                endpoint=common_pb2.Endpoint(host="127.0.0.1", port=1),
                features=features,
            )
            epochs[broker_id] = epoch = controller.RegisterBroker(request, timeout=_TIMEOUT_S).broker_epoch
            heartbeat = pb.BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=epoch
            )
            controller.BrokerHeartbeat(heartbeat, timeout=_TIMEOUT_S)
        return epochs

    def create_topics(self, count: int) -> float:
        """Create topics of 50 partitions with three replicas, 100 per request, and return the seconds."""
        started = time.perf_counter()
        for start in range(0, count, 100):
            topics = [
                admin_pb.CreatableTopic(name=f"topic-{i}", num_partitions=_PARTITIONS_PER_TOPIC, replication_factor=3)
                for i in range(start, min(count, start + 100))
            ]
            self._create(admin_pb.CreateTopicsRequest(topics=topics, request_id=start.to_bytes(8, "big")))
        return time.perf_counter() - started

    def fail_over(self, leader: int) -> tuple[float, float]:
        """Kill the leader. Return the seconds from the election and from the kill to the first answered request."""
        self._cluster.controllers[leader].kill()
        killed = time.perf_counter()
        others = [i for i in self._channels if i != leader]
        elected_id = _wait_for(lambda: next((i for i in others if self._view(i) == i), None))
        elected = time.perf_counter()
        name = f"after-{time.monotonic_ns()}"
        topic = admin_pb.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = admin_pb.CreateTopicsRequest(topics=[topic])
        answer = AdminServiceStub(self._channels[elected_id]).CreateTopics(request, timeout=_TIMEOUT_S)
        assert not answer.topics[0].HasField("error"), answer
        served = time.perf_counter()
        return served - elected, served - killed

    def _create(self, request: admin_pb.CreateTopicsRequest) -> None:
        """Create topics, and retry if the leadership moves meanwhile."""

        def attempt() -> admin_pb.CreateTopicsResponse | None:
            try:
                return AdminServiceStub(self._channels[self.leader()]).CreateTopics(request, timeout=_TIMEOUT_S)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return None

        answer = _wait_for(attempt)
        assert not any(topic.HasField("error") for topic in answer.topics), answer

    def _agreed_leader(self) -> int | None:
        views = {self._view(i) for i in self._channels}
        leader = views.pop()
        return leader if not views and leader is not None and leader > 0 else None

    def _view(self, controller_id: int) -> int | None:
        try:
            stub = AdminServiceStub(self._channels[controller_id])
            return stub.DescribeCluster(admin_pb.DescribeClusterRequest(), timeout=1).controller_id
        except grpc.RpcError:
            return None


def _idle_share(pid: int, seconds: float) -> float:
    used, started = process.cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (process.cpu_seconds(pid) - used) / (time.monotonic() - started)


def _wait_for(find: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + _TIMEOUT_S
    while (found := find()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not there after {_TIMEOUT_S} s")
        time.sleep(0.002)
    return found


if __name__ == "__main__":
    run_alone(run)
