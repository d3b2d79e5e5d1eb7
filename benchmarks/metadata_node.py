"""A node that follows the metadata in a process of its own, and the pauses of its event loop meanwhile.

It uses the real follower, registry and log directories of one broker, connected to real controllers. It replicates
nothing and has no clients.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks import process
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.transport import open_channel
from tidelog_node.event_loop import SystemClock
from tidelog_node.log import LogConfig
from tidelog_node.partitions import LogManager, MetadataCache, PartitionRegistry
from tidelog_node.partitions.fetchers.fetcher_pool import FetcherPool
from tidelog_node.partitions.isr_changes import IsrChanges
from tidelog_node.server.metadata_follower import MetadataFollower

_PROBE_S = 0.001


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The identity of the node, its controllers, and its log directory."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    cluster_id: str
    voters: dict[int, tuple[str, int]]
    directory: Path


@dataclass(frozen=True, slots=True)
class Following:
    """The result: seconds until all is applied, the longest pause of the event loop, replicas, anonymous memory."""

    seconds: float
    longest_stall_s: float
    replicas: int
    memory_bytes: int


def follow_in_a_process(place: NodePlace) -> Following:
    """Follow from the beginning until the first image is applied."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (place,))


def _run(place: NodePlace) -> Following:
    import uvloop

    return uvloop.run(_follow(place))


class _Nobody:
    """A stand-in for the components that replicate logs and call the controllers."""

    def begin(self, *_: Any) -> None:
        pass

    def end(self, *_: Any) -> None:
        pass

    def add(self, *_: Any) -> None:
        pass

    def remove(self, *_: Any) -> None:
        pass

    def submit(self, *_: Any) -> None:
        pass

    def pause_additions(self) -> None:
        pass

    def resume_additions(self) -> None:
        pass


async def _follow(place: NodePlace) -> Following:
    broker_id = BrokerId(place.broker_id)
    directories = LogManager.open([str(place.directory)], place.cluster_id, broker_id)
    clock, cache = SystemClock(), MetadataCache()
    registry = PartitionRegistry(broker_id, directories, {}, LogConfig(), 30_000, clock, lambda _: None)
    registry.connect(cast("FetcherPool", _Nobody()), cast("IsrChanges", _Nobody()))
    channels = {format_address(*address): open_channel(format_address(*address)) for address in place.voters.values()}
    follower = MetadataFollower(
        broker_id,
        place.incarnation_id,
        place.cluster_id,
        place.voters,
        lambda address: channels[address],
        registry,
        cache,
        lambda _: None,
        lambda _: None,
    )
    follower.note_registration(BrokerEpoch(place.broker_epoch))
    probe = asyncio.create_task(_longest_stall(follower.is_current))
    before, started = process.anonymous_bytes(_own_pid()), time.perf_counter()
    running = asyncio.create_task(follower.run())
    longest = await probe
    seconds = time.perf_counter() - started
    memory = process.anonymous_bytes(_own_pid()) - before
    running.cancel()
    await asyncio.wait([running])
    replicas = sum(1 for _ in registry)
    for channel in channels.values():
        await channel.close()
    await registry.close()
    directories.close(clean=False)
    return Following(seconds, longest, replicas, memory)


async def _longest_stall(until: asyncio.Event) -> float:
    longest = 0.0
    while not until.is_set():
        begun = time.perf_counter()
        await asyncio.sleep(_PROBE_S)
        longest = max(longest, time.perf_counter() - begun - _PROBE_S)
    return longest


def _own_pid() -> int:
    import os

    return os.getpid()
