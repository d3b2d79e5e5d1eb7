"""Sends every API of a cluster, by both protocols, the worst requests of several sizes, and measures what each costs.

    python -m tests.fuzz.fuzz_request_budgets --sizes 1000,100000,10000000 --only ListOffsets
    python -m tests.fuzz.fuzz_request_budgets --sizes 10000000 --at controller --timeout 600

Exit code 1 says that a request cost more memory, time of the event loop or open files than it may, that a process
ended, or that its log has a failure without a name.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2

from tests.support.hostile_batches import grpc_produce, hostile_batches, kafka_produce
from tests.support.kafka_requests import declarations
from tests.support.request_budgets import (
    MIB,
    Budget,
    Cost,
    Process,
    Watch,
    cost_of,
    grpc_ping,
    kafka_ping,
    send_grpc,
    send_kafka,
)
from tests.support.worst_requests import ALONE, grpc_requests, kafka_frames
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster
from tidelog.v1 import (
    admin_service_pb2,
    controller_service_pb2,
    group_service_pb2,
    log_service_pb2,
    quorum_service_pb2,
    raft_service_pb2,
    transaction_service_pb2,
)
from tidelog_foundation.errors import KafkaException
from tidelog_foundation.transport import open_channel
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.api_keys import ApiKey

SETTINGS = {"queued.max.request.bytes": 64 * MIB, "auto.create.topics.enable": "false"}
TOPIC, PARTITIONS = "worst", 8
DECOMPRESSED = 2 * 64 * MIB
"""A batch may decompress to 64 times max.message.bytes, and its buffer grows by copies."""
NAMELESS = (
    "with an unexpected error",
    "Traceback (most recent call last)",
    "never retrieved",
)
NODE_SERVICES = (
    admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
    group_service_pb2.DESCRIPTOR.services_by_name["GroupService"],
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    log_service_pb2.DESCRIPTOR.services_by_name["LogService"],
    transaction_service_pb2.DESCRIPTOR.services_by_name["TransactionService"],
)
QUORUM_SERVICES = (
    admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
    controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"],
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    quorum_service_pb2.DESCRIPTOR.services_by_name["QuorumService"],
    raft_service_pb2.DESCRIPTOR.services_by_name["RaftService"],
)


def budget_for(size: int) -> Budget:
    """Return what a request of a size may cost: the memory of its objects, and some slices of the loop."""
    return Budget(memory_bytes=24 * MIB + min(40 * size, 240 * MIB + 6 * size), loop_s=0.25)


@dataclass(frozen=True, slots=True)
class Attack:
    """A request and how to send it."""

    name: str
    build: Callable[[], bytes]
    method: str = ""
    memory_bytes: int = 0
    """The memory that it may use in addition to the allowance for its size."""


def kafka_attacks(size: int, only: str = "") -> Iterator[Attack]:
    """Yield the worst requests of each API, in its first and its last version."""
    kinds = declarations()
    for key, api in all_apis().items():
        if only.lower() not in _plain(key):
            continue
        for version in sorted(set(api.versions)):
            for name, build in kafka_frames(kinds[key], version, size):
                yield Attack(f"Kafka {key.name} v{version}, {name}", build)
    if only.lower() in "produce":
        yield from _produce_attacks(size)


def _produce_attacks(size: int) -> Iterator[Attack]:
    """Yield batches of records that cost more than their bytes say; as many partitions as fit get one each."""
    for name, batch in hostile_batches(size):
        records = [batch] * max(1, min(PARTITIONS, size // len(batch)))
        yield Attack(f"Kafka PRODUCE of {name} v12", partial(kafka_produce, TOPIC, records), memory_bytes=DECOMPRESSED)
        request = partial(grpc_produce, TOPIC, records)
        path = "/tidelog.v1.LogService/Produce"
        yield Attack(f"gRPC LogService.Produce of {name}", request, path, memory_bytes=DECOMPRESSED)


def _plain(key: ApiKey) -> str:
    return key.name.replace("_", "").lower()


def grpc_attacks(services: Sequence[ServiceDescriptor], size: int, only: str = "") -> Iterator[Attack]:
    """Yield the worst requests of each method."""
    for service in services:
        for method in service.methods:
            if only.lower() not in method.name.lower():
                continue
            for name, build in grpc_requests(method.input_type, size):
                yield Attack(f"gRPC {service.name}.{method.name}, {name}", build, f"/{service.full_name}/{method.name}")


def one_of_each(attacks: Iterable[Attack]) -> list[Attack]:
    """Return of each API and method one request, that with elements at the greatest depth, in the last version.

    And of those with defaults beside the elements another one.
    """
    chosen: dict[tuple[str, bool], Attack] = {}
    for attack in attacks:
        api = attack.name.partition(",")[0].partition(" v")[0]
        sort = api, attack.name.endswith(ALONE)
        known = chosen.get(sort)
        if known is None or attack.name.count(".") >= known.name.count("."):
            chosen[sort] = attack
    return list(chosen.values())


async def run(
    cluster: LocalCluster,
    sizes: Sequence[int],
    only: str = "",
    select: Callable[[Iterable[Attack]], Iterable[Attack]] = list,
    report: Callable[[Cost], None] = lambda _: None,
    at: str = "",
    timeout_s: float = 60,
) -> list[str]:
    """Attack the listeners whose names contain ``at``; return what cost too much.

    The listeners are "node: Kafka", "node: gRPC" and "controller: gRPC". Each request is measured for ``timeout_s``.
    """
    [node], [controller] = cluster.nodes.values(), cluster.controllers.values()
    host, _, port = cluster.kafka_bootstrap_servers.rpartition(":")
    kafka = host, int(port)
    found: list[str] = []
    for where, handle, services in (("node", node, NODE_SERVICES), ("controller", controller, QUORUM_SERVICES)):
        is_node = handle is node

        def attacks_of(
            size: int, where: str = where, services: Sequence[ServiceDescriptor] = services
        ) -> Iterator[Attack]:
            if services is NODE_SERVICES and at in f"{where}: Kafka":
                yield from kafka_attacks(size, only)
            if at in f"{where}: gRPC":
                yield from grpc_attacks(services, size, only)

        def send(
            method: str, raw: bytes, note_sent: Callable[[], None], address: str = handle.address
        ) -> Awaitable[None]:
            if method:
                return send_grpc(address, method, raw, note_sent)
            return send_kafka(kafka, raw, note_sent)

        process = Process(handle.pid)
        async with kafka_ping(kafka) if is_node else grpc_ping(handle.address) as ping:
            watch = Watch(process, ping)
            for size in sizes:
                for attack in select(attacks_of(size)):
                    raw = attack.build()
                    sender = partial(send, attack.method, raw)
                    cost = await cost_of(process, watch, f"{where}: {attack.name}", len(raw), sender, timeout_s)
                    report(cost)
                    budget = budget_for(size)
                    budget = dataclasses.replace(budget, memory_bytes=budget.memory_bytes + attack.memory_bytes)
                    excess = cost.excess(budget)
                    if excess is not None:
                        found.append(excess)
            await watch.stop()
    return found


def warm_up(cluster: LocalCluster) -> None:
    """Create the topic of the batches, have the internal topics created, and wait until their files are there."""
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                admin.describe_consumer_groups(["g"])["g"].result()
            asyncio.run(_find_coordinator_of_transactions(cluster))
            if admin.list_topics().topics.keys() >= {"__consumer_offsets", "__transaction_state"}:
                break
            time.sleep(0.1)
    [node] = cluster.nodes.values()
    process, files = Process(node.pid), -1
    while files != (files := process.files()):
        time.sleep(1)


async def _find_coordinator_of_transactions(cluster: LocalCluster) -> None:
    [node] = cluster.nodes.values()
    async with open_channel(node.address) as channel:
        request = group_service_pb2.FindCoordinatorRequest(transactional_ids=["t"])
        await channel.unary_unary("/tidelog.v1.GroupService/FindCoordinator")(request.SerializeToString(), timeout=30)


def log_failures(cluster: LocalCluster) -> list[str]:
    """Return the lines of the logs that tell of failures without a name."""
    handles = (*cluster.nodes.values(), *cluster.controllers.values())
    lines = [line for handle in handles for line in handle.log_path.read_text(errors="replace").splitlines()]
    return [line for line in lines if any(mark in line for mark in NAMELESS)]


def main() -> int:
    """Run against a cluster of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,100000,10000000")
    parser.add_argument("--only", default="", help="a part of the APIs' names")
    parser.add_argument("--at", default="", help='a part of "node: Kafka", "node: gRPC" or "controller: gRPC"')
    parser.add_argument("--timeout", type=float, default=60, help="measure each request for this many seconds at most")
    options = parser.parse_args()

    def report(cost: Cost) -> None:
        print(
            f"{cost.loop_s * 1000:6.0f} ms {cost.memory_bytes / MIB:6.0f} MiB {cost.files:3d} files "
            f"{cost.total_s:6.2f} s {cost.size:>10,} bytes  {cost.name}{'' if cost.is_answered else ' (no answer)'}",
            flush=True,
        )

    with LocalCluster(controllers=1, nodes=1, config=SETTINGS) as cluster:
        warm_up(cluster)
        sizes = [int(size) for size in options.sizes.split(",")]
        found = asyncio.run(run(cluster, sizes, options.only, report=report, at=options.at, timeout_s=options.timeout))
        found += log_failures(cluster) + cluster.failures
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
