"""The cost of authorization: produce requests of Kafka's protocol to a node with 10,000 ACLs, and to one without.

First the node runs in this process, in memory. A round is a number of requests of one connection, each with one batch.
The time is the CPU time of the node's thread, from the received bytes to those of the response.

Then two clusters of one controller and one node run as processes, one of them with an authorizer and the ACLs. The same
client sends requests to both in turns, each after the answer to the one before. The figure is the CPU time, of user and
system, of the node's process. Two processes of the same program differ by some percent, so that several pairs are
started.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from benchmarks import abuse, process
from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate, in_turns
from benchmarks.suite import run_alone
from tidelog.admin import AclBinding as SdkBinding
from tidelog.admin import AclOperation as SdkOperation
from tidelog.admin import AclPermissionType as SdkPermissionType
from tidelog.admin import AdminClient, NewTopic, ResourcePatternType
from tidelog.admin import ResourceType as SdkResourceType
from tidelog.testing import LocalCluster
from tidelog_foundation.authorization import StandardAuthorizer, StandardRules
from tidelog_foundation.ids import AclId
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.requests.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest
from tidelog_foundation.security import Principal
from tidelog_foundation.transport import run_sync
from tidelog_node.handlers import NodeContext, create_topics
from tidelog_node.kafka.apis.produce import ProduceApi
from tidelog_node.kafka.authorization import KafkaGuard
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.served import Caller, KafkaNode, Request
from tidelog_node.partitions import MetadataCache
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import AccessControlEntryRecord
from tidelog_testing.embedded import EmbeddedCluster, Settings, Storage
from tidelog_testing.faults import Gate

_ACLS: Final = 10_000
_TOPIC: Final = "flights"
_USER: Final = Principal("User", "alice")
_VERSION: Final = 7
_TIMEOUT_S: Final = 30.0
_SIZES: Final = (100, 10_000)
_CLUSTER: Final = {"cluster.id": "bench"}
_AUTHORIZED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_MOST_CREATED: Final = 500
_SAMPLES: Final = 2_000
_SEED: Final = 1


def run(options: Options) -> list[Result]:
    """Measure produce requests with a small and with a larger batch in memory, and those of processes."""
    return [*_run_in_memory(options), *_compare_processes(options)]


def _run_in_memory(options: Options) -> list[Result]:
    cluster = EmbeddedCluster(Storage(), Gate(), Settings(_CLUSTER, _CLUSTER))
    logging.getLogger("tidelog.authorizer").setLevel(logging.INFO)
    run_sync(cluster.start(), _TIMEOUT_S)
    try:
        context = cluster.context
        run_sync(create_topics(context, CreateTopicsRequest((CreatableTopic(_TOPIC, 1, 1),))), _TIMEOUT_S)
        return [result for size in _SIZES for result in _compare(context, size, options)]
    finally:
        run_sync(cluster.stop(), _TIMEOUT_S)


def _compare_processes(options: Options) -> list[Result]:
    """Return the CPU time that authorization adds, with its confidence interval over all rounds of all pairs."""
    requests, rounds = options.pick((2_000, 30), (1_000, 5))
    added: list[float] = []
    used: list[float] = []
    for pair in range(options.pick(6, 2)):
        options.say(f"two nodes, pair {pair + 1}")
        with _cluster({}) as without, _cluster(_AUTHORIZED) as with_acls:
            _create_acls(with_acls)
            variants = {
                name: partial(_node_cpu_s, cluster, requests)
                for name, cluster in (("with", with_acls), ("without", without))
            }
            found = in_turns(variants, rounds, warm_up=2)
            added += [ours / theirs - 1 for ours, theirs in zip(found["with"], found["without"], strict=True)]
            used += found["with"]
    low, high = _interval(added)
    name = f"produce requests to a node with {_ACLS:,} ACLs"
    interval = f"{100 * low:.1f} to {100 * high:.1f} % with 95 % confidence"
    percent = 100 * statistics.median(added)
    return [
        Result(f"{name}: CPU of the node", statistics.median(used) / requests * 1e6, "µs"),
        Result(f"{name}: CPU added by authorization", percent, "%", interval, bar=Bar.on_value(at_most=3)),
    ]


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median, by resampling."""
    source = random.Random(_SEED)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(_SAMPLES))
    return medians[int(0.025 * _SAMPLES)], medians[int(0.975 * _SAMPLES)]


@contextmanager
def _cluster(config: Mapping[str, object]) -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=1, config=config) as cluster:
        with AdminClient(cluster.client_settings()) as admin:
            admin.create_topics([NewTopic(abuse.MODEST, 1, 1)])[abuse.MODEST].result(_TIMEOUT_S)
        yield cluster


def _create_acls(cluster: LocalCluster) -> None:
    """Create ACLs on other topics and of other users, and one that permits the client's requests."""
    anonymous = "User:ANONYMOUS"
    everybody = [_binding(f"topic-{n}", ResourcePatternType.LITERAL, f"User:user-{n % 100}") for n in range(_ACLS - 1)]
    bindings = [_binding(abuse.MODEST[:4], ResourcePatternType.PREFIXED, anonymous), *everybody]
    with AdminClient(cluster.client_settings()) as admin:
        for at in range(0, len(bindings), _MOST_CREATED):
            for future in admin.create_acls(bindings[at : at + _MOST_CREATED]).values():
                future.result(_TIMEOUT_S)


def _binding(name: str, pattern: ResourcePatternType, principal: str) -> SdkBinding:
    return SdkBinding(SdkResourceType.TOPIC, name, pattern, principal, "*", SdkOperation.WRITE, SdkPermissionType.ALLOW)


def _node_cpu_s(cluster: LocalCluster, requests: int) -> float:
    node = cluster.nodes[1]
    before = process.run_seconds(node.pid)
    abuse.send(node.kafka_address, requests)
    return process.run_seconds(node.pid) - before


def _compare(context: NodeContext, size: int, options: Options) -> Sequence[Result]:
    options.say(f"producing batches of {size:,} bytes")
    requests, frame = options.pick(200, 100), _produce_request(bytes(size))
    assert context.groups is not None
    nodes = {
        "with": KafkaNode(context, context.groups, _guard()),
        "without": KafkaNode(context, context.groups),
    }
    variants = {name: partial(_run_round, node, frame, requests) for name, node in nodes.items()}
    rounds = alternate(variants, options.pick(101, 21), warm_up=3)
    name = f"handler of a produce request of {size:,} bytes, {_ACLS:,} ACLs"
    microseconds = rounds.median("with") / requests * 1e6
    ratio = rounds.speed_ratio("with", "without")
    return [Result(name, microseconds, "µs", "without an authorizer", ratio)]


def _run_round(node: KafkaNode, frame: bytes, requests: int) -> float:
    return run_sync(_round(node, frame, requests), _TIMEOUT_S)


async def _round(node: KafkaNode, frame: bytes, requests: int) -> float:
    """Return the CPU seconds of some requests. They are answered at once, so nothing else runs in between."""
    caller = Caller("PLAINTEXT", ClientIdentity("bench", "/10.0.0.7"), _VERSION, _USER)
    api, frames = ProduceApi(), [bytearray(frame) for _ in range(requests)]
    await asyncio.sleep(0)
    started = time.thread_time()
    for number, each in enumerate(frames):
        response = api.begin(node, Request(caller, number, Reader(memoryview(each), 0)))
        assert isinstance(response, list)
    return time.thread_time() - started


def _guard() -> KafkaGuard:
    """Return the guard of a node whose image has ACLs on other topics and of other users, and one that permits."""
    bindings = [_allow(f"topic-{number}", PatternType.LITERAL, f"User:user-{number % 100}") for number in range(_ACLS)]
    bindings[0] = _allow(_TOPIC[:4], PatternType.PREFIXED, str(_USER))
    records = [AccessControlEntryRecord(AclId(number.to_bytes(16, "big")), acl) for number, acl in enumerate(bindings)]
    metadata = MetadataCache()
    metadata.publish(MetadataImage().apply(0, 1, records))
    return KafkaGuard(StandardAuthorizer(StandardRules(["User:admin"])), metadata)


def _allow(name: str, pattern: PatternType, principal: str) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", AclOperation.WRITE, AclPermissionType.ALLOW)


def _produce_request(value: bytes) -> bytes:
    """Return the body of a Produce request of one batch, with acks=1."""
    builder = RecordBatchBuilder()
    builder.append(None, value, timestamp_ms=0)
    batch = builder.build()
    name = _TOPIC.encode()
    head = struct.pack(">hhii", -1, 1, 30_000, 1) + struct.pack(">h", len(name)) + name
    return head + struct.pack(">iii", 1, 0, len(batch)) + batch


if __name__ == "__main__":
    run_alone(run)
