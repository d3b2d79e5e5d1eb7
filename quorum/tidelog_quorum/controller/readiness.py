"""The readiness of a controller as a pure function of facts.

A controller is ready if it can do its part in the quorum: it follows a leader, or it leads with a majority of the
voters, and it has applied what is committed. A leader without a majority's answers resigns after
``controller.quorum.fetch.timeout.ms`` (check quorum), and a follower forgets a leader that it has not heard for an
election timeout, so both cases show as the absence of a leader.
"""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.monitoring.checks import Check

MAX_APPLY_DELAY_MS: Final = 5_000
"""The time after which a committed entry that is not applied makes a controller unready."""


@dataclass(frozen=True, slots=True)
class ControllerFacts:
    """The state of a controller at one moment.

    ``has_begun`` is True for a leader that has received all entries before its epoch. ``has_caught_up`` is True once
    the controller has applied all entries that were committed at some moment since its start. ``apply_delay_ms`` is the
    time for which an entry has been committed and not applied.
    """

    node_id: int
    leader_id: int | None
    epoch: int
    has_begun: bool
    applied_offset: int
    committed_offset: int
    has_caught_up: bool
    apply_delay_ms: int

    @property
    def leads(self) -> bool:
        """True if the controller leads."""
        return self.leader_id == self.node_id


def controller_checks(facts: ControllerFacts) -> list[Check]:
    """Return the checks of a controller."""
    return [_leader(facts), _metadata(facts)]


def _leader(facts: ControllerFacts) -> Check:
    if facts.leader_id is None:
        text = f"none is elected in epoch {facts.epoch}; most of the voters must run and reach each other"
        return Check("leader", False, text)
    if not facts.leads:
        return Check("leader", True, f"controller {facts.leader_id} leads in epoch {facts.epoch}")
    if not facts.has_begun:
        text = f"this controller leads in epoch {facts.epoch}, but a majority has not confirmed it yet"
        return Check("leader", False, text)
    return Check("leader", True, f"this controller leads in epoch {facts.epoch}")


def _metadata(facts: ControllerFacts) -> Check:
    position = f"applied up to offset {facts.applied_offset}, committed up to {facts.committed_offset}"
    if not facts.has_caught_up:
        return Check("metadata", False, f"the log is being applied: {position}")
    if facts.apply_delay_ms > MAX_APPLY_DELAY_MS:
        delay = f"entries wait to be applied for {facts.apply_delay_ms / 1000:.1f} s"
        return Check("metadata", False, f"{delay}: {position}")
    return Check("metadata", True, position)
