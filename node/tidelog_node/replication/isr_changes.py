"""A queue of a node's ISR proposals to the controller, as a pure state machine (KIP-497).

- One proposal per partition waits: a new one replaces one that is not sent yet. One call carries all proposals that
  wait at its start, at most ``max_per_request``. One call is in flight at a time.
- The queue sends a proposal only while its partition leads in the proposal's epoch and its log is usable: a leader with
  a failed disk must not remove others from the ISR.
- A sent proposal gets one outcome. It gets an acceptance, or a refusal because the controller elected another leader,
  at once. It gets any other refusal after a backoff, which grows with every call that has such a refusal and resets
  with the first that has none. The partition then proposes the same set or another one.
- A partition that proposes again before the outcome of its last proposal does not get that outcome: it leads in a later
  epoch, in which another proposal may have the same id.
- A call without an answer has an unknown outcome. The queue refuses each of its proposals with the call's error. The
  error tells the partition that the controller may have made the change.

``P`` is a replica of this process: two successive replicas of one partition are not equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from typing import Generic, TypeAlias, TypeVar, assert_never

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.broker.report import Level, Report
from tidelog_node.replication.commands import ProposeIsr
from tidelog_node.replication.events import IsrChangeAccepted, IsrChangeRefused

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class IsrChangeSettings:
    """Bounds of a call and of the backoff after it."""

    first_backoff_ms: int = 50
    max_backoff_ms: int = 1_000
    max_per_request: int = 1_000
    """The bound on one call's proposals. The controller handles one request at a time and bounds its writes."""


@dataclass(frozen=True, slots=True)
class IsrProposed(Generic[P]):
    """A leader's proposal of a set."""

    partition: P
    proposal: ProposeIsr


@dataclass(frozen=True, slots=True)
class PartitionsInspected(Generic[P]):
    """The answer to :class:`InspectPartitions`: the leader epoch of each partition with a usable log."""

    leader_epochs: Mapping[P, LeaderEpoch]


@dataclass(frozen=True, slots=True)
class IsrStored:
    """The controller's answer for one partition: it stored a set."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class IsrRefused:
    """The controller's answer for one partition: it refused a set or elected another leader."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class IsrCallAnswered(Generic[P]):
    """The answer to :class:`SendProposals`. It may leave partitions out."""

    results: Mapping[P, IsrStored | IsrRefused]


@dataclass(frozen=True, slots=True)
class IsrCallFailed:
    """A call that failed as a whole, or whose answer was lost."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A tick: a deadline may have passed."""


Event: TypeAlias = IsrProposed[P] | PartitionsInspected[P] | IsrCallAnswered[P] | IsrCallFailed | TimePassed


@dataclass(frozen=True, slots=True)
class InspectPartitions(Generic[P]):
    """Report the leader epochs of these partitions before the queue sends their proposals."""

    partitions: tuple[P, ...]


@dataclass(frozen=True, slots=True)
class SendProposals(Generic[P]):
    """Send these sets to the controller in one call."""

    proposals: Mapping[P, ProposeIsr]


@dataclass(frozen=True, slots=True)
class SettleProposal(Generic[P]):
    """Deliver the outcome of a proposal to its partition."""

    partition: P
    outcome: IsrChangeAccepted | IsrChangeRefused


Command: TypeAlias = InspectPartitions[P] | SendProposals[P] | SettleProposal[P] | Report


@dataclass(frozen=True, slots=True)
class Idle:
    """An empty queue."""


@dataclass(frozen=True, slots=True)
class Due:
    """Proposals that wait until ``at_ms``, so that one call carries those of a whole turn."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Inspecting(Generic[P]):
    """Partitions of the next call whose leader epochs are requested."""

    batch: Mapping[P, ProposeIsr]


@dataclass(frozen=True, slots=True)
class Calling(Generic[P]):
    """A call with these proposals in flight."""

    batch: Mapping[P, ProposeIsr]


@dataclass(frozen=True, slots=True)
class BackingOff(Generic[P]):
    """A wait until ``until_ms`` before the queue delivers the last call's refusals and sends again."""

    until_ms: int
    refused: Mapping[P, IsrChangeRefused]


Phase: TypeAlias = Idle | Due | Inspecting[P] | Calling[P] | BackingOff[P]


class IsrChangeQueue(Generic[P]):
    """The queue of one process. A step may run while the commands of an earlier one are carried out."""

    def __init__(self, settings: IsrChangeSettings) -> None:
        self.phase: Phase[P] = Idle()
        self._settings = settings
        self._waiting: dict[P, ProposeIsr] = {}
        self._backoff_ms = settings.first_backoff_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next :class:`TimePassed`, or None without a deadline."""
        if isinstance(self.phase, Due):
            return self.phase.at_ms
        return self.phase.until_ms if isinstance(self.phase, BackingOff) else None

    def step(self, event: Event[P], now_ms: int) -> list[Command[P]]:
        """Process an event and return the commands in order."""
        match event:
            case IsrProposed():
                self._waiting[event.partition] = event.proposal
                if isinstance(self.phase, Idle):
                    self.phase = Due(now_ms)
                return []
            case PartitionsInspected():
                return self._send(event.leader_epochs, now_ms)
            case IsrCallAnswered():
                return self._take(event.results, now_ms)
            case IsrCallFailed():
                return self._fail(event.error, now_ms)
            case TimePassed():
                return self._pass_time(now_ms)
            case _:
                assert_never(event)

    def check_invariants(self) -> None:
        """Assert what must always hold."""
        settings, phase = self._settings, self.phase
        assert not (isinstance(phase, Idle) and self._waiting), "proposals wait and no turn is due"
        assert settings.first_backoff_ms <= self._backoff_ms <= settings.max_backoff_ms
        if isinstance(phase, Inspecting | Calling):
            assert 0 < len(phase.batch) <= settings.max_per_request

    def _pass_time(self, now_ms: int) -> list[Command[P]]:
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return []
        if isinstance(self.phase, BackingOff):
            refused = self.phase.refused
            self._rest(now_ms)
            return [settle for partition, refusal in refused.items() for settle in self._settle(partition, refusal)]
        batch = dict(itertools.islice(self._waiting.items(), self._settings.max_per_request))
        for partition in batch:
            del self._waiting[partition]
        self.phase = Inspecting(batch)
        return [InspectPartitions(tuple(batch))]

    def _send(self, leader_epochs: Mapping[P, LeaderEpoch], now_ms: int) -> list[Command[P]]:
        phase = self.phase
        assert isinstance(phase, Inspecting), phase
        batch = {p: r for p, r in phase.batch.items() if leader_epochs.get(p) == r.leader_epoch}
        if batch:
            self.phase = Calling(batch)
            return [SendProposals(batch)]
        self._backoff_ms = self._settings.first_backoff_ms
        self._rest(now_ms)
        return []

    def _take(self, results: Mapping[P, IsrStored | IsrRefused], now_ms: int) -> list[Command[P]]:
        phase = self.phase
        assert isinstance(phase, Calling), phase
        commands: list[Command[P]] = []
        refused: dict[P, IsrChangeRefused] = {}
        for partition, proposal in phase.batch.items():
            result = results.get(partition, _OMITTED)
            commands.append(_report(partition, proposal, result))
            outcome = _outcome(proposal, result)
            if isinstance(outcome, IsrChangeRefused) and outcome.code is not ErrorCode.NEW_LEADER_ELECTED:
                refused[partition] = outcome
            else:
                commands += self._settle(partition, outcome)
        self._end_call(refused, now_ms)
        return commands

    def _settle(self, partition: P, outcome: IsrChangeAccepted | IsrChangeRefused) -> list[Command[P]]:
        return [] if partition in self._waiting else [SettleProposal(partition, outcome)]

    def _fail(self, error: TidelogError, now_ms: int) -> list[Command[P]]:
        phase = self.phase
        assert isinstance(phase, Calling), phase
        self._end_call({p: IsrChangeRefused(r.proposal_id, error.code) for p, r in phase.batch.items()}, now_ms)
        text = "Changing the ISR of %d partitions failed, retrying: %s"
        return [Report(Level.WARNING, text, (len(phase.batch), error))]

    def _end_call(self, refused: Mapping[P, IsrChangeRefused], now_ms: int) -> None:
        settings = self._settings
        if refused:
            self.phase = BackingOff(now_ms + self._backoff_ms, refused)
            self._backoff_ms = min(2 * self._backoff_ms, settings.max_backoff_ms)
        else:
            self._backoff_ms = settings.first_backoff_ms
            self._rest(now_ms)

    def _rest(self, now_ms: int) -> None:
        self.phase = Due(now_ms) if self._waiting else Idle()


_OMITTED = IsrRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "the response does not contain the partition")


def _outcome(proposal: ProposeIsr, result: IsrStored | IsrRefused) -> IsrChangeAccepted | IsrChangeRefused:
    if isinstance(result, IsrRefused):
        return IsrChangeRefused(proposal.proposal_id, result.code)
    isr = frozenset(result.isr)
    return IsrChangeAccepted(proposal.proposal_id, result.leader_epoch, result.partition_epoch, isr)


def _report(partition: object, proposal: ProposeIsr, result: IsrStored | IsrRefused) -> Report:
    if isinstance(result, IsrStored):
        return Report(Level.INFO, "The ISR of %s is now %s", (partition, list(result.isr)))
    if result.code is ErrorCode.NEW_LEADER_ELECTED:
        # The proposal is settled without a retry: this node no longer leads, as the metadata log will confirm.
        return Report(Level.INFO, "The ISR of %s changes with a new leader: %s", (partition, result.message))
    proposed = [broker for broker, _ in proposal.isr]
    return Report(Level.INFO, "The controller rejected the ISR %s of %s: %s", (proposed, partition, result.message))
