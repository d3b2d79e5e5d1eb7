"""The facts about a controller by which supervisors decide about traffic and restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog_foundation.monitoring.backlog import Backlog
from tidelog_foundation.monitoring.checks import Check
from tidelog_quorum.controller.readiness import ControllerFacts, controller_checks
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.raft.protocol import RaftEngine


class ControllerReadiness:
    """Gathers the facts about one controller, on its event loop. It is called at least every second."""

    def __init__(self, node_id: int, controller: Controller, engine: RaftEngine, clock_ms: Callable[[], int]) -> None:
        self._node_id = node_id
        self._controller = controller
        self._engine = engine
        self._clock_ms = clock_ms
        self._backlog = Backlog()

    def __call__(self) -> Sequence[Check]:
        """Return the checks of this moment."""
        leader, image, now_ms = self._engine.leader, self._controller.committed, self._clock_ms()
        # A start forgets what is committed. An entry of the leader's epoch proves that all earlier ones are here.
        if self._backlog.has_caught_up or (leader.leader_id is not None and image.epoch == leader.epoch):
            self._backlog.observe(image.offset, self._engine.committed_offset, now_ms)
        facts = ControllerFacts(
            self._node_id,
            leader.leader_id,
            leader.epoch,
            self._controller.is_active,
            image.offset,
            self._engine.committed_offset,
            self._backlog.has_caught_up,
            self._backlog.age_ms(now_ms),
        )
        return controller_checks(facts)
