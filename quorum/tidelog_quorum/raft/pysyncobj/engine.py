"""A second :class:`~tidelog_quorum.raft.protocol.RaftEngine`, on the library pysyncobj: for development on one machine.

pysyncobj replicates a queue of Tidelog's own bytes, the frames. Every replica turns frames into the listener's log by
the same rule (:class:`~tidelog_quorum.raft.pysyncobj.log.LogState`), so an ambiguous outcome cannot become a wrong one:

- a ``CLAIM`` of a new leader is an entry without payload if its term is above the log's, and begins that term;
- a ``DATA`` frame is an entry if it names the log's term, its leader and the index after the last one;
- a ``BARRIER`` is not an entry: once it is applied in its leader's term, everything committed before it is applied;
- any other frame is dropped: its sender no longer led, or an earlier frame was lost.

A leader is announced when its claim is applied. pysyncobj runs in its own thread, which hands everything to the event
loop in order. :data:`LIMITS` lists the problems that this rule cannot repair.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.quorum import DescribeQuorumResponse, QuorumReplica
from tidelog_quorum.raft.core.config import RaftConfig, SnapshotConfig
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftListener
from tidelog_quorum.raft.pysyncobj.log import Frame, FrameKind, LogState, check_identity
from tidelog_quorum.raft.pysyncobj.thread import PySyncObjThread, View
from tidelog_quorum.raft.snapshot_age import LatestSnapshot

logger = logging.getLogger(__name__)

LIMITS = (
    "controller.quorum.engine=pysyncobj is for development on one machine: it can lose acknowledged commands when "
    "controllers crash, never syncs its files, ends with SIGBUS when the disk is full, unpickles what anybody on this "
    "machine sends to its port (who can connect can run code), has no pre-vote and cannot change its voters"
)
"""The limitations that an operator must know, logged at every start."""

_PAUSE_S = 0.02


class PySyncObjRaft:
    """One voter (see :class:`RaftEngine`); ``addresses`` has the address of each voter's pysyncobj, by id.

    Raises:
        ConfigError: an address is not of the loopback interface.
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        addresses: Mapping[int, tuple[str, int]],
        data_dir: Path | str,
        cluster_id: str,
        config: RaftConfig,
        snapshots: SnapshotConfig | None = None,
    ) -> None:
        _check_loopback(addresses)
        self._node_id = node_id
        self._voters = voters
        self._cluster_id = cluster_id
        self._election_timeout_s = config.election_timeout_ms / 1000
        self._directory = Path(data_dir) / "pysyncobj"
        self._address = addresses[node_id]
        self._leader = LeaderAndEpoch(None, 0, False)
        self._leadership_changed = asyncio.Event()
        self._next_index = 0
        self._last_index = 0
        self._transferring = False
        self._barriers: dict[int, asyncio.Future[int]] = {}
        # Must differ from the ids in frames of an earlier run, which are applied again after a start.
        self._barrier_ids = itertools.count(random.SystemRandom().randrange(2**62))
        self._listener: RaftListener | None = None
        self._failure: TidelogError | None = None
        self._failed = asyncio.Event()
        self._stopped = False
        self._thread = PySyncObjThread(self, node_id, addresses, self._directory, config, snapshots or SnapshotConfig())

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this voter knows."""
        return self._leader

    async def start(self, listener: RaftListener) -> None:
        """Load the log and join the quorum.

        Raises:
            TidelogError: INCONSISTENT_CLUSTER_ID or INCONSISTENT_VOTER_SET, the folder belongs to another cluster or
                voter; KAFKA_STORAGE_ERROR, it cannot be written; INVALID_CONFIG, the port is in use.
        """
        assert self._listener is None, "an engine starts once"
        logger.warning(LIMITS)
        self._listener = listener
        check_identity(self._directory, self._cluster_id, self._node_id)
        _check_port_is_free(self._address)
        listener.on_voters_change(self._voters)
        await self._thread.open(asyncio.get_running_loop())

    async def stop(self) -> None:
        """Leave the quorum; a leader hands its leadership over first, for two election timeouts at most."""
        if self._leader.is_self and len(self._voters) > 1 and self._failure is None:
            try:
                await self.transfer_leadership(None, int(2000 * self._election_timeout_s))
            except TidelogError as error:
                logger.info("the leadership was not handed over: %s", error)
        self._stopped = True
        self._leader = LeaderAndEpoch(None, self._leader.epoch, False)
        self._fail_barriers(self._not_controller())
        await asyncio.to_thread(self._thread.stop)

    async def wait_failed(self) -> NoReturn:
        """Wait until the engine fails, and raise its error; see :class:`RaftEngine`."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    @property
    def committed_offset(self) -> int:
        """The last index that the listener has received; pysyncobj tells of no other."""
        return self._last_index

    def propose(self, payload: bytes, epoch: int) -> int:
        """Queue ``payload`` for the leader's log and return its index; see :class:`RaftEngine`."""
        self._check_leading()
        if epoch != self._leader.epoch:
            raise self._not_controller(f" in epoch {epoch}")
        if self._transferring:
            raise self._not_controller(": it is handing over")
        index = self._next_index
        self._next_index += 1
        self._thread.append(Frame(FrameKind.DATA, epoch, self._node_id, index, payload))
        return index

    async def read_barrier(self) -> int:
        """Return an index that covers everything committed before the call, after a frame has passed the log."""
        self._check_leading()
        if self._transferring:
            raise self._not_controller(": it is handing over")
        barrier_id = next(self._barrier_ids)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._barriers[barrier_id] = future
        try:
            self._thread.append(Frame(FrameKind.BARRIER, self._leader.epoch, self._node_id, barrier_id, b""))
            return await future
        finally:
            self._barriers.pop(barrier_id, None)

    def describe(self) -> DescribeQuorumResponse:
        """Describe the quorum; the other replicas' log ends and ages are as exact as pysyncobj reports them."""
        self._check_leading()
        view = self._thread.view
        return DescribeQuorumResponse(
            leader_id=self._node_id,
            leader_epoch=self._leader.epoch,
            high_watermark=self._last_index,
            voters=tuple(self._describe_replica(voter, view) for voter in self._voters),
            snapshot_offset=view.snapshot_index,
            log_start_offset=max(view.snapshot_index, 0) + 1,
        )

    def latest_snapshot(self) -> LatestSnapshot:
        """Return the age and the size of this voter's latest snapshot."""
        return self._thread.snapshot_age.current()

    async def take_snapshot(self) -> tuple[int, int]:
        """Take a snapshot and drop the log before it; see :class:`RaftEngine`."""
        self._check_running()
        last_index = await self._thread.run(self._thread.take_snapshot)
        return last_index, last_index + 1

    async def add_voter(self, voter: Voter, timeout_ms: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        raise _cannot_change_voters()

    async def remove_voter(self, voter_id: int, directory_id: bytes, timeout_ms: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        raise _cannot_change_voters()

    async def update_voter(self, voter: Voter, leader_epoch: int | None, timeout_ms: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        raise _cannot_change_voters()

    async def transfer_leadership(self, to: int | None, timeout_ms: int) -> int:
        """Hand the leadership over to another voter and return its id; see :class:`RaftEngine`."""
        self._check_leading()
        if to is not None and to not in self._voters:
            raise error_for(ErrorCode.VOTER_NOT_FOUND, f"controller {to} is none of {list(self._voters.ids)}")
        if to == self._node_id:
            return to
        if self._transferring or len(self._voters) == 1:
            why = "another transfer is under way" if self._transferring else "there is no other voter"
            raise error_for(ErrorCode.INVALID_REQUEST, f"controller {self._node_id} cannot hand over: {why}")
        self._transferring = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._hand_over(to)
        except TimeoutError:
            text = f"no other controller has taken over within {timeout_ms} ms"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from None
        finally:
            self._transferring = False

    def commit(self, entries: list[CommittedEntry]) -> None:
        """Pass entries to the listener; called by the thread's hand-over."""
        if self._listener is not None and self._is_running:
            self._last_index = entries[-1].index
            self._listener.on_commit(entries)

    def change_leader(self, leader: LeaderAndEpoch, next_index: int) -> None:
        """Record a leader; ``next_index`` is the index of the first proposal; called by the thread's hand-over."""
        if self._listener is None or not self._is_running:
            return
        self._leader = leader
        self._next_index = next_index
        self._leadership_changed.set()
        self._leadership_changed = asyncio.Event()
        if not leader.is_self:
            self._fail_barriers(self._not_controller())
        self._listener.on_leader_change(leader)

    def pass_barrier(self, barrier_id: int, index: int) -> None:
        """Answer a read; called by the thread's hand-over."""
        future = self._barriers.get(barrier_id)
        if future is not None and not future.done():
            future.set_result(index)

    def capture(self) -> Iterable[bytes]:
        """Return the listener's state in chunks; called by the thread's hand-over."""
        assert self._listener is not None
        return self._listener.capture()

    def restore(self, state: LogState, chunks: Iterable[bytes]) -> Callable[[], None]:
        """Return a function that installs a snapshot's state; called in the thread."""
        assert self._listener is not None
        install = self._listener.read_snapshot(state.last_index, state.term, chunks)

        def put_in_place() -> None:
            self._last_index = state.last_index
            install()

        return put_in_place

    def fail(self, error: TidelogError) -> None:
        """Stop for good; called by the thread's hand-over."""
        if not self._is_running:
            return
        logger.critical("controller %s has left the quorum: %s", self._node_id, error)
        self._failure = error
        self._failed.set()
        self._fail_barriers(error_for(error.code, error.message))
        self._leader = LeaderAndEpoch(None, self._leader.epoch, False)
        if self._listener is not None:
            self._listener.on_leader_change(self._leader)

    @property
    def _is_running(self) -> bool:
        return not self._stopped and self._failure is None

    def _check_running(self) -> None:
        if self._failure is not None:
            raise error_for(self._failure.code, self._failure.message)
        if self._stopped or self._listener is None:
            raise self._not_controller()

    def _check_leading(self) -> None:
        self._check_running()
        if not self._leader.is_self:
            raise self._not_controller()

    async def _hand_over(self, to: int | None) -> int:
        # pysyncobj continues with its queue: the target would lack those entries and lose the election.
        while self._leader.is_self and (self._last_index + 1 < self._next_index or self._barriers):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_S)
        while self._leader.is_self:
            changed = self._leadership_changed
            accepted = await self._thread.run(lambda: self._thread.transfer(to))
            try:
                # A voter that lacks entries refuses and is asked again soon; one that accepted may need an election.
                async with asyncio.timeout(self._election_timeout_s if accepted else _PAUSE_S):
                    await changed.wait()
            except TimeoutError:
                continue
        while self._leader.leader_id is None:
            await self._leadership_changed.wait()
        return self._leader.leader_id

    def _describe_replica(self, voter: Voter, view: View) -> QuorumReplica:
        [address] = endpoints = tuple(voter.endpoints)
        endpoint = Endpoint(address.host, address.port)
        if voter.voter_id == self._node_id:
            return QuorumReplica(voter.voter_id, self._last_index, endpoint, b"", 0, 0, endpoints)
        lag = max(0, view.commit_index - view.match_index.get(voter.voter_id, 0))
        end = max(0, self._last_index - lag)
        heard_ms, caught_up_ms, silent_ms = self._thread.ages_ms(voter.voter_id)
        return QuorumReplica(voter.voter_id, end, endpoint, b"", heard_ms, caught_up_ms, endpoints, silent_ms)

    def _fail_barriers(self, error: TidelogError) -> None:
        for future in self._barriers.values():
            if not future.done():
                future.set_exception(error)

    def _not_controller(self, where: str = "") -> TidelogError:
        return self._leader.not_controller(self._node_id, where)


def _check_loopback(addresses: Mapping[int, tuple[str, int]]) -> None:
    for voter_id, (host, port) in addresses.items():
        if host != "localhost" and not host.startswith("127."):
            raise ConfigError(
                f"voter {voter_id} at {format_address(host, port)}: controller.quorum.engine=pysyncobj takes loopback "
                "addresses (127.0.0.1) alone, because it unpickles what it receives: who can connect can run code"
            )


def _check_port_is_free(address: tuple[str, int]) -> None:
    try:
        with socket.create_server(address, reuse_port=False):
            pass
    except OSError as error:
        raise ConfigError(f"cannot listen on {format_address(*address)}: {error.strerror or error}") from error


def _cannot_change_voters() -> TidelogError:
    text = "controller.quorum.engine=pysyncobj cannot change its voters: its guard against two changes at once fails"
    return error_for(ErrorCode.UNSUPPORTED_VERSION, text)
