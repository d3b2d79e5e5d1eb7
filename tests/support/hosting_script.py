"""The core of a node's hosted replicas, with a shell that executes its commands on disks with planned failures."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, TopicId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node.hosting import HostedReplicas, LastState, PartitionKey
from tidelog_node.hosting.commands import (
    AddToFetcher,
    AssignDirectory,
    ChangeRegistration,
    Command,
    DeleteReplica,
    FailDirectory,
    MeasureSpace,
    OpenLog,
    RemoveFromFetcher,
    RenameToStray,
    ScheduleDeletion,
    TakeOffline,
)
from tidelog_node.hosting.events import (
    DeletionScheduled,
    DirectoryFailed,
    Event,
    ImageChanged,
    LeaderFollowed,
    LeaderUnfollowed,
    LogOpened,
    OpenRefused,
    Proceed,
    RegistrationTaken,
    SpaceMeasured,
    StrayRenamed,
)
from tidelog_node.log.directory.log_directory import PartitionCheckpoint
from tidelog_quorum.metadata.delta import delta_between
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord

NOBODY, ONE, TWO, THREE = (BrokerId(i) for i in (-1, 1, 2, 3))
A, B = Path("/a"), Path("/b")
IDS = {A: DirectoryId(b"a" * 16), B: DirectoryId(b"b" * 16)}
TOPIC, OTHER_TOPIC = TopicId(b"0123456789abcdef"), TopicId(b"fedcba9876543210")
KEY: PartitionKey = ("t", 0)
LAST = LastState(A, PartitionCheckpoint(5, 6, 3))


def storage_error(number: int | None, text: str = "refused") -> TidelogError:
    """Return the error of a disk, or of a rule if no system error ``number`` caused it."""
    error = error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)
    error.__cause__ = None if number is None else OSError(number, text)
    return error


DISK_FAILED = storage_error(errno.EIO)
FILES_REFUSED = storage_error(errno.EACCES)
DISK_FULL = storage_error(errno.ENOSPC)
RULE = storage_error(None)

Answer = Callable[[Any], Event | None]


class Host:
    """Node 1 with the log directories /a and /b. ``done`` are the commands since the last :meth:`look`."""

    def __init__(self) -> None:
        self.core = HostedReplicas(ONE, IDS, TopicConfig())
        self.image = MetadataImage()
        self.now_ms = 0
        self.free = 1 << 30
        self.done: list[Command] = []
        self.open: dict[PartitionKey, Path] = {}
        self.copied: dict[PartitionKey, BrokerId] = {}
        self.refusals: dict[type[Command], Answer] = {}
        self._failed: set[Path] = set()

    def run(self, event: Event) -> None:
        """Pass an event to the core and execute its commands."""
        commands = self.core.step(event, self.now_ms)
        self.core.check_invariants()
        for command in commands:
            self.done.append(command)
            self._note(command)
            answer = self.refusals.get(type(command), _ANSWERS.get(type(command), lambda *_: None))
            result = answer(command) if type(command) in self.refusals else answer(self, command)
            if result is not None:
                if isinstance(result, LogOpened):
                    self.open[result.key] = result.directory
                self.run(result)

    def change(self, *records: MetadataRecord) -> None:
        """Apply one entry of the metadata log, step by step."""
        before = self.image
        self.image = before.apply(before.offset + 1, 1, records)
        self.run(ImageChanged(self.image, delta_between(before, self.image)))
        while self.core.is_changing:
            self.run(Proceed())

    def create(self, partitions: int = 1, topic_id: TopicId = TOPIC, **partition: Any) -> None:
        """Register the brokers and create the topic, led by this node by default."""
        values: dict[str, Any] = {"replicas": (ONE, TWO), "isr": (ONE, TWO), "leader": ONE, **partition}
        records = [PartitionRecord(topic_id, i, **values) for i in range(partitions)]
        self.change(*brokers(ONE, TWO, THREE), TopicRecord("t", topic_id), *records)

    def look(self, *kinds: type[Command]) -> list[Command]:
        """Return the commands since the last call, of some kinds or all."""
        done, self.done = self.done, []
        return [command for command in done if not kinds or isinstance(command, kinds)]

    def assigned(self) -> list[tuple[DirectoryId, bool]]:
        """Return the directory assignments reported to the controller since the last :meth:`look`."""
        return [(c.directory, c.keeps_log) for c in self.look(AssignDirectory) if isinstance(c, AssignDirectory)]

    def refuse(self, kind: type[Command], answer: Answer) -> None:
        """Answer the commands of a kind differently."""
        self.refusals[kind] = answer

    def accept(self, kind: type[Command]) -> None:
        """Answer the commands of a kind as initially."""
        del self.refusals[kind]

    def refuse_to_open(self, error: TidelogError, directory: Path | None = A) -> None:
        """Refuse to open any log."""
        self.refuse(OpenLog, lambda command: OpenRefused(command.key, directory, error))

    def follow(self, leader_id: BrokerId, epoch: int = 1, key: PartitionKey = KEY) -> None:
        """Make the partition's state machine follow a leader."""
        self.run(LeaderFollowed(key, leader_id, LeaderEpoch(epoch)))

    def lead(self, key: PartitionKey = KEY) -> None:
        """Make the partition's state machine lead."""
        self.run(LeaderUnfollowed(key))

    def fail(self, path: Path, error: TidelogError = DISK_FAILED) -> None:
        """Fail a log directory."""
        if path not in self._failed:
            self._failed.add(path)
            replicas = tuple(key for key, directory in self.open.items() if directory == path)
            self.run(DirectoryFailed(path, error, replicas))

    def place(self) -> Path:
        """Return the first online directory."""
        return next(path for path in IDS if path not in self._failed)

    def _note(self, command: Command) -> None:
        match command:
            case TakeOffline() | DeleteReplica():
                del self.open[command.key]
                assert command.key not in self.copied
            case AddToFetcher():
                assert command.key in self.open
                self.copied[command.key] = command.leader_id
            case RemoveFromFetcher():
                assert self.copied.pop(command.key) == command.leader_id
            case _:
                pass


def brokers(*numbers: BrokerId, epoch: int = 1) -> list[RegisterBrokerRecord]:
    """Return the registrations of unfenced brokers."""
    return [RegisterBrokerRecord(b, b"i" * 16, BrokerEpoch(epoch), Endpoint("h", 1), fenced=False) for b in numbers]


def _registration_taken(host: Host, command: ChangeRegistration) -> Event:
    assert command.key in host.open
    return RegistrationTaken(command.key, command.registration)


def _fail_directory(host: Host, command: FailDirectory) -> None:
    host.fail(command.directory, command.error)


_ANSWERS: dict[type[Command], Callable[[Host, Any], Event | None]] = {
    OpenLog: lambda host, command: LogOpened(command.key, host.place()),
    ChangeRegistration: _registration_taken,
    DeleteReplica: lambda _, command: DeletionScheduled(command.key, A / "t-0-delete", 60_000),
    ScheduleDeletion: lambda _, command: DeletionScheduled(command.key, A / "t-0-delete", command.delay_ms),
    RenameToStray: lambda _, command: StrayRenamed(command.key),
    FailDirectory: _fail_directory,
    MeasureSpace: lambda host, command: SpaceMeasured(command.directory, host.free),
}
