"""Bugs of the replicas that a node hosts: settings, brokers, disks that refuse, and who is copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.planting import Patch, PlantedBug

from tidelog_node.hosting.assignments import AssignmentQueue, SendAssignments
from tidelog_node.hosting.commands import ChangeEligible, Command
from tidelog_node.hosting.fetch_sources import FetchSources
from tidelog_node.hosting.plan import ConfigsStep, Plan, Step
from tidelog_node.hosting.replicas import HostedReplicas


def _settings_after_isrs() -> list[Patch]:
    """KIP-966: a leader commits by a min.insync.replicas that is not the one by which the controller chose the ISR."""
    original = Plan.next_step

    def next_step(self: Any) -> Step | None:
        step = original(self)
        if isinstance(step, ConfigsStep):
            self.late = step
            return None
        late: Step | None = self.__dict__.pop("late", None) if self.is_over else None
        return late or step

    return [(Plan, "next_step", next_step)]


def _stay_with_the_first_leader() -> list[Patch]:
    original = FetchSources.start

    def start(self: FetchSources, key: Any, source: Any) -> list[Command]:
        return [] if self.get(key) is not None else original(self, key, source)

    return [(FetchSources, "start", start)]


def _open_without_the_brokers() -> list[Patch]:
    """A new leader knows nobody who may join its ISR until the brokers change."""
    original = HostedReplicas._opened

    def opened(self: HostedReplicas, event: Any) -> Sequence[Command]:
        return [command for command in original(self, event) if not isinstance(command, ChangeEligible)]

    return [(HostedReplicas, "_opened", opened)]


def _give_up_what_a_disk_refused() -> list[Patch]:
    return [(HostedReplicas, "_retry", lambda *_: [])]


def _tell_the_controller_once() -> list[Patch]:
    """A node assigns directories in one call only: a directory that was reported as lost stays lost."""
    original = AssignmentQueue._send

    def send(self: Any, now_ms: int) -> list[SendAssignments]:
        if self.__dict__.get("has_sent"):
            self._waiting.clear()
        sent = original(self, now_ms)
        self.has_sent = self.__dict__.get("has_sent") or bool(sent)
        return sent

    return [(AssignmentQueue, "_send", send)]


HOSTING_BUGS = (
    PlantedBug("copies from the first leader for good", 20, _stay_with_the_first_leader),
    PlantedBug("opens replicas without the brokers", 60, _open_without_the_brokers),
    PlantedBug("tells the controller a directory once", 300, _tell_the_controller_once),
    PlantedBug("gives up what a full disk refused", 600, _give_up_what_a_disk_refused),
)

SETTINGS_AFTER_ISRS = PlantedBug("settings after the ISRs", 1, _settings_after_isrs)
"""The script :func:`sim.cluster.scripted.raised_min_isr` shows it."""
