"""A state machine of the replicas that a node hosts: one state per replica, changed by the metadata and the disks.

It applies an image's changes step by step, in the order of :mod:`tidelog_node.hosting.plan`. Other events may occur
between two steps; each step considers the states at its time. The rules:

- A replica is not created anew while its log may be in a log directory that is offline, and the last in-sync replica
  not while its directory is missing (:mod:`tidelog_node.hosting.placement`). A replica that was open must find its
  folder when it is opened again.
- When a log directory fails, its replicas are offline until the next start; without a directory the node ends
  (KIP-112, KIP-858). When only a replica's own files fail, that replica goes offline. The controller is told that its
  directory is lost, and every retry opens it again.
- A replica steps back when a full disk refuses its append and others can take its place. Its directory is reported as
  lost, so that it leaves the ISR at once, and it fetches nothing. The last replica in sync stays: it refuses records
  and serves reads. A replica returns when the disk has room, or at once when nobody else can lead. If the controller
  knew it in its directory before, it reports that its log was never lost, and stays an eligible leader (KIP-966).
- The node reports each directory that the controller does not have.
- A folder of a deleted replica that cannot be renamed keeps its place; no new replica of its name is opened there.
- A replica is copied from the leader that its state machine follows, and from nobody while it is stepped back or not
  open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import assert_never

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LOST_DIRECTORY, NO_BROKER, BrokerId, DirectoryId, TopicId
from tidelog_node.broker.report import Level, Report
from tidelog_node.hosting import commands, events, plan
from tidelog_node.hosting.fetch_sources import FetchSources
from tidelog_node.hosting.plan import TopicConfigs
from tidelog_node.hosting.states import (
    Offline,
    OfflineReason,
    Online,
    Opening,
    PartitionKey,
    RefusedFolder,
    ReplicaState,
    Source,
    SteppedBack,
)
from tidelog_node.log.disk.disk_errors import is_disk_failure
from tidelog_node.replication.events import EligibleBrokersChanged
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.registrations import PartitionRegistration

_MANY_NEW = 64
"""From this many new replicas in one step on, the node creates their logs together before it opens each."""
_MIN_FREE_BATCHES = 2
"""A disk counts as writable again once this many maximum-size batches fit."""


class HostedReplicas:
    """The hosted replicas of a node, for the life of its process; ``directories`` are the online ones."""

    def __init__(self, broker_id: BrokerId, directories: Mapping[Path, DirectoryId], defaults: TopicConfig) -> None:
        self._broker_id = broker_id
        self._directories = dict(directories)
        self._failures: dict[Path, TidelogError] = {}
        self._configs = TopicConfigs(defaults)
        self._image = MetadataImage()
        self._brokers = EligibleBrokersChanged({}, {})
        self._plan: plan.Plan | None = None
        self._removal: plan.RemovalStep | None = None
        self._replicas: dict[PartitionKey, ReplicaState] = {}
        self._sources = FetchSources()
        self._preferred: dict[PartitionKey, Path] = {}
        self._refused_folders: dict[PartitionKey, RefusedFolder] = {}
        self._due_ms: dict[Path, int] = {}

    @property
    def is_changing(self) -> bool:
        """True while changes of an image are left, so that a ``Proceed`` follows."""
        return self._removal is not None or not (self._plan is None or self._plan.is_over)

    def offline(self, key: PartitionKey) -> Offline | None:
        """Return the reason why a replica of this node is offline, or None if it is not offline or not on this node."""
        state = self._replicas.get(key)
        return state.before if isinstance(state, Opening) else state if isinstance(state, Offline) else None

    def check_online(self, key: PartitionKey) -> None:
        """Raise KAFKA_STORAGE_ERROR if this node has the replica and cannot use it."""
        offline = self.offline(key)
        if offline is not None:
            text = f"{key[0]}-{key[1]} is offline on node {self._broker_id}: {offline.error.message}"
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)

    @property
    def offline_count(self) -> int:
        """The number of replicas of this node that are offline."""
        return sum(self.offline(key) is not None for key in self._replicas)

    def offline_states(self) -> Iterator[tuple[PartitionKey, Offline]]:
        """Yield the replicas that may come online again when their disk accepts their files."""
        for key in self._replicas:
            offline = self.offline(key)
            if offline is not None and offline.reason is OfflineReason.FILES:
                yield key, offline

    def retries(self) -> list[events.RetryFolder | events.RetryReplica]:
        """Return one event for each refused operation to retry."""
        return [
            *map(events.RetryFolder, self._refused_folders),
            *(events.RetryReplica(key) for key, _ in self.offline_states()),
        ]

    def step(self, event: events.Event, now_ms: int) -> Sequence[commands.Command]:
        """Process ``event`` and return the commands in order.

        The shell completes each command and feeds back its events before the next one.
        """
        match event:
            case events.LeaderFollowed():
                return self._follow(event.key, Source(event.leader_id, event.leader_epoch))
            case events.LeaderUnfollowed():
                return self._follow(event.key, None)
            case events.Proceed():
                return self._proceed()
            case events.LogOpened():
                return self._opened(event)
            case events.RegistrationTaken():
                return self._place(event.key, event.registration)
            case events.ImageChanged():
                assert not self.is_changing, "the changes of the last image are not complete"
                self._image = event.image
                concerns_all = self._configs.follow(event.image)
                self._plan = plan.Plan(self._broker_id, event.delta, concerns_all=concerns_all)
                return []
            case events.DefaultsChanged():
                self._configs.change_defaults(event.defaults)
                return []
            case events.DirectoryPreferred():
                self._preferred[event.key] = event.directory
                return []
            case events.ReplicaMoved():
                self._due_ms[event.folder] = now_ms + event.delay_ms
                return self._moved(event)
            case events.DeletionScheduled():
                if event.path is not None:
                    self._due_ms[event.path] = now_ms + event.delay_ms
                return self._deletion_scheduled(event)
            case events.TimePassed():
                return self._remove_folders(now_ms)
            case _:
                return self._step_failure(event)

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        self._sources.check_invariants()
        for key, state in self._replicas.items():
            expected = state.source if isinstance(state, Online) else None
            assert self._sources.get(key) == expected, (key, state, self._sources.get(key))
            is_blocked = key in self._refused_folders and not isinstance(state, Opening | Offline)
            assert not is_blocked, f"{key} is open in the place of {self._refused_folders[key]}"
            if isinstance(state, Offline) and state.last_state is not None:
                assert state.reason is OfflineReason.FILES, (key, state)

    def _step_failure(
        self,
        event: events.OpenRefused
        | events.ReplicaRefused
        | events.AppendRefused
        | events.SpaceMeasured
        | events.DirectoryFailed
        | events.DeletionRefused
        | events.StrayRenamed
        | events.RetryDue
        | events.RetryFolder
        | events.RetryReplica,
    ) -> Sequence[commands.Command]:
        match event:
            case events.OpenRefused():
                return self._open_refused(event)
            case events.ReplicaRefused():
                return self._refuse(event)
            case events.AppendRefused():
                return self._step_back(event)
            case events.SpaceMeasured():
                return self._return_replicas_in(event.directory, event.free)
            case events.DirectoryFailed():
                return self._fail_directory(event)
            case events.DeletionRefused():
                return self._deletion_refused(event)
            case events.StrayRenamed():
                return [self._open_log(event.key, self._opening(event.key))]
            case events.RetryDue():
                full = (s.online.directory for s in self._replicas.values() if isinstance(s, SteppedBack))
                return [commands.MeasureSpace(path) for path in dict.fromkeys(full)]
            case events.RetryFolder():
                return self._retry_folder(event.key)
            case events.RetryReplica():
                return self._retry(event.key)
            case _:
                assert_never(event)

    def _proceed(self) -> Sequence[commands.Command]:
        removal, self._removal = self._removal, None
        if removal is not None:
            return self._remove(removal)
        step = None if self._plan is None else self._plan.next_step()
        return [] if step is None else self._begin(step)

    def _begin(self, step: plan.Step) -> Sequence[commands.Command]:
        match step:
            case plan.ReplicaStep():
                return self._ensure(step)
            case plan.RemovalStep():
                return self._begin_removal(step)
            case plan.BrokersStep():
                return self._change_brokers()
            case plan.ConfigsStep():
                return self._change_configs(step.topics)
            case plan.CreationStep():
                return self._create(step)
            case plan.PauseStep():
                return [commands.PauseFetches()]
            case plan.ResumeStep():
                return [commands.ResumeFetches()]
            case _:
                assert_never(step)

    def _change_brokers(self) -> Sequence[commands.Command]:
        brokers = brokers_of(self._image)
        if brokers == self._brokers:
            return []
        self._brokers = brokers
        return [commands.ChangeBrokers(brokers)]

    def _change_configs(self, topics: frozenset[str] | None) -> Sequence[commands.Command]:
        changed = [key for key, state in self._replicas.items() if isinstance(state, Online | SteppedBack)]
        configs = tuple((key, self._configs.of(key[0])) for key in changed if topics is None or key[0] in topics)
        return [commands.ChangeConfigs(configs)] if configs else []

    def _create(self, step: plan.CreationStep) -> Sequence[commands.Command]:
        keys = [((c.topic_name, c.index), c.topic_id) for c in step.changes]
        new = [(key, topic_id) for key, topic_id in keys if key not in self._replicas and key not in self._preferred]
        if len(new) < _MANY_NEW:
            return []
        return [commands.CreateLogs(tuple(self._open_log(key, Opening(topic_id)) for key, topic_id in new))]

    def _ensure(self, step: plan.ReplicaStep) -> Sequence[commands.Command]:
        state = self._replicas.get(step.key)
        if isinstance(state, Online | SteppedBack):
            return [commands.ChangeRegistration(step.key, self._registration(step.key))]
        if state is not None and state.topic_id == step.topic_id:
            return []
        return self._open(step.key, step.topic_id)

    def _begin_removal(self, step: plan.RemovalStep) -> Sequence[commands.Command]:
        """End a move of the replica first; the replica may change its state by that."""
        state = self._replicas.get(step.key)
        if isinstance(state, Online | SteppedBack) and state.topic_id == step.topic_id:
            self._removal = step
            return [commands.CancelMove(step.key)]
        return self._remove(step)

    def _remove(self, step: plan.RemovalStep) -> Sequence[commands.Command]:
        key = step.key
        state = self._replicas.get(key)
        if state is None or state.topic_id != step.topic_id:
            return []
        del self._replicas[key]
        if isinstance(state, Offline):
            # The folder of a replica that was offline still has its place, which a new replica may need.
            return [commands.ScheduleDeletion(key, None, 0)] if state.reason is OfflineReason.FILES else []
        return [*self._sources.stop(key), commands.DeleteReplica(key, step.is_gone)]

    def _open(self, key: PartitionKey, topic_id: TopicId, before: Offline | None = None) -> Sequence[commands.Command]:
        state = self._replicas[key] = Opening(topic_id, before, self._preferred.pop(key, None))
        refused = self._refused_folders.get(key)
        if refused is not None:
            return [commands.ScheduleDeletion(key, refused.directory, refused.delay_ms)]
        return [self._open_log(key, state)]

    def _open_log(self, key: PartitionKey, state: Opening) -> commands.OpenLog:
        registration, before = self._registration(key), state.before
        return commands.OpenLog(
            key,
            state.topic_id,
            self._configs.of(key[0]),
            registration.directory_of(self._broker_id),
            # The disk refused a replica that is retried, not the rules.
            is_in_sync=self._broker_id in registration.isr and before is None,
            is_new=registration.partition_epoch == 0,
            preferred=state.preferred,
            is_retry=before is not None,
            last_state=None if before is None else before.last_state,
        )

    def _opened(self, event: events.LogOpened) -> Sequence[commands.Command]:
        key, state = event.key, self._opening(event.key)
        failure = self._failures.get(event.directory)
        if failure is not None:
            # The directory failed while the log was being opened.
            self._replicas[key] = Offline(state.topic_id, failure, OfflineReason.DIRECTORY)
            return [commands.TakeOffline(key, failure)]
        self._replicas[key] = Online(state.topic_id, event.directory)
        return [commands.ChangeEligible(key, self._brokers), commands.ChangeRegistration(key, self._registration(key))]

    def _open_refused(self, event: events.OpenRefused) -> Sequence[commands.Command]:
        key, error, state = event.key, event.error, self._opening(event.key)
        if event.directory is not None and error.code is ErrorCode.INCONSISTENT_TOPIC_ID:
            return [commands.RenameToStray(key, event.directory)]
        if event.directory is not None and is_disk_failure(error):
            return [commands.FailDirectory(event.directory, error), self._open_log(key, state)]
        before = state.before
        # An error without a cause is a rule's refusal, and the controller knows its reason.
        reason = OfflineReason.RULE if error.__cause__ is None else OfflineReason.FILES
        last = before.last_state if before is not None and reason is OfflineReason.FILES else None
        self._replicas[key] = Offline(state.topic_id, error, reason, last)
        result: list[commands.Command] = [_offline_line(key, error)] if before is None else []
        return [*result, *self._lose(key, state.topic_id)] if reason is OfflineReason.FILES else result

    def _retry(self, key: PartitionKey) -> Sequence[commands.Command]:
        """Open a replica again: an offline one, or one whose opening was given up."""
        state = self.offline(key)
        if state is None or state.reason is not OfflineReason.FILES:
            return []
        registration, topic = self._image.partition(*key), self._image.topics.get(key[0])
        is_ours = registration is not None and self._broker_id in registration.replicas
        if topic is None or topic.topic_id != state.topic_id or not is_ours:
            del self._replicas[key]
            return []
        return self._open(key, state.topic_id, state)

    def _place(self, key: PartitionKey, registration: PartitionRegistration) -> Sequence[commands.Command]:
        """Report a replica's directory to the controller if it does not know it, but not while the replica is stepped
        back.
        """
        state = self._replicas.get(key)
        result: list[commands.Command] = []
        if isinstance(state, SteppedBack):
            if registration.leader != NO_BROKER and set(registration.isr) - {self._broker_id}:
                return []
            # No other replica can lead any more.
            state = state.online
            result = self._bring_back(key, state)
        if not isinstance(state, Online):
            return []
        directory = self._directories.get(state.directory)
        if directory is None:
            return result
        if registration.directory_of(self._broker_id) == directory:
            if not state.is_placed:
                self._replicas[key] = state._replace(is_placed=True)
            return result
        return [*result, self._assign(key, state, directory)]

    def _follow(self, key: PartitionKey, source: Source | None) -> Sequence[commands.Command]:
        state = self._replicas.get(key)
        if isinstance(state, SteppedBack):
            self._replicas[key] = SteppedBack(state.online._replace(source=source))
            return []
        if not isinstance(state, Online):
            return []
        if source != state.source:
            self._replicas[key] = Online(state.topic_id, state.directory, source, state.is_placed)
        return self._sources.stop(key) if source is None else self._sources.start(key, source)

    def _moved(self, event: events.ReplicaMoved) -> Sequence[commands.Command]:
        key, state = event.key, self._replicas.get(event.key)
        directory = self._directories.get(event.directory)
        if isinstance(state, SteppedBack):
            state = state.online._replace(directory=event.directory)
            self._replicas[key] = SteppedBack(state)
        elif isinstance(state, Online):
            state = self._replicas[key] = state._replace(directory=event.directory)
        else:
            return []
        return [] if directory is None else [self._assign(key, state, directory)]

    def _step_back(self, event: events.AppendRefused) -> Sequence[commands.Command]:
        """Step a replica back if another one can take its place."""
        key, state = event.key, self._replicas.get(event.key)
        leads_alone = event.successors is not None and not event.successors
        if not isinstance(state, Online) or leads_alone:
            return []
        self._replicas[key] = SteppedBack(state)
        text, name = "%s-%d leaves the ISR on this node until its disk has space: %s", (*key, event.error.message)
        return [
            Report(Level.ERROR, text, name),
            *self._sources.stop(key),
            *self._lose(key, state.topic_id),
        ]

    def _return_replicas_in(self, path: Path, free: int) -> Sequence[commands.Command]:
        result: list[commands.Command] = []
        directory = self._directories.get(path)
        for key, state in list(self._replicas.items()):
            if directory is None or not isinstance(state, SteppedBack) or state.online.directory != path:
                continue
            # A file system that does not report its free space counts as writable.
            if not 0 <= free < _MIN_FREE_BATCHES * self._configs.of(key[0]).max_message_bytes:
                result.append(Report(Level.INFO, "The disk of %s-%d has space again", key))
                result.append(self._assign(key, state.online, directory))
                result += self._bring_back(key, state.online)
        return result

    def _bring_back(self, key: PartitionKey, online: Online) -> list[commands.Command]:
        self._replicas[key] = online
        return [] if online.source is None else self._sources.start(key, online.source)

    def _refuse(self, event: events.ReplicaRefused) -> Sequence[commands.Command]:
        """Take a replica offline until its disk accepts its files, or its whole directory if the disk has failed."""
        key, error = event.key, event.error
        if is_disk_failure(error):
            return [commands.FailDirectory(event.last_state.directory, error)]
        state = None if key is None else self._replicas.get(key)
        if key is None or not isinstance(state, Online | SteppedBack):
            return []
        self._replicas[key] = Offline(state.topic_id, error, OfflineReason.FILES, event.last_state)
        taken = [*self._sources.stop(key), commands.TakeOffline(key, error)]
        return [*taken, _offline_line(key, error), *self._lose(key, state.topic_id)]

    def _fail_directory(self, event: events.DirectoryFailed) -> Sequence[commands.Command]:
        path, error = event.directory, event.error
        self._directories.pop(path, None)
        self._failures[path] = error
        result: list[commands.Command] = []
        for key, topic_id in event.found:
            self._replicas[key] = Offline(topic_id, error, OfflineReason.DIRECTORY)
        for key in event.replicas:
            state = self._replicas.get(key)
            if isinstance(state, Online | SteppedBack):
                self._replicas[key] = Offline(state.topic_id, error, OfflineReason.DIRECTORY)
                result += [*self._sources.stop(key), commands.TakeOffline(key, error)]
        text = "The log directory %s is offline until the next start, with its %d replicas: %s"
        result.append(Report(Level.ERROR, text, (path, len(event.replicas), error.message)))
        result.append(commands.ReportDirectories() if self._directories else commands.FailNode(error))
        return result

    def _deletion_scheduled(self, event: events.DeletionScheduled) -> Sequence[commands.Command]:
        self._refused_folders.pop(event.key, None)
        state = self._replicas.get(event.key)
        return [self._open_log(event.key, state)] if isinstance(state, Opening) else []

    def _deletion_refused(self, event: events.DeletionRefused) -> Sequence[commands.Command]:
        key, error = event.key, event.error
        is_news = key not in self._refused_folders
        result: list[commands.Command] = []
        if is_disk_failure(error):
            result.append(commands.FailDirectory(event.directory, error))
        elif is_news:
            text = "A deleted replica is in its place until it can be renamed: %s"
            result.append(Report(Level.ERROR, text, (error.message,)))
            self._refused_folders[key] = RefusedFolder(event.directory, event.delay_ms)
        if isinstance(self._replicas.get(key), Opening):
            return [*self._open_refused(events.OpenRefused(key, None, error)), *result]
        return result

    def _retry_folder(self, key: PartitionKey) -> Sequence[commands.Command]:
        refused = self._refused_folders.get(key)
        if refused is None:
            return []
        if refused.directory not in self._directories:
            del self._refused_folders[key]
            return []
        return [commands.ScheduleDeletion(key, refused.directory, refused.delay_ms)]

    def _remove_folders(self, now_ms: int) -> Sequence[commands.Command]:
        due = [path for path, due_ms in self._due_ms.items() if due_ms <= now_ms]
        for path in due:
            del self._due_ms[path]
        return [commands.RemoveFolder(path) for path in due if path.parent in self._directories]

    def _registration(self, key: PartitionKey) -> PartitionRegistration:
        registration = self._image.partition(*key)
        assert registration is not None, key
        return registration

    def _opening(self, key: PartitionKey) -> Opening:
        state = self._replicas[key]
        assert isinstance(state, Opening), (key, state)
        return state

    def _assign(self, key: PartitionKey, state: Online, directory: DirectoryId) -> commands.AssignDirectory:
        return commands.AssignDirectory(state.topic_id, key[1], directory, keeps_log=state.is_placed)

    def _lose(self, key: PartitionKey, topic_id: TopicId) -> Sequence[commands.Command]:
        return [commands.AssignDirectory(topic_id, key[1], LOST_DIRECTORY)]


def brokers_of(image: MetadataImage) -> EligibleBrokersChanged:
    """Return the epochs of all registered brokers, and of those that may join an ISR."""
    brokers = image.brokers.values()
    return EligibleBrokersChanged(
        {b.broker_id: b.broker_epoch for b in brokers if b.is_active}, {b.broker_id: b.broker_epoch for b in brokers}
    )


def _offline_line(key: PartitionKey, error: TidelogError) -> Report:
    return Report(Level.ERROR, "%s-%d is offline on this node: %s", (*key, error.message))
