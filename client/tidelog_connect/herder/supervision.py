"""`Supervisor`: decides which connectors the leading worker starts and stops, and which statuses it reports.

The leader has one supervisor from the moment it leads until it leads no more. A connector's run goes through

    STARTING ──started──► RUNNING ──stop──► STOPPING ──ended──► (none)
        └──────failed────────┴──► FAILED, until its revision or its target state changes

At most one run of a connector exists at a time: a new one starts after the end of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from tidelog_connect.herder import records
from tidelog_connect.herder.records import Record, State, Status, TargetState
from tidelog_connect.herder.state import Connector, GroupState

TaskConfigs: TypeAlias = Callable[[Mapping[str, str]], Sequence[Mapping[str, str]]]
"""Returns the configurations of a connector's tasks. Raises ValueError if the connector cannot be planned."""


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Start the query of a connector. Report `Supervisor.started` or `Supervisor.failed` with ``run``."""

    name: str
    run: int
    config: Mapping[str, str]
    tasks: int


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stop the query of a connector, at the end of its batch. Report `Supervisor.ended` with ``run``."""

    name: str
    run: int


Command: TypeAlias = StartConnector | StopConnector


class _Phase(Enum):
    STARTING = auto()
    RUNNING = auto()
    STOPPING = auto()
    FAILED = auto()


@dataclass(slots=True)
class _Run:
    number: int
    revision: int
    """The revision of the connector that this run has."""
    phase: _Phase


@dataclass(frozen=True, slots=True)
class Step:
    """The records to write, and the commands to execute after them."""

    records: tuple[Record, ...]
    commands: tuple[Command, ...]


class Supervisor:
    """The runs of the connectors on the leading worker."""

    def __init__(self, worker_id: str, epoch: int, version: str, task_configs: TaskConfigs) -> None:
        self._worker_id = worker_id
        self._epoch = epoch
        self._version = version
        self._task_configs = task_configs
        self._runs: dict[str, _Run] = {}
        self._last_run = 0

    def step(self, state: GroupState) -> Step:
        """Return what follows from the present state. Steps without news return nothing."""
        written: list[Record] = []
        commands: list[Command] = []
        for name in sorted({*state.connectors, *self._runs}):
            connector = state.connectors.get(name)
            if connector is None:
                self._stop(name, commands)
            else:
                self._advance(state, connector, written, commands)
        return Step(tuple(written), tuple(commands))

    def started(self, state: GroupState, name: str, run: int) -> tuple[Record, ...]:
        """Note that a query runs, and return its status records."""
        known = self._runs.get(name)
        if known is None or known.number != run or known.phase is not _Phase.STARTING:
            return ()
        known.phase = _Phase.RUNNING
        connector = state.connectors.get(name)
        return () if connector is None else self._statuses(state, connector, State.RUNNING)

    def failed(self, state: GroupState, name: str, run: int, trace: str, *, is_planned: bool) -> tuple[Record, ...]:
        """Note that a query has failed. Tasks fail if it was planned, otherwise the connector fails."""
        known = self._runs.get(name)
        if known is None or known.number != run:
            return ()
        if known.phase is _Phase.STOPPING:
            del self._runs[name]
            return ()
        known.phase = _Phase.FAILED
        connector = state.connectors.get(name)
        if connector is None:
            return ()
        if is_planned:
            return self._statuses(state, connector, State.RUNNING, tasks=State.FAILED, trace=trace)
        return (records.connector_status_record(name, self._status(State.FAILED, trace)),)

    def ended(self, name: str, run: int) -> None:
        """Note that the query of a `StopConnector` has ended."""
        known = self._runs.get(name)
        if known is not None and known.number == run:
            del self._runs[name]

    @property
    def is_idle(self) -> bool:
        """True if no query runs, starts or stops."""
        return all(run.phase is _Phase.FAILED for run in self._runs.values())

    def check_invariants(self) -> None:
        """Assert what holds after each step."""
        numbers = [run.number for run in self._runs.values()]
        assert len(set(numbers)) == len(numbers)
        assert all(number <= self._last_run for number in numbers)

    def _advance(self, state: GroupState, connector: Connector, written: list[Record], commands: list[Command]) -> None:
        name, target = connector.name, state.target_state(connector.name)
        run = self._runs.get(name)
        if run is not None and run.phase in (_Phase.STARTING, _Phase.RUNNING, _Phase.FAILED):
            if target is TargetState.STARTED and run.revision == connector.revision:
                return
            self._stop(name, commands)
            run = self._runs.get(name)
        if run is not None:
            return
        if target is TargetState.STOPPED:
            written += self._halted(state, connector)
            return
        try:
            tasks = [dict(each) for each in self._task_configs(connector.config)]
        except ValueError as error:
            if target is TargetState.STARTED:
                self._runs[name] = _Run(self._next_run(), connector.revision, _Phase.FAILED)
            status = self._status(State.FAILED, str(error))
            if state.connector_statuses.get(name) != status:
                written.append(records.connector_status_record(name, status))
            return
        written += self._planned(connector, tasks)
        if target is TargetState.PAUSED:
            written += self._statuses(state, connector, State.PAUSED, count=len(tasks))
            return
        started = _Run(self._next_run(), connector.revision, _Phase.STARTING)
        self._runs[name] = started
        commands.append(StartConnector(name, started.number, connector.config, len(tasks)))

    def _stop(self, name: str, commands: list[Command]) -> None:
        run = self._runs[name]
        if run.phase is _Phase.FAILED:
            del self._runs[name]
        elif run.phase is not _Phase.STOPPING:
            run.phase = _Phase.STOPPING
            commands.append(StopConnector(name, run.number))

    def _planned(self, connector: Connector, tasks: list[dict[str, str]]) -> list[Record]:
        """Return the records of the task configurations, if they have changed."""
        if [dict(each) for each in connector.tasks] == tasks:
            return []
        written = [records.task_record(connector.name, index, config) for index, config in enumerate(tasks)]
        return [*written, records.commit_record(connector.name, len(tasks))]

    def _halted(self, state: GroupState, connector: Connector) -> list[Record]:
        name = connector.name
        written = [records.commit_record(name, 0)] if connector.tasks else []
        return [*written, *self._statuses(state, connector, State.STOPPED, count=0)]

    def _statuses(
        self,
        state: GroupState,
        connector: Connector,
        reported: State,
        *,
        tasks: State | None = None,
        trace: str | None = None,
        count: int | None = None,
    ) -> tuple[Record, ...]:
        """Return the status records that differ from the present ones, and delete those of former tasks."""
        name = connector.name
        number = len(connector.tasks) if count is None else count
        known = state.task_statuses.get(name, {})
        written: list[Record] = []
        own = self._status(reported)
        if state.connector_statuses.get(name) != own:
            written.append(records.connector_status_record(name, own))
        status = self._status(tasks or reported, trace)
        written += [
            records.task_status_record(name, index, status) for index in range(number) if known.get(index) != status
        ]
        written += [records.task_status_record(name, index, None) for index in sorted(known) if index >= number]
        return tuple(written)

    def _status(self, state: State, trace: str | None = None) -> Status:
        return Status(state, self._worker_id, self._epoch, self._version, trace)

    def _next_run(self) -> int:
        self._last_run += 1
        return self._last_run
