"""Tidelog's Raft engine: the controller's interface to the driver of the Raft core."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import grpc.aio

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.codec import MAX_ENTRY_BYTES
from tidelog_quorum.raft.core import (
    AddVoterRequested,
    Event,
    RaftConfig,
    RandomMs,
    ReadRequested,
    RemoveVoterRequested,
    TransferRequested,
    UpdateVoterRequested,
    Voter,
    VoterSet,
)
from tidelog_quorum.raft.driver import RaftDriver
from tidelog_quorum.raft.links import Resolve, resolve_address
from tidelog_quorum.raft.peers import Introduction
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, QuorumDescription, RaftEngine, RaftListener
from tidelog_quorum.raft.snapshot_config import SnapshotConfig

__all__ = ["CommittedEntry", "LeaderAndEpoch", "RaftEngine", "RaftListener", "TidelogRaft"]

logger = logging.getLogger(__name__)
_RANDOM = random.SystemRandom()
_ANSWER_SLACK_S = 0.25
"""The extra time to wait for the core, which can tell why a request timed out."""


class TidelogRaft:
    """One replica of the quorum: a :class:`RaftEngine` on the event loop that starts it.

    ``voters`` is the first set of voters, with or without this replica (which then follows without a vote); the set in
    the log takes precedence. ``advertised`` is the address at which the others reach this replica; ``bootstrap`` has
    addresses of controllers to ask when the voters are unknown. The service is added to ``server``, which the caller
    starts and stops; it should serve until :meth:`stop` has returned. When the disk fails or is full, or another voter
    or the listener breaks its contract, the engine falls silent for good: it acknowledges nothing more, and the other
    voters elect a leader. :meth:`wait_failed` then raises the error.
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        data_dir: Path | str,
        cluster_id: str,
        config: RaftConfig,
        server: grpc.aio.Server,
        *,
        advertised: tuple[str, int],
        bootstrap: Sequence[tuple[str, int]] = (),
        snapshots: SnapshotConfig | None = None,
        random_ms: RandomMs = _RANDOM.randrange,
        resolve: Resolve = resolve_address,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._driver = RaftDriver(
            Introduction(cluster_id, node_id, b"", advertised),
            voters,
            Path(data_dir),
            config,
            server,
            bootstrap=bootstrap,
            snapshots=snapshots or SnapshotConfig(),
            random_ms=random_ms,
            resolve=resolve,
        )

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this voter knows."""
        return self._driver.leader

    @property
    def directory_id(self) -> bytes:
        """The 16 bytes that distinguish this log from any other one; empty before :meth:`start`."""
        return self._driver.directory_id

    async def start(self, listener: RaftListener) -> None:
        """Load the log and join the quorum.

        Raises:
            TidelogError: see :func:`tidelog_quorum.raft.storage.open_storage`.
        """
        await self._driver.start(listener)

    async def stop(self) -> None:
        """Leave the quorum and release the disk; a leader hands over first, within an election timeout."""
        if self.leader.is_self and len(self._driver.running().voters) > 1:
            try:
                await self.transfer_leadership(None, self._config.election_timeout_ms)
            except TidelogError as error:
                logger.info("controller %s stops without handing over: %s", self._node_id, error)
        await self._driver.stop()

    async def wait_failed(self) -> NoReturn:
        """Wait until the engine fails, and raise its error; the process should then log it and exit.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk failed; UNKNOWN_SERVER_ERROR, a contract was broken.
        """
        await self._driver.wait_failed()

    def propose(self, payload: bytes, epoch: int) -> int:
        """Add ``payload`` to the leader's log and return its index; see :class:`RaftEngine`.

        Raises:
            TidelogError: as documented there; MESSAGE_TOO_LARGE, the payload has more than 32 MiB.
        """
        if len(payload) > MAX_ENTRY_BYTES:
            raise error_for(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a proposal of {len(payload)} bytes is above the {MAX_ENTRY_BYTES} allowed",
            )
        return self._driver.propose(payload, epoch)

    async def read_barrier(self) -> int:
        """Return an index that covers everything committed before the call; see :class:`RaftEngine`."""
        return await self._driver.request(ReadRequested)

    def describe(self) -> QuorumDescription:
        """Describe the quorum; see :class:`RaftEngine`."""
        return self._driver.describe()

    async def take_snapshot(self) -> tuple[int, int]:
        """Take a snapshot and drop the log before it; see :class:`RaftEngine`."""
        return await self._driver.take_snapshot()

    async def add_voter(self, voter: Voter, timeout_ms: int) -> None:
        """Give a vote to a replica that follows the log; see :class:`RaftEngine`."""
        await self._ask(
            lambda request_id: AddVoterRequested(request_id, voter, timeout_ms),
            timeout_ms,
            f"adding voter {voter.voter_id}",
        )

    async def remove_voter(self, voter_id: int, directory_id: bytes, timeout_ms: int) -> None:
        """Remove a voter; see :class:`RaftEngine`."""
        await self._ask(
            lambda request_id: RemoveVoterRequested(request_id, voter_id, directory_id),
            timeout_ms,
            f"removing voter {voter_id}",
        )

    async def update_voter(self, voter: Voter, leader_epoch: int | None, timeout_ms: int) -> None:
        """Change a voter's address; see :class:`RaftEngine`."""
        await self._ask(
            lambda request_id: UpdateVoterRequested(request_id, voter, leader_epoch),
            timeout_ms,
            f"moving voter {voter.voter_id}",
        )

    async def transfer_leadership(self, to: int | None, timeout_ms: int) -> int:
        """Hand the leadership over to another voter and return its id; see :class:`RaftEngine`."""
        return await self._ask(
            lambda request_id: TransferRequested(request_id, to, timeout_ms), timeout_ms, "handing the leadership over"
        )

    async def _ask(self, event: Callable[[int], Event], timeout_ms: int, what: str) -> int:
        try:
            async with asyncio.timeout(timeout_ms / 1000 + _ANSWER_SLACK_S):
                return await self._driver.request(event)
        except TimeoutError as error:
            text = f"{what} was not done within {timeout_ms} ms; it may still be"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from error
