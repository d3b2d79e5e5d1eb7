"""The product's queue of ISR proposals in one life of a simulated node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from tidelog_foundation.errors import TidelogError
from tidelog_node.broker.report import Report
from tidelog_node.partitions.isr_changes import alter_partition_answer, alter_partition_request, inspected
from tidelog_node.replication import isr_changes as core
from tidelog_node.replication.commands import ProposeIsr

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition

_SETTINGS = core.IsrChangeSettings(first_backoff_ms=20, max_backoff_ms=150, max_per_request=2)
_CALL_MS = 250


class IsrChanges:
    """The shell: calls go over the simulated network, outcomes to the partitions."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._core: core.IsrChangeQueue[SimulatedPartition] = core.IsrChangeQueue(_SETTINGS)
        self._timer_ms: int | None = None

    def submit(self, partition: SimulatedPartition, proposal: ProposeIsr) -> None:
        """Queue a proposal."""
        self._step(core.IsrProposed(partition, proposal))

    def _step(self, event: core.Event[SimulatedPartition]) -> None:
        node = self._node
        commands = self._core.step(event, node.monotonic_ms())
        if node.checks_invariants:
            self._core.check_invariants()
        for command in commands:
            self._perform(command)
        deadline_ms = self._core.next_deadline_ms
        if deadline_ms is not None and deadline_ms != self._timer_ms:
            self._timer_ms = deadline_ms
            node.world.at(node.due_us(deadline_ms), node.enter, node.life, self._wake, deadline_ms)

    def _wake(self, deadline_ms: int) -> None:
        if self._timer_ms == deadline_ms:
            self._timer_ms = None
            self._step(core.TimePassed())

    def _perform(self, command: core.Command[SimulatedPartition]) -> None:
        match command:
            case core.InspectPartitions():
                self._step(inspected(command.partitions))
            case core.SendProposals():
                self._send(command)
            case core.SettleProposal():
                command.partition.step(command.outcome)
            case Report():
                pass
            case _:
                assert_never(command)

    def _send(self, command: core.SendProposals[SimulatedPartition]) -> None:
        node = self._node

        def take(answer: Any) -> None:
            failed = isinstance(answer, TidelogError)
            self._step(core.IsrCallFailed(answer) if failed else alter_partition_answer(answer, command.proposals))

        request = alter_partition_request(node.identity, node.broker_epoch, command.proposals)
        node.calls.ask("handle_alter_partition", request, take, _CALL_MS, repeats=False)
