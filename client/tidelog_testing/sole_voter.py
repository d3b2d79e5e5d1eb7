"""A quorum of one controller with a list as its log: every appended entry is committed."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.quorum import DescribeQuorumResponse, QuorumReplica
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftListener
from tidelog_quorum.raft.snapshot_age import LatestSnapshot, SnapshotAge


class MemoryLog:
    """The committed entries, and the epoch of the last leader. It outlives the controllers that use it."""

    def __init__(self) -> None:
        self.entries: list[CommittedEntry] = []
        self.epoch = 0


class SoleVoter:
    """A ``RaftEngine`` that leads from its start to its stop. It cannot change its voters or take snapshots."""

    def __init__(self, voter: Voter, log: MemoryLog) -> None:
        self._voter = voter
        self._log = log
        self._committed = 0
        self._listener: RaftListener | None = None
        self._leader = LeaderAndEpoch(None, log.epoch, False)
        self._snapshot_age = SnapshotAge()

    @property
    def leader(self) -> LeaderAndEpoch:
        """This controller's leadership while it runs."""
        return self._leader

    @property
    def committed_offset(self) -> int:
        """The last index."""
        return len(self._log.entries)

    async def start(self, listener: RaftListener) -> None:
        """Give the listener the whole log, then lead it in a new epoch."""
        self._listener = listener
        listener.on_voters_change(VoterSet([self._voter]))
        self._commit()
        self._log.epoch += 1
        self._leader = LeaderAndEpoch(self._voter.voter_id, self._log.epoch, True)
        listener.on_leader_change(self._leader)

    async def stop(self) -> None:
        """Stop leading. Proposed entries stay in the log."""
        self._leader = LeaderAndEpoch(None, self._log.epoch, False)
        if self._listener is not None:
            self._listener.on_leader_change(self._leader)

    async def wait_failed(self) -> NoReturn:
        """Wait forever."""
        while True:
            await asyncio.Event().wait()

    def propose(self, payload: bytes, epoch: int) -> int:
        """Append an entry. The listener gets it in the loop's next round."""
        self._check_leading()
        if epoch != self._leader.epoch:
            raise error_for(
                ErrorCode.NOT_CONTROLLER, f"epoch {epoch} has ended; the current epoch is {self._log.epoch}"
            )
        index = len(self._log.entries) + 1
        self._log.entries.append(CommittedEntry(index, epoch, payload))
        asyncio.get_running_loop().call_soon(self._commit)
        return index

    async def read_barrier(self) -> int:
        """Return the last index."""
        self._check_leading()
        self._commit()
        return len(self._log.entries)

    def describe(self) -> DescribeQuorumResponse:
        """Describe the quorum of one."""
        self._check_leading()
        end, voter = len(self._log.entries), self._voter
        [address] = endpoints = tuple(voter.endpoints)
        endpoint = Endpoint(address.host, address.port)
        replica = QuorumReplica(voter.voter_id, end, endpoint, voter.directory_id, 0, 0, endpoints)
        return DescribeQuorumResponse(
            voter.voter_id, self._leader.epoch, end, (replica,), snapshot_offset=-1, log_start_offset=1
        )

    def latest_snapshot(self) -> LatestSnapshot:
        """Return the age of this controller, which takes no snapshots."""
        return self._snapshot_age.current()

    async def take_snapshot(self) -> tuple[int, int]:
        """Raise UNSUPPORTED_VERSION."""
        raise _unsupported("take snapshots")

    async def add_voter(self, voter: Voter, timeout_ms: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        raise _unsupported("change its voters")

    async def remove_voter(self, voter_id: int, directory_id: bytes, timeout_ms: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        raise _unsupported("change its voters")

    async def update_voter(self, voter: Voter, leader_epoch: int | None, timeout_ms: int) -> None:
        """Raise UNSUPPORTED_VERSION."""
        raise _unsupported("change its voters")

    async def transfer_leadership(self, to: int | None, timeout_ms: int) -> int:
        """Raise INVALID_REQUEST, because there is no other voter."""
        self._check_leading()
        raise error_for(ErrorCode.INVALID_REQUEST, "the quorum has no other voter")

    def _commit(self) -> None:
        if self._listener is None:
            return
        entries, self._committed = self._log.entries[self._committed :], len(self._log.entries)
        if entries:
            self._listener.on_commit(entries)

    def _check_leading(self) -> None:
        if not self._leader.is_self:
            raise error_for(ErrorCode.NOT_CONTROLLER, "the controller has stopped")


def _unsupported(what: str) -> TidelogError:
    return error_for(ErrorCode.UNSUPPORTED_VERSION, f"a cluster in memory cannot {what}")
