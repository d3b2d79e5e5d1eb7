"""The cost of thousands of open transactions on one node: its memory, and the time to load them after its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from benchmarks import process
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import Found
from benchmarks.peers.peer import Peer
from benchmarks.peers.transaction_requests import Coordinator, TransactionRequests
from benchmarks.result import Result
from tidelog_foundation.errors import ErrorCode, RetriableError, TidelogError

T = TypeVar("T")

_TOPIC, _PARTITIONS = "opened", 3
_OPEN = 2_000
_AT_ONCE = 16
_IDS_PER_CALL = 1_000
_TIMEOUT_S = 120.0
_LOOK_S = 0.005
_SAMPLE = 100
_MB = 1e6
_ONGOING = (ErrorCode.NONE, "Ongoing")


@dataclass(frozen=True, slots=True)
class _Opened:
    """The measurements of one cluster. Times are in seconds."""

    memory_mb: float
    loaded_s: float
    """From the last answer of the survivors that they coordinate other ids, to the answers about all ids."""
    served_s: float
    """From the kill of the node on."""


def open_transactions(clusters: Clusters) -> list[Result]:
    """Open 2,000 transactions whose coordinator is one node, measure the node's memory, and kill it.

    The bars are limits on Tidelog's own figures.
    """
    found = Found({peer.name: [_open_and_kill(clusters, peer)] for peer in clusters.peers})
    name = f"{_OPEN:,} transactional ids open on one of {clusters.text}"
    return [
        found.result(f"{name}: memory", "MB", lambda it: it.memory_mb, "lower", at_most_value=30),
        found.result(f"{name}: loaded by other nodes in", "s", lambda it: it.loaded_s, "lower", at_most_value=1),
        found.result(f"{name}: node killed to served again", "s", lambda it: it.served_s, "lower"),
    ]


def _open_and_kill(clusters: Clusters, peer: Peer) -> _Opened:
    clusters.options.say(f"opening {_OPEN:,} transactions on {peer.name}")
    create_topic(peer, _TOPIC, _PARTITIONS, clusters.replicas)
    return asyncio.run(_Opening(peer).run())


class _Opening:
    """One measurement of one cluster, and the requests for it."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._addresses = peer.bootstrap_servers.split(",")
        self._requests = TransactionRequests()

    async def run(self) -> _Opened:
        """Open the transactions, and kill their coordinator."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                node, ids = await self._ids_of_one_node()
                pid = self._peer.broker_pid(node.node_id)
                before = process.anonymous_bytes(pid)
                await self._open(node, ids)
                memory = process.anonymous_bytes(pid) - before
                self._addresses.remove(node.address)
                killed_s = time.perf_counter()
                self._peer.kill(node.node_id)
                elected_s, served_s = await self._times_of_failover(ids)
                return _Opened(memory / _MB, served_s - elected_s, served_s - killed_s)
        finally:
            await self._requests.close()

    async def _ids_of_one_node(self) -> tuple[Coordinator, list[str]]:
        """Return a node, and transactional ids that it coordinates."""
        ids: dict[Coordinator, list[str]] = {}
        for start in itertools.count(step=_IDS_PER_CALL):
            names = [f"open-{number}" for number in range(start, start + _IDS_PER_CALL)]
            found = await _repeated(partial(self._requests.coordinators, self._addresses[0], names))
            for name, node in found.items():
                ids.setdefault(node, []).append(name)
                if len(ids[node]) == _OPEN:
                    return node, ids[node]
        raise AssertionError("there are always more names")

    async def _open(self, node: Coordinator, ids: Sequence[str]) -> None:
        left = iter(ids)

        async def work() -> None:
            for name in left:
                await _repeated(partial(self._requests.begin, node.address, name, _TOPIC, _PARTITIONS))

        async with asyncio.TaskGroup() as tasks:
            for number in range(_AT_ONCE):
                tasks.create_task(work(), name=f"opener-{number}")

    async def _times_of_failover(self, ids: Sequence[str]) -> tuple[float, float]:
        """Return when the last shard had a new leader, and when all transactions were served again."""
        elected_s = time.perf_counter()
        sample = ids[:: len(ids) // _SAMPLE]
        while True:
            asked_s = time.perf_counter()
            found = await self._states(sample)
            if all(_ONGOING in answers for answers in found.values()):
                break
            if any(all(code is ErrorCode.NOT_COORDINATOR for code, _ in answers) for answers in found.values()):
                elected_s = asked_s
            await asyncio.sleep(_LOOK_S)
        served_s = time.perf_counter()
        missing = [name for name, answers in (await self._states(ids)).items() if _ONGOING not in answers]
        if missing:
            raise RuntimeError(f"{len(missing)} transactions are lost, such as {missing[0]}")
        return elected_s, served_s

    async def _states(self, ids: Sequence[str]) -> dict[str, set[tuple[ErrorCode, str]]]:
        """Return the answers of all remaining nodes about each id."""
        found: dict[str, set[tuple[ErrorCode, str]]] = {name: set() for name in ids}
        for address in self._addresses:
            with contextlib.suppress(TidelogError):
                for name, state in zip(ids, await self._requests.states(address, ids), strict=True):
                    found[name].add(state)
        return found


async def _repeated(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call, repeated after retriable errors."""
    while True:
        try:
            return await call()
        except RetriableError:
            await asyncio.sleep(_LOOK_S)
