"""The states of a replica that a node hosts; each has the data that belongs to it and nothing else.

::

    (none) --> Opening --> Online <--> SteppedBack
                 ^ |          |             |
                 | v          v             v
               Offline <--------------------+

A replica that is removed has no state. The folder that it leaves may have to wait for its disk: see ``RefusedFolder``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch, TopicId
from tidelog_node.log.directory.log_directory import PartitionCheckpoint

PartitionKey: TypeAlias = tuple[str, int]
"""A topic's name and a partition's number."""


class OfflineReason(enum.Enum):
    """Why a replica cannot be used.

    - ``DIRECTORY``: its log directory has failed; it comes back with the next start.
    - ``RULE``: opening it could lose records; the controller knows the reason from the directory that is missing.
    - ``FILES``: its disk was full or refused its files, which may end: it is opened again and again.
    """

    DIRECTORY = "directory"
    RULE = "rule"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class LastState:
    """The log directory of a replica's log, and what a checkpoint would have said of the log.

    ``has_folder`` says that the log had its folder there: another folder, or none, is not the replica.
    """

    directory: Path
    checkpoint: PartitionCheckpoint
    has_folder: bool = True


class Source(NamedTuple):
    """The leader that a replica follows, and the leader's epoch."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Offline:
    """A replica that cannot be used.

    ``last_state`` is what checkpoints go on to say of it, None of one whose directory failed or that was never open.
    """

    topic_id: TopicId
    error: TidelogError
    reason: OfflineReason
    last_state: LastState | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """A replica whose log is being opened or created; ``before`` is set when it was offline until now.

    ``preferred`` is the log directory that an operator chose for it.
    """

    topic_id: TopicId
    before: Offline | None = None
    preferred: Path | None = None


class Online(NamedTuple):
    """A replica whose log is open: it leads, follows ``source``, or has no leader.

    ``is_placed``: since it was opened the controller has had it in ``directory``, so that its log is what it was then.
    """

    topic_id: TopicId
    directory: Path
    source: Source | None = None
    is_placed: bool = False


@dataclass(frozen=True, slots=True)
class SteppedBack:
    """A replica whose disk is full, while others can take its place.

    To the controller its directory is lost. Its log stays open, and it copies nothing; ``online`` is what it is again
    when there is room.
    """

    online: Online

    @property
    def topic_id(self) -> TopicId:
        """The topic's id."""
        return self.online.topic_id


ReplicaState: TypeAlias = Opening | Online | SteppedBack | Offline


@dataclass(frozen=True, slots=True)
class RefusedFolder:
    """The folder of a deleted replica that could not be renamed.

    It keeps its place. A new replica of that name, which must not inherit the records, waits for it.
    """

    directory: Path
    delay_ms: int
