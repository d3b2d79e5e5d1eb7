"""The transaction coordinator of a node: the shards of transactional ids in the partitions of __transaction_state that
it leads (KIP-98)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.coordination.coordinator import CoordinatorEnvironment, ShardCoordinator
from tidelog_node.coordination.marker_sender import MarkerSender
from tidelog_node.coordination.marker_writer import MarkerWriter
from tidelog_node.coordination.shard_kind import ShardCore, ShardKind, ShardTerm
from tidelog_node.coordination.transaction_topic import TRANSACTION_TOPIC
from tidelog_node.coordination.views import OpenView, ShardViews, open_rocks_view
from tidelog_node.event_loop import Clock
from tidelog_node.partitions import MetadataCache
from tidelog_node.shards.store import RecordStore
from tidelog_node.shards.wire import MAX_STRING_BYTES, is_too_long
from tidelog_node.transactions.events import (
    AllocateProducerId,
    ProducerIdAllocated,
    SettingsChanged,
    TransactionCommand,
    TransactionNews,
    WriteMarkers,
)
from tidelog_node.transactions.requests import TransactionRequest, TransactionResponse
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.shard import TransactionShard
from tidelog_quorum.metadata.features import TRANSACTION_VERSION

TransactionCore: TypeAlias = ShardCore[TransactionRequest, TransactionResponse, TransactionNews, TransactionCommand]
VIEW_FOLDER = "transaction-view"
COMMIT_TIMEOUT_MS = 5_000
"""The time for which a call waits for the replicas of __transaction_state."""


class ProducerIds(Protocol):
    """A source of producer ids."""

    async def next_id(self) -> int:
        """Return a unique id.

        Raises:
            TidelogError: No id is available.
        """
        ...


class TransactionCoordinator(
    ShardCoordinator[TransactionRequest, TransactionResponse, TransactionNews, TransactionCommand]
):
    """The transaction coordinator of a node, on its event loop. ``log_directories`` returns the online directories.

    ``settings`` come from the node's file, except the version, which is the cluster's. Markers are written once
    :meth:`connect` has been called.
    """

    def __init__(
        self,
        environment: CoordinatorEnvironment,
        log_directories: Callable[[], list[Path]],
        settings: TransactionSettings,
        producer_ids: ProducerIds,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
        open_view: OpenView = open_rocks_view,
    ) -> None:
        self._allocations = _ProducerIdAllocations(producer_ids)
        self._markers = MarkerWriter(environment.metadata, environment.clock)
        kind = _TransactionKind(settings, environment.metadata, environment.clock, self._allocations, self._markers)
        views = ShardViews(log_directories, VIEW_FOLDER, open_view)
        super().__init__(kind, environment, views, "none", commit_timeout_ms)
        self._settings_of = kind.settings

    @property
    def version(self) -> int:
        """The finalized ``transaction.version``."""
        return self._settings_of().version

    def connect(self, sender: MarkerSender) -> None:
        """Begin to write markers."""
        self._markers.connect(sender)

    async def run(self) -> None:
        """Coordinate until cancelled. Waiting calls are then answered with NOT_COORDINATOR."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._allocations.run(), name="transactions-producer-ids")
            tasks.create_task(self._markers.run(), name="transactions-markers")
            await super().run()


class _TransactionKind(ShardKind[TransactionRequest, TransactionResponse, TransactionNews, TransactionCommand]):
    """The shards of transactional ids."""

    topic = TRANSACTION_TOPIC
    noun = "transactions"

    def __init__(
        self,
        settings: TransactionSettings,
        metadata: MetadataCache,
        clock: Clock,
        allocations: _ProducerIdAllocations,
        markers: MarkerWriter,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._clock = clock
        self._allocations = allocations
        self._markers = markers

    def check_id(self, owner: str) -> None:
        if is_too_long(owner):
            text = f"a transactional id of {len(owner)} characters does not fit into {MAX_STRING_BYTES} bytes"
            raise error_for(ErrorCode.INVALID_REQUEST, text)

    def new_core(self, store: RecordStore) -> TransactionCore:
        return TransactionShard(self.settings(), store, self._clock.monotonic_ms())

    def news(self) -> _SettingsFeed:
        return _SettingsFeed(self)

    def execute(self, term: ShardTerm[TransactionNews], command: TransactionCommand) -> None:
        match command:
            case AllocateProducerId():
                self._allocations.add(term, command.transactional_id)
            case WriteMarkers():
                self._markers.add(term, command)

    def end(self, term: ShardTerm[TransactionNews]) -> None:
        self._markers.end(term)

    def settings(self) -> TransactionSettings:
        """Return the settings with the finalized version of the newest image."""
        version = self._metadata.image.feature_levels.get(TRANSACTION_VERSION, 0)
        return replace(self._settings, version=version)


class _SettingsFeed:
    """The settings that have changed since one shard was last notified."""

    def __init__(self, kind: _TransactionKind) -> None:
        self._kind = kind
        self._told: TransactionSettings | None = None

    def take(self) -> Sequence[SettingsChanged]:
        settings = self._kind.settings()
        if settings == self._told:
            return ()
        self._told = settings
        return (SettingsChanged(settings),)


class _ProducerIdAllocations:
    """Allocates producer ids for shards, in order, in the task :meth:`run`. A failure fails all waiting requests."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids
        self._waiting: deque[tuple[ShardTerm[TransactionNews], str]] = deque()
        self._woken = asyncio.Event()

    def add(self, term: ShardTerm[TransactionNews], transactional_id: str) -> None:
        """Allocate an id. ProducerIdAllocated follows."""
        self._waiting.append((term, transactional_id))
        self._woken.set()

    async def run(self) -> None:
        """Allocate until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                await self._allocate()

    async def _allocate(self) -> None:
        try:
            producer_id = await self._producer_ids.next_id()
        except TidelogError as error:
            failed, self._waiting = self._waiting, deque()
            for term, transactional_id in failed:
                term.post(ProducerIdAllocated(transactional_id, None, error))
            return
        term, transactional_id = self._waiting.popleft()
        term.post(ProducerIdAllocated(transactional_id, producer_id))
