"""The thread that writes: what queues while the disk is slow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.commands import StoreChunk
from tidelog_quorum.raft.core.messages import HardState, Snapshot
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.storage import writer
from tidelog_quorum.raft.storage.raft_storage import Write, Written
from tidelog_quorum.raft.storage.stored_log import StoredState
from tidelog_quorum.raft.storage.writer import StorageWriter

MIB = 1024 * 1024
SNAPSHOT = Snapshot(9, 1, VoterSet([Voter.at(1, "h", 1)]), 1024 * MIB, 0)


class SlowStorage:
    """Writes nothing until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def write(self, writes: Sequence[Write]) -> Written:
        assert self.go_on.wait(10)
        return Written(None)

    def close(self) -> None:
        pass


def test_writer_has_no_room_for_chunks_while_the_disk_is_behind(wait_until: Callable[..., Any]) -> None:
    async def run() -> None:
        errors: list[TidelogError] = []
        storage, tested = SlowStorage(), StorageWriter(lambda _: None, errors.append)
        await tested.open(lambda: (storage, StoredState(HardState())))  # type: ignore[arg-type, return-value]
        count = 0
        while tested.accepts_chunks:
            tested.submit(StoreChunk(SNAPSHOT, count * MIB, bytes(MIB)))
            count += 1
            assert count < 32
        storage.go_on.set()
        await wait_until(lambda: tested.accepts_chunks)
        await tested.close()
        assert errors == []

    asyncio.run(run())


def test_writer_gives_a_disk_up_that_does_not_answer(
    wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_WATCH_INTERVAL_S", 0.02)

    async def run() -> None:
        errors: list[TidelogError] = []
        storage, tested = SlowStorage(), StorageWriter(lambda _: None, errors.append)
        await tested.open(lambda: (storage, StoredState(HardState())))  # type: ignore[arg-type, return-value]
        await asyncio.sleep(1)
        assert errors == []
        tested.submit(StoreChunk(SNAPSHOT, 0, b""))
        await wait_until(lambda: errors)
        assert [error.code for error in errors] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert "has not answered" in errors[0].message
        storage.go_on.set()
        await tested.close()

    asyncio.run(run())
