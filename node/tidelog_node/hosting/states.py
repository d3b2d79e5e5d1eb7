"""States of a replica that a node hosts; each state has only the data that belongs to it.

::

    (none) --> Opening --> Online <--> SteppedBack
                 ^ |          |             |
                 | v          v             v
               Offline <--------------------+

A removed replica has no state. If the disk refuses to rename its folder, the folder stays as a ``RefusedFolder``.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch, TopicId
from tidelog_node.log.directory.log_directory import PartitionCheckpoint
from tidelog_node.replication.isr import FormerLeadership

PartitionKey: TypeAlias = tuple[str, int]
"""A topic's name and a partition's number."""


class OfflineReason(enum.Enum):
    """Reasons why a replica is offline.

    - ``DIRECTORY``: its log directory has failed; it comes back with the next start.
    - ``RULE``: opening it could lose records; the missing directory tells the controller the reason.
    - ``FILES``: its disk was full or refused its files; the node retries to open it.
    """

    DIRECTORY = "directory"
    RULE = "rule"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class LastState:
    """The log directory of a replica's log, and the values that a checkpoint would hold for the log.

    ``has_folder`` says that the log had its folder there: another folder, or none, is not the replica. ``leadership``
    is set if the replica led.
    """

    directory: Path
    checkpoint: PartitionCheckpoint
    has_folder: bool = True
    leadership: FormerLeadership | None = None


class Source(NamedTuple):
    """The leader that a replica follows, and the leader's epoch."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Offline:
    """A replica that cannot be used.

    Checkpoints continue to store ``last_state``; None if its directory failed or it was never open.
    """

    topic_id: TopicId
    error: TidelogError
    reason: OfflineReason
    last_state: LastState | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """A replica whose log is being opened or created; ``before`` is set if it was offline until now.

    ``preferred`` is the log directory that an operator chose for it.
    """

    topic_id: TopicId
    before: Offline | None = None
    preferred: Path | None = None


class Online(NamedTuple):
    """A replica whose log is open: it leads, follows ``source``, or has no leader.

    ``is_placed``: the controller has recorded ``directory`` since the log was opened, so the log was never lost.
    """

    topic_id: TopicId
    directory: Path
    source: Source | None = None
    is_placed: bool = False


@dataclass(frozen=True, slots=True)
class SteppedBack:
    """A replica whose disk is full, while others can take its place.

    The controller considers its directory lost. Its log stays open and it copies nothing. It returns to ``online`` when
    the disk has room.
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

    The folder keeps its name. A new replica of that name waits for the rename, since it must not inherit the records.
    """

    directory: Path
    delay_ms: int
