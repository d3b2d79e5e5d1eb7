"""The cost of authorization: produce requests of Kafka's protocol to a node with 10,000 ACLs, and to one without.

The node runs in this process, in memory. A round is a number of requests of one connection, each with one batch. The
time is the CPU time of the node's thread, from the received bytes to those of the response.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate
from benchmarks.suite import run_alone
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


def run(options: Options) -> list[Result]:
    """Measure produce requests with a small and with a larger batch."""
    cluster = EmbeddedCluster(Storage(), Gate(), Settings(_CLUSTER, _CLUSTER))
    logging.getLogger("tidelog.authorizer").setLevel(logging.INFO)
    run_sync(cluster.start(), _TIMEOUT_S)
    try:
        context = cluster.context
        run_sync(create_topics(context, CreateTopicsRequest((CreatableTopic(_TOPIC, 1, 1),))), _TIMEOUT_S)
        return [result for size in _SIZES for result in _compare(context, size, options)]
    finally:
        run_sync(cluster.stop(), _TIMEOUT_S)


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
    name = f"produce request of {size:,} bytes, {_ACLS:,} ACLs"
    microseconds = rounds.median("with") / requests * 1e6
    ratio = rounds.speed_ratio("with", "without")
    return [Result(name, microseconds, "µs", "without an authorizer", ratio, Bar.on_ratio(at_least=1 / 1.03))]


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
