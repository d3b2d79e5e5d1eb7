"""Injects the faults of a plan into a cluster, and heals each when its time is over.

One thread owns the driver from the start of the plan to :meth:`Nemesis.heal`. :mod:`.strikes` implements the faults; a
fault without a target is noted as skipped. Moved partitions are moved back at the very end, when all processes run
again.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from tidelog_chaos.background import ENDS_S, BackgroundThread
from tidelog_chaos.drivers.driver import FaultDriver, Member
from tidelog_chaos.faults.plan import PlannedFault
from tidelog_chaos.faults.strikes import ActiveFault, ClusterWatch, ReplicaMover, Strikes


class Nemesis(BackgroundThread):
    """Runs a plan in its own thread; ``note`` receives the begin and end of each fault."""

    def __init__(
        self,
        driver: FaultDriver,
        plan: Sequence[PlannedFault],
        watch: ClusterWatch,
        mover: ReplicaMover,
        note: Callable[[str, Any], object],
    ) -> None:
        self._driver = driver
        self._plan = plan
        self._mover = mover
        self._note = note
        self._active: list[ActiveFault] = []
        self._strikes = Strikes(driver, watch, mover, self._active)
        super().__init__("nemesis")
        self.error: BaseException | None = None
        self.failures: list[str] = []
        """Faults that the driver failed to begin or end, which say more about the run than about the cluster."""

    @property
    def damaged(self) -> set[Member]:
        """Members whose disks were full or damaged: they may log errors and end."""
        return self._strikes.damaged

    @property
    def active(self) -> list[str]:
        """The active faults, in words."""
        return [fault.description for fault in list(self._active)]

    def stop(self, timeout_s: float = ENDS_S) -> None:
        """Begin no more faults, and end the active ones; raise the error of the thread.

        Raises:
            StillRunningError: The driver has not begun or ended a fault in time; those that are active remain.
        """
        super().stop(timeout_s)
        self.heal()
        if self.error is not None:
            raise self.error

    def heal(self) -> None:
        """End every fault and restart all stopped processes; a failure does not keep the rest from being healed."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._move_back)
            for member in self._driver.members:
                stack.callback(self._bring_back, member)
            stack.callback(self._driver.cut, frozenset())
            for fault in reversed(self._active):
                stack.callback(self._end, fault)

    def _move_back(self) -> None:
        try:
            self._mover.restore()
        except RuntimeError as error:
            self.failures.append(str(error))

    def _bring_back(self, member: Member) -> None:
        if not self._driver.is_running(member):
            self._driver.revive(member)

    def _run(self) -> None:
        started_s = time.monotonic()
        serial = itertools.count()
        starts = [(fault.at_s, next(serial), fault) for fault in self._plan]
        heapq.heapify(starts)
        ends: list[tuple[float, int, ActiveFault]] = []
        try:
            while starts or ends:
                at_s = min(queue[0][0] for queue in (starts, ends) if queue)
                if self._stopping.wait(max(0.0, started_s + at_s - time.monotonic())):
                    return
                if ends and ends[0][0] <= at_s:
                    self._end_in_time(heapq.heappop(ends)[2])
                    continue
                planned = heapq.heappop(starts)[2]
                begun = self._begin(planned)
                if begun is not None:
                    heapq.heappush(ends, (time.monotonic() - started_s + planned.hold_s, next(serial), begun))
        except Exception as error:  # noqa: BLE001  # the outermost loop of the thread: stop() raises it
            self.error = error

    def _begin(self, planned: PlannedFault) -> ActiveFault | None:
        try:
            fault = self._strikes.begin(planned)
        except RuntimeError as error:
            self.failures.append(f"{planned.fault} ({planned.kind}) could not be done: {error}")
            self._note(f"skip-{planned.fault}", {"kind": planned.kind, "error": str(error)})
            return None
        if fault is None:
            self._note(f"skip-{planned.fault}", {"kind": planned.kind})
            return None
        self._active.append(fault)
        self._note(f"start-{planned.fault}", self._value(fault))
        return fault

    def _end_in_time(self, fault: ActiveFault) -> None:
        try:
            self._end(fault)
        except RuntimeError as error:
            # It counts as active, so that heal() tries again.
            self.failures.append(f"{fault.description} could not be ended in time: {error}")

    def _end(self, fault: ActiveFault) -> None:
        fault.undo()
        self._active.remove(fault)
        self._note(f"stop-{fault.planned.fault}", self._value(fault))

    def _value(self, fault: ActiveFault) -> dict[str, Any]:
        members = [str(member) for member in sorted(fault.members)]
        return {"kind": fault.planned.kind, "members": members, "what": fault.description}
