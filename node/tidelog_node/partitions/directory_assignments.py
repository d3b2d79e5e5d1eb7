"""Tells the controller in which log directory each replica of this node is, many in one call (KIP-858).

The newest word on a replica counts. It is repeated until the controller has it, in whatever order directories fail
meanwhile: an assignment to a directory that is offline is how the controller learns that the replica is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId, TopicId

logger = logging.getLogger(__name__)

MAX_ASSIGNMENTS_PER_REQUEST = 2_250
"""As in Kafka's AssignmentsManager."""
_FIRST_BACKOFF_S = 0.05
_MAX_BACKOFF_S = 1.0
_OBSOLETE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""The partition is not there or not on this node any more."""

_Key = tuple[TopicId, int]
_Word = tuple[DirectoryId, bool]
"""The directory, and whether the log is what it was before the replica was said to be lost."""
_Batch = dict[_Key, _Word]


class AssignmentController(Protocol):
    """The controller as far as directories go."""

    async def assign_replicas_to_dirs(self, request: pb.AssignReplicasToDirsRequest) -> pb.AssignReplicasToDirsResponse:
        """Send the request to the leading controller; raises TidelogError when the call failed whole."""
        ...


class DirectoryAssignments:
    """The queue of assignments and the task that empties it; the event loop's."""

    def __init__(
        self, controller: AssignmentController, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._waiting: _Batch = {}
        self._has_work = asyncio.Event()

    def submit(self, topic_id: TopicId, index: int, directory: DirectoryId, *, keeps_log: bool = False) -> None:
        """Queue where a replica is, in place of what was to be said of it before.

        ``keeps_log``: if it was said to be lost, its log is what it was all the same.
        """
        self._waiting[topic_id, index] = (directory, keeps_log)
        self._has_work.set()

    async def run(self) -> None:
        """Send what is queued until cancelled."""
        backoff_s = _FIRST_BACKOFF_S
        while True:
            await self._has_work.wait()
            batch = dict(list(self._waiting.items())[:MAX_ASSIGNMENTS_PER_REQUEST])
            try:
                response = await self._controller.assign_replicas_to_dirs(self._request(batch))
                is_done = self._take(batch, response)
            except TidelogError as error:
                is_done = False
                log = logger.warning if backoff_s == _FIRST_BACKOFF_S else logger.debug
                log("Telling the controller the directories of %d replicas failed: %s", len(batch), error)
            if not self._waiting:
                self._has_work.clear()
            if is_done:
                backoff_s = _FIRST_BACKOFF_S
            else:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    def _request(self, batch: _Batch) -> pb.AssignReplicasToDirsRequest:
        directories: dict[_Word, pb.DirectoryAssignment] = {}
        topics: dict[tuple[_Word, TopicId], pb.DirectoryAssignmentTopic] = {}
        for (topic_id, index), word in batch.items():
            if word not in directories:
                directories[word] = pb.DirectoryAssignment(directory_id=word[0], keeps_logs=word[1])
            if (word, topic_id) not in topics:
                topics[word, topic_id] = directories[word].topics.add(topic_id=topic_id)
            topics[word, topic_id].partitions.append(index)
        return pb.AssignReplicasToDirsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), directories=directories.values()
        )

    def _take(self, batch: _Batch, response: pb.AssignReplicasToDirsResponse) -> bool:
        """Drop what is settled; returns whether everything of the batch is."""
        is_done = True
        results = {(TopicId(t.topic_id), r.index): r for t in response.topics for r in t.partitions}
        for key, word in batch.items():
            result = results.get(key)
            is_refused = result is None or result.HasField("error")
            if result is not None and is_refused and ErrorCode.of(result.error.code) not in _OBSOLETE:
                logger.warning("The controller refused the directory of a replica: %s", result.error.message)
            if result is None or (is_refused and ErrorCode.of(result.error.code) not in _OBSOLETE):
                is_done = False
            elif self._waiting.get(key) == word:
                del self._waiting[key]
        return is_done
