"""A running quorum that moves from one listener to another."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet

pytestmark = pytest.mark.costly

Engines = Callable[..., Any]
WaitUntil = Callable[..., Any]
HOST = "127.0.0.1"
FAST = RaftConfig(election_timeout_ms=400, heartbeat_interval_ms=30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def test_quorum_moves_to_another_listener_one_replica_at_a_time(new_engines: Engines, wait_until: WaitUntil) -> None:
    async def run() -> None:
        cluster = new_engines(3, FAST)
        opened = {i: ControllerEndpoint(*address, "OPEN") for i, address in cluster.addresses.items()}
        secured = {i: ControllerEndpoint(HOST, free_port(), "SECURED") for i in opened}
        stages = [
            ({i: Endpoints([opened[i]]) for i in opened}, "OPEN"),
            ({i: Endpoints([opened[i], secured[i]]) for i in opened}, "OPEN"),
            ({i: Endpoints([opened[i], secured[i]]) for i in opened}, "SECURED"),
            ({i: Endpoints([secured[i]]) for i in opened}, "SECURED"),
        ]
        committed: list[bytes] = []

        async def write() -> None:
            """Commit an entry at the leader, whoever that is, and wait until all replicas have it."""
            leader = await cluster.leader()
            committed.append(b"%d" % len(committed))
            leader.engine.propose(committed[-1], leader.engine.leader.epoch)
            await wait_until(lambda: all(p.listener.payloads == committed for p in cluster.running.values()))

        async def start(stage: int, node_id: int) -> None:
            all_endpoints, name = stages[stage]
            cluster.endpoints[node_id] = all_endpoints[node_id]
            # A controller's file has the others' addresses for its own first listener.
            found = {i: endpoints.address(name) for i, endpoints in all_endpoints.items()}
            voters = VoterSet(Voter.at(i, *address, listener=name) for i, address in found.items() if address)
            await cluster.start(node_id, voters=voters, listener=name)

        for node_id in opened:
            await start(0, node_id)
        await write()
        for stage in (1, 2, 3):
            for node_id in opened:
                await cluster.stop(node_id)
                await write()
                await start(stage, node_id)
                endpoints = stages[stage][0][node_id]
                await wait_until(
                    lambda i=node_id, e=endpoints: all(
                        (known := p.listener.voters.get(i)) is not None and known.endpoints == e
                        for p in cluster.running.values()
                    )
                )
        await write()
        leader = await cluster.settled_leader()
        assert {e.name for v in leader.engine.describe().voters for e in v.endpoints} == {"SECURED"}
        await cluster.__aexit__()

    asyncio.run(run())
