"""A controller that starts with a long log: the event loop turns while it catches up."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from pathlib import Path

import grpc.aio
import pytest
from topic_ids import SequentialTopicIds

from tidelog_foundation.transport import server_options
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.codec import encode_batch
from tidelog_quorum.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from tidelog_quorum.raft.core.commands import Persist
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.engine import TidelogRaft
from tidelog_quorum.raft.storage.raft_storage import open_storage
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController

_MAX_TURN_S = 0.05
_PARTITIONS = 20_000
_SMALL_ENTRIES = 4_000


def write_log(directory: Path) -> int:
    """Write a log of two entries as large as they may be and thousands of small ones; return its last index."""
    payloads = []
    for number in range(2):
        topic_id = number.to_bytes(16, "big")
        partitions = [PartitionRecord(topic_id, i, (1, 2, 3), (1, 2, 3), 1) for i in range(_PARTITIONS - 1)]  # type: ignore[arg-type]
        payloads.append(encode_batch([TopicRecord(f"t{number}", topic_id), *partitions]))  # type: ignore[arg-type]
    change = [PartitionChangeRecord(bytes(16), i, leader=2) for i in range(_SMALL_ENTRIES)]  # type: ignore[arg-type]
    payloads += [encode_batch([record]) for record in change]
    storage, _ = open_storage(directory, "c", 1)
    entries = tuple(Entry(i, 1, EntryKind.DATA, payload) for i, payload in enumerate(payloads, 1))
    storage.write([Persist(1, HardState(1), None, entries)])
    storage.close()
    return len(entries)


async def longest_turn_s(until: asyncio.Event) -> float:
    """Return the longest time that this thread has worked without a turn of the event loop."""
    longest, before = 0.0, time.thread_time()
    while not until.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest


@pytest.mark.costly
def test_replay_of_a_long_log_lets_the_event_loop_turn(tmp_path: Path) -> None:
    last_index = write_log(tmp_path)
    # A controller excludes what lasts from collections; here they would visit the objects of all tests before.
    gc.disable()

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        server = grpc.aio.server(options=server_options())
        voters = VoterSet([Voter.at(1, "127.0.0.1", port)])
        engine = TidelogRaft(1, voters, tmp_path, "c", RaftConfig(), advertised=Endpoints.at("127.0.0.1", port))
        engine.serve_on(server)
        controller = Controller(ControllerConfig(cluster_id="c"), SequentialTopicIds())
        quorum = QuorumController(controller, engine, MetadataFeed(), 9_000, lambda: time.monotonic_ns() // 1_000_000)
        await engine.start(quorum)
        done = asyncio.Event()
        measuring = asyncio.create_task(longest_turn_s(done))
        async with asyncio.timeout(30):
            while not controller.is_active:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        done.set()
        assert quorum.controller.committed.offset > last_index
        assert quorum.controller.committed.topics["t0"].partitions[_SMALL_ENTRIES - 1].leader == 2
        assert await measuring < _MAX_TURN_S
        await engine.stop()
        await server.stop(0)

    try:
        asyncio.run(run())
    finally:
        gc.enable()
