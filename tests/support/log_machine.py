"""A partition's log and its model on a disk that crashes, fails and fills up: the base of all rule machines.

Trouble is a crash of the machine or process at some disk operation, a failing operation, or a full disk. After trouble
the log equals the state before or after the step, or one that the step passes through.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from log_model import LogState, ModelBatch, find_state
from memory_disk import MachineCrashed, MemoryFiles, failing, no_fault
from seeds import environment_number, reproducible

from tidelog_foundation.errors import ErrorCode, RefreshMetadataError, TidelogError
from tidelog_node.log import LogConfig, PartitionLog

DIRECTORY = Path("/data/topic-0")
_OPERATIONS = ("pwrite", "fsync", "fsync_directory", "truncate", "rename", "remove", "open", "map")


@dataclass(frozen=True)
class Trouble:
    """A planned failure: ``kind`` is crash, kill or an errno's name, at the ``after``-th ``operation`` from now."""

    kind: str
    after: int
    operation: str
    seed: int


class TroubledLog(RuleBasedStateMachine):
    """A log under trouble. Subclasses have the rules; each changes the log through :meth:`do`.

    ``sent`` has the batches of idempotent producers, including those that retention or the cleaner removed.
    ``safe_end`` is the end that no crash may take; ``safe_start`` and ``recovery_point`` are the checkpointed values.
    ``seen`` counts events over all runs of a class. ``refused`` are the bytes of a failed append that was cut off in
    memory but not yet on the disk, so that a crash may bring them back.
    """

    config: LogConfig
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFiles()
        self.state = LogState(0, 0)
        self.sent: list[ModelBatch] = []
        self.epoch = 0
        self.safe_end = 0
        self.safe_start = 0
        self.recovery_point = 0
        self.now = 1_000
        self.counter = 0
        self.is_compacted = False
        self.trouble: Trouble | None = None
        self.full_steps = 0
        self.refused: list[LogState] = []
        self.log = self.open_log(self.disk)

    def open_log(self, disk: MemoryFiles, clean: bool = False) -> PartitionLog:
        return PartitionLog.open(
            DIRECTORY,
            self.config,
            files=disk,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.safe_start,
            now_ms=self.now,
        )

    @rule(seed=st.integers(0, 2**32), operation=st.integers(0, 40) | st.none())
    def crash_machine(self, seed: int, operation: int | None) -> None:
        self.come_back(seed, [self.state], [self.state.end], operation)

    @rule()
    def kill_process(self) -> None:
        self.come_back(None, [self.state], [self.state.end])

    @rule(
        kind=st.sampled_from(("crash", "crash", "kill", "EIO", "EIO", "ENOSPC", "EROFS")),
        after=st.integers(0, 25),
        operation=st.sampled_from(_OPERATIONS),
        seed=st.integers(0, 2**32),
    )
    def plan_trouble(self, kind: str, after: int, operation: str, seed: int) -> None:
        self.trouble = Trouble(kind, after if kind in ("crash", "kill") else after // 5, operation, seed)

    @rule(room=st.integers(0, 400), steps=st.integers(1, 6))
    def fill_disk(self, room: int, steps: int) -> None:
        self.disk.capacity, self.full_steps = room, steps

    def do(
        self, action: Callable[[], Any], after: LogState, between: Iterable[LogState] = (), *, is_stop: bool = False
    ) -> Any:
        """Execute a step with the planned trouble. Return its result (True for None), or None after trouble.

        ``is_stop`` means that the log is closed after a failure.
        """
        before, trouble, self.trouble = self.state, self.trouble, None
        self.full_steps -= 1
        if self.full_steps < 0:
            self.disk.capacity = None
        self._arm(trouble)
        self.seen["full disk"] += self.disk.capacity is not None
        ends = [before.end, after.end, after.lower_end]
        failure: TidelogError | None = None
        try:
            result = action()
        except MachineCrashed:
            assert trouble is not None
            self.come_back(None if trouble.kind == "kill" else trouble.seed, [after, before, *between], ends)
            return None
        except TidelogError as error:
            failure = error
        finally:
            self._disarm()
        if failure is None:
            self.settle([after], after.start, after.end, after.lower_end)
            return True if result is None else result
        self.seen["failure"] += 1
        assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR, failure
        assert trouble is not None or self.disk.capacity is not None, failure
        if is_stop or self.log.failure is not None:
            self.seen["offline"] += 1
            self.come_back(trouble.seed if trouble else 0, [after, before, *between], ends)
        else:
            self.settle([after, before, *between], min(before.start, after.start), *ends)
            self.refused.append(after)
        return None

    def _arm(self, trouble: Trouble | None) -> None:
        if trouble is None:
            return
        if trouble.kind in ("crash", "kill"):
            self.disk.crash_at = self.disk.operations + trouble.after
        else:
            self.disk.fail = failing(getattr(errno, trouble.kind), trouble.operation, after=trouble.after, times=1)

    def _disarm(self) -> None:
        self.disk.fail, self.disk.crash_at = no_fault, None

    def come_back(
        self, seed: int | None, candidates: list[LogState], ends: list[int], operation: int | None = None
    ) -> None:
        """Crash, perhaps a second time during the opening of the log, and open it."""
        rng = random.Random(seed)
        self.seen["kill" if seed is None else "crash"] += 1
        _stop(self.disk, None if seed is None else rng)
        if operation is not None:
            self.disk.crash_at = self.disk.operations + operation
            with contextlib.suppress(MachineCrashed, RefreshMetadataError):
                self.open_log(self.disk)
                self.seen["opened before the second crash"] += 1
            _stop(self.disk, rng)
        self.reopen()
        self.seen["cut by recovery"] += self.log.recovery.truncated_bytes > 0
        if seed is not None:
            candidates = [*candidates, *self.refused]
            ends = [min(self.safe_end, *ends), *ends, *(state.end for state in self.refused)]
        self.refused.clear()
        self.settle(candidates, self.safe_start, *ends)
        self.safe_end = min(self.safe_end, self.state.end)

    def reopen(self, clean: bool = False) -> None:
        """Open the log. A full disk may refuse; it then leaves nothing open and works once there is room."""
        try:
            self.log = self.open_log(self.disk, clean)
            return
        except TidelogError as error:
            refusal = error
        assert refusal.code is ErrorCode.KAFKA_STORAGE_ERROR, refusal
        assert self.disk.capacity is not None, refusal
        assert self.disk.handle_count == 0
        self.seen["refused to open"] += 1
        self.disk.capacity = None
        self.log = self.open_log(self.disk)

    def settle(self, candidates: list[LogState], least_start: int, *ends: int) -> None:
        """Find the candidate that equals the log, with its start and end in the given ranges."""
        least = max(self.safe_start, min(least_start, *(c.start for c in candidates)))
        starts = range(least, max(c.start for c in candidates) + 1)
        is_begun_anew = self.log.log_start_offset == self.log.log_end_offset == self.safe_start
        allowed = range(self.safe_start if is_begun_anew else min(ends), max(ends) + 1)
        self.state = find_state(self.log, candidates, starts, allowed)
        self.epoch = max(self.epoch, self.log.latest_epoch)
        known = set(self.sent)
        self.sent = [batch for batch in self.sent if batch.end <= self.state.end]
        self.sent += [b for b in self.state.batches if b.header.producer_id >= 0 and b not in known]


def _stop(disk: MemoryFiles, rng: random.Random | None) -> None:
    if rng is None:
        disk.kill()
    else:
        disk.crash(rng)


def run_machine(machine: type[RuleBasedStateMachine], number: int, examples: int) -> None:
    """Run a state machine with the examples of one seed. A failure names the seed and the command that repeats it.

    That command then searches for a shorter example, which can take minutes.
    """
    is_repeated = environment_number("TIDELOG_SIM_SEED") is not None
    with reproducible(number), _silence():
        run_state_machine_as_test(
            seed(number)(type(machine.__name__, (machine,), {})),
            settings=settings(
                max_examples=examples,
                stateful_step_count=50,
                deadline=None,
                database=None,
                phases=(Phase.generate, Phase.shrink) if is_repeated else (Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
        )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress the warnings of thousands of recoveries, which would hide the failure."""
    logger = logging.getLogger("tidelog_node.log")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
