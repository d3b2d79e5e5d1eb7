"""Reports of each replica's log directory to the controller, the shell of :mod:`tidelog_node.hosting.assignments`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId, TopicId
from tidelog_foundation.requests.replicas import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignment,
    DirectoryAssignmentTopic,
)
from tidelog_node.event_loop import Clock
from tidelog_node.hosting import assignments as core
from tidelog_node.hosting.commands import AssignDirectory

logger = logging.getLogger(__name__)


class AssignmentController(Protocol):
    """The controller's call for directory assignments."""

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Send the request to the leading controller; raise TidelogError when the call failed as a whole."""


class DirectoryAssignments:
    """The queue of directory assignments on the event loop; ``run`` is the task that sends them."""

    def __init__(
        self,
        controller: AssignmentController,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._queue = core.AssignmentQueue()
        self._has_work = asyncio.Event()

    def submit(self, assignment: AssignDirectory) -> None:
        """Queue a replica's directory, in place of an earlier unsent one."""
        self._queue.step(assignment, self._clock.monotonic_ms())
        self._has_work.set()

    async def run(self) -> None:
        """Send the queued assignments until cancelled."""
        while True:
            await self._wait()
            for command in self._queue.step(core.AssignmentsDue(), self._clock.monotonic_ms()):
                event = await self._send(command)
                self._queue.step(event, self._clock.monotonic_ms())

    async def _wait(self) -> None:
        deadline_ms = self._queue.next_deadline_ms
        if deadline_ms is None:
            await self._has_work.wait()
            self._has_work.clear()
        else:
            await asyncio.sleep(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000)

    async def _send(self, command: core.SendAssignments) -> core.AssignmentsAnswered | core.AssignmentsFailed:
        request = assignments_request(self._broker_id, self._broker_epoch(), command.assignments)
        try:
            response = await self._controller.assign_replicas_to_dirs(request)
        except TidelogError as error:
            log = logger.debug if self._queue.is_retrying else logger.warning
            count = len(command.assignments)
            log("Reporting the log directories of %d replicas failed, retrying: %s", count, error)
            return core.AssignmentsFailed()
        for result in (result for topic in response.topics for result in topic.partitions):
            if result.error is not None and result.error.code not in core.OBSOLETE:
                logger.warning("The controller rejected the log directory of a replica: %s", result.error.message)
        return assignments_answered(response)


def assignments_request(
    broker_id: BrokerId, broker_epoch: BrokerEpoch, assignments: Iterable[AssignDirectory]
) -> AssignReplicasToDirsRequest:
    """Return the request with the replicas' directories."""
    directories: dict[tuple[DirectoryId, bool], dict[TopicId, list[int]]] = {}
    for assignment in assignments:
        topics = directories.setdefault((assignment.directory, assignment.keeps_log), {})
        topics.setdefault(assignment.topic_id, []).append(assignment.index)
    return AssignReplicasToDirsRequest(
        broker_id, broker_epoch, tuple(_assignment(*key, topics) for key, topics in directories.items())
    )


def assignments_answered(response: AssignReplicasToDirsResponse) -> core.AssignmentsAnswered:
    """Return the controller's answer for each replica."""
    return core.AssignmentsAnswered(
        {
            (topic.topic_id, result.index): None if result.error is None else result.error.code
            for topic in response.topics
            for result in topic.partitions
        }
    )


def _assignment(
    directory_id: DirectoryId, keeps_logs: bool, topics: Mapping[TopicId, Sequence[int]]
) -> DirectoryAssignment:
    named = (DirectoryAssignmentTopic(topic_id, tuple(indexes)) for topic_id, indexes in topics.items())
    return DirectoryAssignment(directory_id, tuple(named), keeps_logs)
