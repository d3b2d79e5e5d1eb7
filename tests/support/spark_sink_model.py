"""A model of a cluster, of Spark, and of the processes of a sink, of which each can be killed at every step.

The processes run the sink's real protocol. A killed driver's tasks and commit may go on as zombies, and a record that
was sent to the journal may arrive late or never.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_spark.sink.journal import Journal, Prepared, SinkState, key_of
from tidelog_spark.sink.protocol import (
    Append,
    Attempt,
    Begin,
    Command,
    Complete,
    Describe,
    Described,
    Discard,
    ListOpen,
    ReadState,
    Result,
    TakeOver,
    Write,
    abort_batch,
    commit_batch,
    write_task,
)

SINK = "query"
PARTITIONS = 2
BATCHES = 4
MAX_ATTEMPTS = 4
Rows = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Transaction:
    """A transactional id: its newest epoch, the open transaction's epoch and rows, and the end of the last one.

    It ``is_empty`` while its newest producer has written nothing.
    """

    epoch: int = 0
    is_empty: bool = False
    open_epoch: int | None = None
    rows: Rows = ()
    was_committed: bool = False


@dataclass(slots=True)
class ModelCluster:
    """The journal, the coordinator, and the rows that readers of committed records see."""

    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    ids: dict[str, Transaction] = field(default_factory=dict)
    committed: Counter[tuple[int, int]] = field(default_factory=Counter)
    states: list[SinkState] = field(default_factory=lambda: [SinkState()])
    has_old_leaders: bool = True

    def journal(self) -> Journal:
        """Return the journal, read from the start."""
        journal = Journal(SINK)
        for key, value in self.log:
            journal.apply(key, value)
        return journal

    def read(self, random: Random, *, is_current: bool) -> SinkState:
        """Return the state, or an old one from a leader that was replaced."""
        state = self.journal().state
        if self.states[-1] != state:
            self.states.append(state)
        is_old = self.has_old_leaders and not is_current and random.random() < 0.1
        return random.choice(self.states[-3:]) if is_old else state

    def fence(self, transactional_id: str) -> Transaction:
        """Raise the epoch of an id, as InitProducerId that keeps the open transaction."""
        found = self.ids.setdefault(transactional_id, Transaction())
        found.epoch += 1
        if found.open_epoch is None:
            found.was_committed, found.is_empty = False, True
        return found

    def end(self, transactional_id: str, *, commits: bool) -> None:
        """Commit or abort the open transaction of an id."""
        found = self.ids[transactional_id]
        identity = Prepared(transactional_id, 0, found.open_epoch or 0)
        state = self.journal().state
        if commits:
            self.committed.update(found.rows)
        else:
            assert identity not in state.committed, f"a committed batch loses {found.rows} of {identity}"
        found.open_epoch, found.rows, found.was_committed = None, (), commits
        found.epoch += 1


class Process:
    """A task, or a driver's commit or abort: its steps, the epochs that it has, and its fate."""

    def __init__(
        self, cluster: ModelCluster, random: Random, steps: Generator[Command, Result, Any], rows: Rows = ()
    ) -> None:
        self.cluster, self.random, self.steps, self.rows = cluster, random, steps, rows
        self.epochs: dict[str, int] = {}
        self.begun: str | None = None
        self.result: Any = None
        self.is_done = False
        self.is_returned = False
        self.error: TidelogError | None = None
        self.late: list[tuple[bytes, bytes]] = []
        self._sent: Result | TidelogError = None

    def step(self) -> None:
        """Deliver the last result, and execute the next command."""
        command = self._next()
        if command is None:
            return
        try:
            self._sent = self._execute(command)
        except TidelogError as error:
            self._sent = error

    def kill(self) -> None:
        """End the process, possibly in the midst of its next command."""
        command = None if self.is_done else self._next()
        self.is_done, self.is_returned = True, False
        if isinstance(command, Write) and self.random.random() < 0.5:
            with contextlib.suppress(TidelogError):
                self._open(self.rows[:1])

    def _next(self) -> Command | None:
        """Deliver the last result, and return the next command, or None at the end."""
        try:
            if isinstance(self._sent, TidelogError):
                return self.steps.throw(self._sent)
            return self.steps.send(self._sent)
        except StopIteration as stop:
            self.is_done = self.is_returned = True
            self.result = stop.value
        except TidelogError as error:
            self.is_done, self.error = True, error
        return None

    def _execute(self, command: Command) -> Result:
        match command:
            case ReadState(is_current):
                return self.cluster.read(self.random, is_current=is_current)
            case Append(state):
                return self._append(state)
            case Begin(transactional_id):
                found = self.cluster.fence(transactional_id)
                self.epochs[transactional_id] = found.epoch
                if found.open_epoch is None:
                    self.begun = transactional_id
                return found.open_epoch is None
            case Write():
                self._open(self.rows)
                assert self.begun is not None
                return Prepared(self.begun, 0, self.epochs[self.begun])
            case Discard():
                assert self.begun is not None
                if self.cluster.ids[self.begun].epoch == self.epochs[self.begun]:
                    self.cluster.end(self.begun, commits=False)
                return None
            case ListOpen():
                ids = self.cluster.ids.items()
                return tuple(name for name, found in ids if found.open_epoch is not None or found.is_empty)
            case Describe(committed):
                return self._describe(committed)
            case TakeOver(transactional_ids):
                return self._take_over(transactional_ids)
            case Complete(committed, aborted):
                return self._complete(dict.fromkeys(committed, True) | dict.fromkeys(aborted, False))

    def _describe(self, committed: tuple[Prepared, ...]) -> Described:
        ids = [each.transactional_id for each in committed]
        is_over = [name for name in ids if self.cluster.ids[name].open_epoch is None]
        is_committed = tuple(name for name in is_over if self.cluster.ids[name].was_committed)
        return Described(is_committed, tuple(name for name in is_over if name not in is_committed))

    def _take_over(self, transactional_ids: tuple[str, ...]) -> tuple[Prepared, ...]:
        taken = {name: self.cluster.fence(name) for name in transactional_ids}
        self.epochs = {name: found.epoch for name, found in taken.items()}
        return tuple(
            Prepared(name, 0, found.open_epoch) for name, found in taken.items() if found.open_epoch is not None
        )

    def _append(self, state: SinkState) -> None:
        journal = self.cluster.journal()
        record = (key_of(SINK, state.version, str(self.random.random())), state.to_json())
        if self.random.random() < 0.15:
            self.late.append(record)
            raise error_for(ErrorCode._TIMED_OUT, "the outcome is unknown")
        self.cluster.log.append(record)
        if journal.replaced_key is not None and self.random.random() < 0.5:
            self.cluster.log = [each for each in self.cluster.log if each[0] != journal.replaced_key]

    def _open(self, rows: Rows) -> None:
        assert self.begun is not None
        found = self.cluster.ids[self.begun]
        if found.epoch != self.epochs[self.begun]:
            raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH, f"{self.begun} is fenced")
        found.open_epoch, found.rows, found.is_empty = found.epoch, rows, False

    def _complete(self, ends: dict[str, bool]) -> tuple[str, ...]:
        names = list(ends)
        self.random.shuffle(names)
        fenced: list[str] = []
        for name in names:
            if self.random.random() < 0.05:
                raise error_for(ErrorCode._TIMED_OUT, "killed between two transactions")
            found = self.cluster.ids[name]
            if found.epoch != self.epochs[name]:
                fenced.append(name)
                continue
            assert found.open_epoch is not None
            self.cluster.end(name, commits=ends[name])
        return tuple(fenced)


class ModelSpark:
    """Spark's driver of one streaming query, with retries, speculative copies, kills and zombies."""

    def __init__(self, random: Random) -> None:
        self.random, self.cluster = random, ModelCluster()
        self.checkpoint = 0
        self.trouble = 1.0
        self._runs = itertools.count()
        self.zombies: list[Process] = []
        self._start()

    def _start(self) -> None:
        self.run = f"run-{next(self._runs)}"
        self._begin_batch()

    def _begin_batch(self) -> None:
        self.attempt = Attempt(SINK, self.run, self.checkpoint)
        self.tasks: dict[int, list[Process]] = {p: [] for p in range(PARTITIONS)}
        self.messages: dict[int, Prepared | None] = {}
        self.driver: Process | None = None
        self.is_aborting = False
        for partition in self.tasks:
            self._launch(partition)

    def _launch(self, partition: int) -> None:
        # A repeated stage counts its attempts from 0 again.
        number = self.random.choice((0, len(self.tasks[partition])))
        rows = tuple((self.checkpoint * 100 + partition, row) for row in range(2))
        steps = write_task(self.attempt, f"{SINK}-{partition}-{number}")
        self.tasks[partition].append(Process(self.cluster, self.random, steps, rows))

    def step(self) -> None:
        """Let one process do one step, or let something go wrong."""
        luck = self.random.random()
        if luck < 0.02 * self.trouble:
            self._restart()
        elif luck < 0.05 * self.trouble:
            self._kill_task()
        elif luck < 0.08 * self.trouble and self.driver is None:
            self._launch(self.random.randrange(PARTITIONS))
        elif luck < 0.25 and self.zombies:
            self._step_zombie()
        elif self.driver is not None:
            self._step_driver(self.driver)
        else:
            self._step_task()

    def _restart(self) -> None:
        """Kill the driver. What it has started may live on."""
        living = [p for each in self.tasks.values() for p in each if not p.is_done]
        living += [self.driver] if self.driver is not None and not self.driver.is_done else []
        for process in living:
            if self.random.random() < 0.5:
                process.kill()
        self.zombies += [*(process for process in living if not process.is_done or process.late)]
        self._start()

    def _kill_task(self) -> None:
        living = [p for each in self.tasks.values() for p in each if not p.is_done]
        if living:
            self.random.choice(living).kill()

    def _step_zombie(self) -> None:
        zombie = self.random.choice(self.zombies)
        if zombie.late:
            record = zombie.late.pop()
            if self.random.random() < 0.5:
                self.cluster.log.append(record)
        elif zombie.is_done:
            self.zombies.remove(zombie)
        else:
            zombie.step()

    def _step_driver(self, driver: Process) -> None:
        if driver.is_done or (driver.step(), driver.is_done)[1]:
            self.zombies += [driver] if driver.late else []
            if self.is_aborting:
                self._start()
            elif driver.error is not None:
                # Nobody but drivers ends transactions here.
                assert driver.error.code is not ErrorCode.INVALID_TXN_STATE, driver.error
                self._abort()
            else:
                self.checkpoint += 1
                self.zombies += [p for each in self.tasks.values() for p in each if not p.is_done or p.late]
                self._begin_batch()

    def _step_task(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        tasks = self.tasks[partition]
        task = self.random.choice(tasks)
        if not task.is_done:
            task.step()
        if task.is_returned:
            self.messages.setdefault(partition, task.result)
        elif all(each.is_done for each in tasks) and partition not in self.messages:
            if len(tasks) >= MAX_ATTEMPTS:
                self._abort()
                return
            self._launch(partition)
        if len(self.messages) == PARTITIONS:
            prepared = tuple(each for each in self.messages.values() if each is not None)
            self.driver = Process(self.cluster, self.random, commit_batch(self.attempt, prepared))

    def _abort(self) -> None:
        self.is_aborting = True
        self.zombies += [p for each in self.tasks.values() for p in each if not p.is_done or p.late]
        self.driver = Process(self.cluster, self.random, abort_batch(self.attempt))

    def run_until(self, batches: int) -> None:
        """Run until so many batches are committed; then commit one more, of which only copies of tasks fail."""
        while self.checkpoint < batches:
            self.step()
        self.trouble, self.cluster.has_old_leaders = 0.0, False
        while self.zombies:
            self._step_zombie()
        end = self.checkpoint + 1
        while self.checkpoint < end:
            if self.driver is None and self.random.random() < 0.1:
                self._launch(self.random.randrange(PARTITIONS))
            self.step()
        self._end_copies()

    def _end_copies(self) -> None:
        """Let copies of tasks that outlive their batch go on for a while, and kill them."""
        for zombie in self.zombies:
            for _ in range(self.random.randrange(6)):
                if not zombie.is_done:
                    zombie.step()
            zombie.kill()

    def check(self) -> None:
        """Check that each row is visible once, and that no transaction is open."""
        rows = itertools.product(range(self.checkpoint), range(PARTITIONS), range(2))
        expected = Counter((batch * 100 + partition, row) for batch, partition, row in rows)
        assert self.cluster.committed == expected
        assert [name for name, found in self.cluster.ids.items() if found.open_epoch is not None] == []
