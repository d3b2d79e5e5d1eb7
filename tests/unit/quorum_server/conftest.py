"""A Raft engine with one voter and no disk, whose commits and elections a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tidelog.v1 import common_pb2
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftListener


class FakeRaft:
    """``commit()`` commits what was proposed, at once after each proposal while ``auto_commit`` is set."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.leader = LeaderAndEpoch(None, 0, False)
        self.log: list[CommittedEntry] = []
        self.committed = 0
        self.auto_commit = True
        self.listener: RaftListener | None = None

    async def start(self, listener: RaftListener) -> None:
        self.listener = listener

    async def stop(self) -> None:
        pass

    def elect(self, leader_id: int | None, *, keep_uncommitted: bool = True) -> None:
        """Begin a new term; a leader writes an empty entry first, as Raft demands."""
        if not keep_uncommitted:
            del self.log[self.committed :]
        self.leader = LeaderAndEpoch(leader_id, self.leader.epoch + 1, leader_id == self.node_id)
        assert self.listener is not None
        self.listener.on_leader_change(self.leader)
        if leader_id is not None:
            self._append(b"")

    def propose(self, payload: bytes, epoch: int) -> int:
        if not self.leader.is_self or self.leader.epoch != epoch:
            raise error_for(ErrorCode.NOT_CONTROLLER, f"not leading in epoch {epoch}")
        return self._append(payload)

    async def read_barrier(self) -> int:
        if not self.leader.is_self:
            raise error_for(ErrorCode.NOT_CONTROLLER, "not leading")
        return self.committed

    def commit(self, entries: int | None = None) -> None:
        ready: Sequence[CommittedEntry] = self.log[self.committed :][:entries]
        self.committed += len(ready)
        if ready:
            assert self.listener is not None
            self.listener.on_commit(ready)

    def _append(self, payload: bytes) -> int:
        self.log.append(CommittedEntry(len(self.log) + 1, self.leader.epoch, payload))
        if self.auto_commit:
            asyncio.get_running_loop().call_soon(self.commit)
        return len(self.log)


@pytest.fixture(scope="session")
def features() -> list[common_pb2.FeatureRange]:
    """Return the features that a node of this version registers."""
    return [
        common_pb2.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level)
        for f in SUPPORTED_FEATURES.values()
    ]


@pytest.fixture
def new_raft() -> Callable[..., FakeRaft]:
    return FakeRaft
