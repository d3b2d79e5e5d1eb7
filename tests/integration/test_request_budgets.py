"""The cost of hostile requests for a node and a controller; ``tests/fuzz/fuzz_request_budgets.py`` is the long form."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import pkgutil

import pytest

import tidelog.v1
from tests.fuzz.fuzz_request_budgets import (
    NODE_SERVICES,
    QUORUM_SERVICES,
    SETTINGS,
    grpc_attacks,
    kafka_attacks,
    log_failures,
    one_of_each,
    run,
    warm_up,
)
from tests.support.request_budgets import MIB, Process
from tidelog.testing import LocalCluster
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import error_from_rpc, open_channel
from tidelog_node.kafka.apis.registry import all_apis

import grpc.aio  # isort: skip

BUDGET_MIB = 8
CALLS = 16
SLACK_MIB = 24
"""The memory of gRPC and of the allocator in addition to requests."""
CONNECTION_MIB = 1
"""The memory of a connection in addition to its requests: the buffers that gRPC grows while it receives."""
PRODUCE = "/tidelog.v1.LogService/Produce"
LIST_OFFSETS = "/tidelog.v1.LogService/ListOffsets"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_worst_request_of_every_api_stays_within_its_budget() -> None:
    with LocalCluster(controllers=1, nodes=1, config=SETTINGS) as cluster:
        warm_up(cluster)
        assert asyncio.run(run(cluster, [40_000], select=one_of_each)) == []
        assert log_failures(cluster) == []


@pytest.mark.parametrize("method", [PRODUCE, LIST_OFFSETS])
@pytest.mark.parametrize(
    ("message_mib", "connections"),
    [(32, CALLS), (BUDGET_MIB - 1, CALLS), (BUDGET_MIB - 1, 1)],
    ids=["above the budget", "a connection each", "one connection"],
)
def test_calls_take_no_more_memory_than_the_budget_and_a_message_per_connection(
    small_budget: LocalCluster, method: str, message_mib: int, connections: int
) -> None:
    [node] = small_budget.nodes.values()
    process = Process(node.pid)
    resident = process.forget_peak()
    codes = asyncio.run(_calls(node.address, method, message_mib * MIB, connections))
    grown_mib = (process.peak() - resident) / MIB

    per_connection = 0 if message_mib > BUDGET_MIB else message_mib
    # Of what is under way the parsed message and the handler's copy are in memory; of what is received gRPC's buffers,
    # and for a moment the bytes that are made of them.
    bound = 2.25 * BUDGET_MIB + 2 * (connections + 1) * per_connection + connections * CONNECTION_MIB + SLACK_MIB
    assert grown_mib < bound, f"{grown_mib:.0f} MiB, at most {bound:.0f}"
    if message_mib > BUDGET_MIB:
        assert codes == {ErrorCode.MESSAGE_TOO_LARGE}
    else:
        assert codes <= {None, ErrorCode.THROTTLING_QUOTA_EXCEEDED}


@pytest.fixture(scope="module")
def small_budget() -> LocalCluster:
    with LocalCluster(controllers=1, nodes=1, config={"queued.max.request.bytes": BUDGET_MIB * MIB}) as cluster:
        yield cluster


async def _calls(address: str, method: str, size: int, connections: int) -> set[ErrorCode | None]:
    """Return with what the calls ended."""
    if method == PRODUCE:
        partition = pb.ProducePartition(records=bytes(size))
        request = pb.ProduceRequest(topics=[pb.ProduceTopic(name="t", partitions=[partition])]).SerializeToString()
    else:
        request = pb.ListOffsetsRequest(topics=[pb.ListOffsetsTopic(name="x" * size)]).SerializeToString()

    async def call(channel: grpc.aio.Channel) -> ErrorCode | None:
        try:
            await channel.unary_unary(method)(request, timeout=60)
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error).code
        return None

    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(open_channel(address)) for _ in range(connections)]
        return set(await asyncio.gather(*(call(channels[n % connections]) for n in range(CALLS))))


def test_worst_requests_are_made_of_every_api_and_every_method() -> None:
    attacks = list(kafka_attacks(1_000))
    assert {attack.name.split()[1] for attack in attacks} >= {api.name for api in all_apis()}

    modules = [
        importlib.import_module(f"tidelog.v1.{m.name}")
        for m in pkgutil.iter_modules(tidelog.v1.__path__)
        if m.name.endswith("_service_pb2")
    ]
    services = {s.full_name: s for m in modules for s in m.DESCRIPTOR.services_by_name.values()}
    # Only listeners with SASL serve it; tests/unit/security has its hostile requests.
    del services["tidelog.v1.AuthenticationService"]
    assert services.keys() <= {service.full_name for service in (*NODE_SERVICES, *QUORUM_SERVICES)}

    methods = {attack.method for attack in grpc_attacks((*NODE_SERVICES, *QUORUM_SERVICES), 1_000)}
    assert methods >= {f"/{s.full_name}/{method.name}" for s in services.values() for method in s.methods}
